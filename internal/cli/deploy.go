package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
)

// deployment is a requested deploy.
type deployment struct {
	from origin

	another               bool // not the folder's stack, but a new one
	supersede, fresh      bool
	name, ttl, claimEmail string

	wait    bool
	timeout time.Duration
}

func (a *app) deployCommand() *cobra.Command {
	d := &deployment{}
	cmd := &cobra.Command{
		Use:     "deploy [STACK] [DIR]",
		Aliases: []string{"up"},
		Short:   "Deploy a folder, or redeploy its stack",
		Long: `Deploy a folder. The first deploy creates a stack. Each later one builds the next
generation of the folder's stack, or of the stack whose id you pass as STACK. The
current generation keeps serving until the new one is healthy. Only what differs
from its source is sent, unless that is more than half of the files.

Files that .gitignore or .dockerignore excludes are not packed, and neither are
.git, node_modules and .env files, unless --include matches them. What is not packed
is removed from the source of the stack, even if others have added it; the output
names it. DIR can also be an archive (tar or tar.gz), or - for an archive on
standard input, which replaces the whole source.

The manifest is that of --manifest, else the folder's, else the one that was given
beside the source that is served, unless DIR is an archive.

Without a terminal, berth asks no questions. BERTH_TOKEN is the API key or the
stack's manage token, BERTH_STACK the stack's id, BERTH_SERVER the server's address.`,
		Example: `berth deploy
berth deploy web --name shop --ttl 2h
berth deploy stk_3f2a9c1b7d4e
git archive HEAD | berth deploy -`,
	}
	flags := cmd.Flags()
	flags.BoolVar(&d.another, "new", false, "create another stack, even if the folder has one")
	flags.StringVar(&d.name, "name", "", "name of the new stack")
	flags.StringVar(&d.ttl, "ttl", "", "lifetime of the new stack, such as 90m or 2h")
	flags.StringVar(&d.claimEmail, "claim-email", "", "the only email address that may claim the new stack")
	flags.StringVar(&d.from.manifest, "manifest", "", "manifest to use instead of the folder's, also by later deploys if the folder has none")
	flags.StringArrayVar(&d.from.include, "include", nil, "also pack files that match this .gitignore pattern, even if other rules exclude them")
	flags.BoolVar(&d.supersede, "supersede", false, "end the deploy that is under way and take its place")
	flags.BoolVar(&d.fresh, "fresh", false, "install and build again without anything that earlier builds left")
	flags.BoolVar(&d.wait, "wait", true, "wait until the stack is live or failed")
	flags.DurationVar(&d.timeout, "timeout", 0, "stop waiting after this time")
	return a.takingStack(cmd, 1, cobra.ShellCompDirectiveDefault, func(ctx context.Context, args []string) error {
		if d.another && a.stack != "" {
			return usagef("--new creates another stack and cannot redeploy %s; leave out one of the two", a.stack)
		}
		d.from.path = argument(args, ".")
		return a.deploy(ctx, d)
	})
}

// argument returns the only argument, or none if there is none.
func argument(args []string, none string) string {
	if len(args) == 0 {
		return none
	}
	return args[0]
}

func (a *app) deploy(ctx context.Context, d *deployment) error {
	folder, err := d.from.folder()
	if err != nil {
		return err
	}
	t, err := a.present(ctx, d, folder)
	if err != nil {
		return err
	}
	t, archive, since, err := a.send(ctx, d, folder, t)
	if archive != nil {
		defer archive.Close()
	}
	if err != nil {
		return withLeftOut(err, archive)
	}
	if !d.wait {
		return a.show(t.stack)
	}
	digest := t.stack.Digest
	err = a.finish(ctx, t, since, d.timeout)
	if err == nil {
		a.remember(ctx, t, digest, archive)
	}
	return err
}

// send uploads the source of a stack that is there, or of a new one. It returns the stack,
// what was sent, and the id of the last event before. The caller closes what was sent.
func (a *app) send(ctx context.Context, d *deployment, folder string, t *target) (_ *target, s *spool, since int64, err error) {
	if t != nil {
		since, s, err = a.upload(ctx, d, t)
		return t, s, since, err
	}
	if s, err = a.archive(ctx, d.from); err != nil {
		return nil, nil, 0, err
	}
	t, err = a.createStack(ctx, d, folder, s.form)
	return t, s, 0, err
}

// withLeftOut adds to the refusal of a source what was not sent, if that may be the
// reason.
func withLeftOut(err error, archive *spool) error {
	if archive == nil || !client.IsStatus(err, http.StatusUnprocessableEntity) {
		return err
	}
	aside := archive.aside("not sent: ", "; pass --include PATTERN to send it", archive.missed(err.Error()))
	if aside == "" {
		return err
	}
	return &failure{code: exitInvalid, detail: err.Error(), next: aside}
}

// present returns the stack that this is a redeploy of; nil for a create.
func (a *app) present(ctx context.Context, d *deployment, folder string) (*target, error) {
	c, known, err := a.account()
	if err != nil {
		return nil, err
	}
	named := a.namedStack()
	id := cmp.Or(named, known.Folders[folder])
	if d.another || id == "" {
		return nil, nil
	}
	t, err := a.reach(ctx, c, known, id)
	switch {
	case named == "" && client.IsNoStack(err, id):
		a.ui.sayf("%s no longer exists; creating another stack", id)
		return nil, a.forget(c.Server(), id)
	case named == "" && client.IsStatus(err, http.StatusUnauthorized, http.StatusForbidden):
		return nil, &failure{code: exitAccess, detail: fmt.Sprintf("%s, this folder's stack: %v", id, err), next: "run berth login as its owner, or deploy with --new"}
	case err != nil:
		return nil, err
	}
	return t, a.checkRedeploy(d, t.stack)
}

// checkRedeploy refuses, before anything is packed, what a redeploy cannot do.
func (a *app) checkRedeploy(d *deployment, s *client.Stack) error {
	if d.name != "" && d.name != s.Name {
		return usagef("%s is named %s, and the name of a stack cannot change; leave out --name, or pass --new to create another stack", s.ID, s.Name)
	}
	if d.ttl != "" || d.claimEmail != "" {
		a.ui.sayf("--ttl and --claim-email apply only to a new stack and are ignored; use berth extend to change the time left")
	}
	if s.Status == client.Expired {
		claim := "claim it"
		if s.ClaimURL != "" {
			claim += " at " + s.ClaimURL
		}
		return &failure{
			code: exitConflict, detail: fmt.Sprintf("%s, this folder's stack, has expired", s.ID),
			next: claim + " to restore it, or deploy with --new",
		}
	}
	return nil
}

// createStack uploads a new stack and remembers it before anything else happens.
func (a *app) createStack(ctx context.Context, d *deployment, folder string, form client.Upload) (*target, error) {
	c, _, err := a.account()
	if err != nil {
		return nil, err
	}
	if a.hasManageToken() {
		return nil, usagef("BERTH_TOKEN is the manage token of one stack and cannot create another; pass the stack's id with --stack to redeploy it, or unset BERTH_TOKEN")
	}
	form.Name, form.TTL, form.ClaimEmail = d.name, d.ttl, d.claimEmail
	done := a.ui.progress(&form)
	s, err := c.Create(ctx, form)
	done()
	if err != nil {
		return nil, err
	}
	if err := a.memory.update(c.Server(), func(known *onServer) { known.keep(folder, s) }); err != nil {
		return nil, fmt.Errorf("%s was created, but its manage token %s could not be saved: %w", s.ID, s.ManageToken, err)
	}
	a.ui.sayf("%s is building", s.ID)
	return &target{api: c.WithToken(s.ManageToken), stack: s, began: s.Deploy}, nil
}

// redeploy uploads the next generation. It returns the id of the last event before it.
func (a *app) redeploy(ctx context.Context, d *deployment, t *target, form client.Upload) (int64, error) {
	form.Supersede, form.Fresh = d.supersede, d.fresh
	since, err := lastEvent(ctx, t)
	if err != nil {
		return 0, err
	}
	done := a.ui.progress(&form)
	s, err := t.api.Deploy(ctx, t.stack.ID, form)
	done()
	if err != nil {
		return 0, err
	}
	s.ClaimCode, s.ClaimURL = t.stack.ClaimCode, t.stack.ClaimURL
	t.stack, t.began = s, s.Deploy
	if s.Deploying != nil {
		a.ui.sayf("%s is building generation %d", s.ID, *s.Deploying)
	}
	return since, nil
}

func lastEvent(ctx context.Context, t *target) (int64, error) {
	var last int64
	for {
		page, err := t.api.Events(ctx, t.stack.ID, last, false)
		if err != nil || len(page) == 0 {
			return last, err
		}
		last = page[len(page)-1].ID
		if len(page) < client.EventPage {
			return last, nil
		}
	}
}

// progress shows how much of an upload has been sent: as a bar on a terminal, otherwise
// as one line. Calling done ends it.
func (u *ui) progress(form *client.Upload) (done func()) {
	if u.quiet || !u.terminal {
		u.sayf("uploading %s", units.HumanSize(float64(form.Size)))
		return func() {}
	}
	bar := progressbar.NewOptions64(form.Size,
		progressbar.OptionSetWriter(u.err),
		progressbar.OptionSetDescription("uploading"),
		progressbar.OptionShowBytes(true),
		progressbar.OptionSetWidth(min(30, u.width/3)),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionEnableColorCodes(false),
		progressbar.OptionUseANSICodes(false),
	)
	form.Progress = func(sent int64) { _ = bar.Set64(sent) } // a bar that cannot be drawn does no harm
	return func() { fmt.Fprintln(u.err) }
}

// finish waits for a deploy, shows the stack and returns its failure as an error.
func (a *app) finish(ctx context.Context, t *target, since int64, timeout time.Duration) error {
	if err := a.settle(ctx, t, since, timeout); err != nil {
		return err
	}
	if err := a.show(t.stack); err != nil {
		return err
	}
	return verdict(t.stack, t.began)
}

// settle waits until a stack is no longer building, and shows what happens.
func (a *app) settle(ctx context.Context, t *target, since int64, timeout time.Duration) error {
	waiting := ctx
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		waiting = limited
	}
	s, err := a.follow(waiting, t, since)
	switch {
	case err == nil:
		s.KeepOneTime(t.stack)
		t.stack = s
		return nil
	case ctx.Err() == nil && errors.Is(waiting.Err(), context.DeadlineExceeded):
		return errTimeout
	case ctx.Err() != nil:
		a.ui.sayf("\nstopped waiting; the deploy continues: run berth status --wait to wait for it")
	}
	return err
}

// verdict returns the error of a stack that did not become what was asked for by a
// deploy, nil if the command began none.
func verdict(s *client.Stack, began *client.Deploy) error {
	switch {
	case s.BeganAfter(began):
		return &failure{
			code:   exitFailed,
			detail: fmt.Sprintf("attempt %d, which this was, has ended: attempt %d took its place, or began after it", began.Attempt, s.Deploy.Attempt),
			next:   "run berth status --wait to wait for that one, and berth events to see what happened",
		}
	case s.Status == client.Failed:
		reason := orText(s.Error, "the stack failed")
		return &failure{code: exitFailed, detail: reason, next: afterFailure(reason)}
	case s.Status == client.Expired:
		return &failure{code: exitFailed, detail: "the stack has expired", next: "claim it to restore it"}
	case s.DeployError != nil:
		return &failure{
			code:   exitFailed,
			detail: fmt.Sprintf("the redeploy failed and generation %d keeps serving: %s", s.Generation, *s.DeployError),
			next:   afterFailure(*s.DeployError),
		}
	}
	return nil
}

// afterFailure returns what to do after a deploy failed for a reason. A server says that
// the source is to be sent again where nothing is wrong with it, as after a restart.
func afterFailure(reason string) string {
	if strings.HasSuffix(reason, "; upload the source again") {
		return "run berth deploy again"
	}
	return "look at berth logs --build and berth logs, fix the cause and run berth deploy again"
}

func orText(s *string, none string) string {
	if s == nil || *s == "" {
		return none
	}
	return *s
}
