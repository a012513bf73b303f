package web

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// page holds what surrounds the content of every page.
type page struct {
	Title   string
	Width   string // class of the content: "", narrow or middle
	Section string // of the navigation: stacks, claim, account, signin
	Email   string // of who is signed in; "" for nobody
	Token   string // of forms
	Mails   bool   // the installation sends mails
	Notice  notice
	Stream  string // address of the page's stream of changes; "" for none
	Reload  bool   // the page reloads itself where scripts are off
}

// newPage returns the frame of a page for the sender of the request.
func (w *pages) newPage(c *fiber.Ctx, s store.Session, title, width, section string) page {
	return page{
		Title:   title,
		Width:   width,
		Section: section,
		Email:   s.Account.Email,
		Token:   w.formToken(c),
		Mails:   w.cfg.Accounts.Mails(),
		Notice:  w.takeNotice(c),
	}
}

// stackView is a stack as the pages show it.
type stackView struct {
	Stack    *stack.Stack
	Services []serviceView
	Age      string // how long the current status lasts; "" for no limit
	TooLarge string // how much more of the disk than it may the stack takes; "" if it does not
	Left     []dataLeft
	Lately   latelyView
}

// dataLeft is data of a stack on a node that does not own it.
type dataLeft struct {
	Node    string // its name
	Volumes []string
}

type serviceView struct {
	Name    string
	Runtime string
	Status  stack.ServiceStatus
	URL     string
	Serves  bool   // requests reach it
	Process bool   // it has one, so it can be restarted
	Dump    string // the format of its dump, if it is a database
	Speaks  string // what it speaks and where, if it is a database
	Newer   string // the name and version of a database whose next restart takes a newer image; "" for none
	Paths   []pathView
}

// dumpFormat returns the format of a database's dump, "" for any other
// service.
func dumpFormat(s *stack.Spec) string {
	if db := s.Database(); db != nil {
		return db.Format
	}
	return ""
}

// speaks returns what a database speaks and where the services of its stack reach it, "" for any
// other service.
func speaks(s *stack.Spec) string {
	if db := s.Database(); db != nil {
		return fmt.Sprintf("%s at %s:%d, for the services of this stack", db.Title, s.Name, db.Port)
	}
	return ""
}

// pathView is a path of a service that leads to another one.
type pathView struct{ Path, Leads string }

// showPaths returns where the paths of a service lead, in words.
func showPaths(paths map[string]stack.Path) []pathView {
	var views []pathView
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		leads := "leads to " + paths[path].Service
		if paths[path].Strip {
			leads += ", without " + path
		}
		views = append(views, pathView{path, leads})
	}
	return views
}

// showStack converts a stack for the pages.
func (w *pages) showStack(s *stack.Stack) stackView {
	v := stackView{Stack: s, Services: make([]serviceView, len(s.Generation.Services)), Age: left(s, time.Now())}
	for i := range s.Generation.Services {
		svc := &s.Generation.Services[i]
		v.Services[i] = serviceView{
			Name:    svc.Spec.Name,
			Runtime: svc.Spec.Label,
			Status:  svc.Status,
			URL:     w.cfg.URLs.Service(s, svc.Spec.Name),
			Serves:  s.Status == stack.Live,
			Process: !svc.Spec.IsStatic(),
			Dump:    dumpFormat(&svc.Spec),
			Speaks:  speaks(&svc.Spec),
			Paths:   showPaths(svc.Spec.Paths),
		}
	}
	if s.Status != stack.Expired && w.cfg.DiskLimit.IsOver(s.Disk) {
		v.TooLarge = w.cfg.DiskLimit.Tell(s.Disk)
	}
	return v
}

// showWhole is showStack with what only the stack's own page shows.
func (w *pages) showWhole(s *stack.Stack) (stackView, error) {
	v := w.showStack(s)
	w.noteNewer(&v)
	if w.cfg.NodeName == nil {
		return v, nil
	}
	all, err := w.cfg.Store.DataLeft(w.server.Context(), s.ID)
	for _, r := range all {
		v.Left = append(v.Left, dataLeft{w.cfg.NodeName(r.Node), r.Volumes})
	}
	return v, err
}

// noteNewer notes which databases the next restart gives a newer image.
func (w *pages) noteNewer(v *stackView) {
	outdated := w.cfg.Host.Outdated(w.server.Context(), v.Stack.ID)
	for i := range v.Services {
		s := &v.Services[i]
		if slices.Contains(outdated, s.Name) {
			spec := v.Stack.Generation.Services[i].Spec
			s.Newer = spec.Database().Title + " " + spec.Runtime.Version
		}
	}
}

func (w *pages) showStacks(stacks []*stack.Stack) []stackView {
	ids := make([]string, len(stacks))
	for i, s := range stacks {
		ids[i] = s.ID
	}
	lately := w.cfg.Metrics.Lately(w.server.Context(), ids)
	views := make([]stackView, len(stacks))
	for i, s := range stacks {
		views[i] = w.showStack(s)
		views[i].Lately = showLately(s.ID, lately[s.ID])
	}
	return views
}

// left returns how long an unclaimed stack has left, or is still kept.
func left(s *stack.Stack, now time.Time) string {
	until := s.ExpiresAt
	if s.Status == stack.Expired {
		until = s.RetainedUntil
	}
	if until.IsZero() {
		return ""
	}
	return stack.DurationInWords(max(0, until.Sub(now)))
}

// statusWord returns a stack's status in the owner's words.
func (v stackView) statusWord() string {
	if v.Stack.Restoring() {
		return "restoring"
	}
	return string(v.Stack.Status)
}

// deploying says what the deploy under way builds and does.
func (v stackView) deploying() string {
	building := "generation " + strconv.Itoa(v.Stack.Deploying) + " is being built"
	if doing := phaseInWords(v.Stack.LastDeploy.Progress); doing != "" {
		return building + ": " + doing
	}
	return building
}

// canRestart reports whether a service may be restarted now.
func (v stackView) canRestart(s serviceView) bool {
	return s.Process && v.Stack.Status == stack.Live && v.Stack.Deploying == 0
}

// hasData reports whether a service of the stack has data.
func (v stackView) hasData() bool {
	return slices.ContainsFunc(v.Services, func(s serviceView) bool { return s.Process })
}

// canTransfer reports whether data may be downloaded and replaced now.
func (v stackView) canTransfer() bool { return v.Stack.Status == stack.Live && v.Stack.Deploying == 0 }

// canSalvage reports whether the files of a stack may be downloaded, and data replaced, although
// it serves nothing.
func (v stackView) canSalvage() bool {
	return v.Stack.Status == stack.Failed && v.Stack.Deploying == 0
}

// canRebuild reports whether the stack may be built again from its kept source.
func (v stackView) canRebuild() bool {
	idle := v.Stack.Deploying == 0 && (v.Stack.Status == stack.Live || v.Stack.Status == stack.Failed)
	return idle && v.Stack.Generation.Source.Folder != ""
}

// agentHasAccess reports whether the manage token of the stack works.
func (v stackView) agentHasAccess() bool { return len(v.Stack.ManageTokenHash) > 0 }
