package manifest

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// fillProcess completes a service with a process.
func (t *detector) fillProcess(d *draftService, s *stack.Spec, c choice) {
	s.Install = t.pick(s, "install", d.install, c.plan.Install)
	s.Build = t.pick(s, "build", d.build, c.plan.Build)
	s.Release = t.pick(s, "release", d.release, c.plan.Release)
	s.Start = t.pick(s, "start", d.start, c.plan.Start)
	if s.Start == "" && (d.start != nil || !d.has("start")) {
		t.faultf(d, "%s", missingStart(d, c))
	}
	fillEnv(s, c.plan.Env)
	s.Port = d.port
	s.Health = d.health
	s.Strategy = cmp.Or(d.strategy, stack.Overlap)
	s.StopTimeout = cmp.Or(d.stopTimeout, stopTimeout)
	t.noteGiven(d, s, "port", "health", "strategy", "stop_timeout")
}

// fillEnv adds variables that the service's framework needs and the manifest does not
// set.
func fillEnv(s *stack.Spec, needed []runtimes.Variable) {
	if len(needed) == 0 {
		return
	}
	env := map[string]stack.Env{}
	maps.Copy(env, s.Env)
	var names []string
	for _, v := range needed {
		_, given := s.Env[v.Name]
		_, replaced := s.Env[v.Unless]
		if !given && !replaced {
			env[v.Name] = stack.Env{Value: v.Value, Generate: v.Value == ""}
			names = append(names, v.Name)
			s.Origin["env"] = strings.Join(names, ", ") + " for " + v.From
		}
	}
	s.Env = env
}

func missingStart(d *draftService, c choice) string {
	why := "start is empty"
	if d.start == nil {
		why = "nothing says how to start it"
		if c.plan.Hint != "" {
			why += ": " + c.plan.Hint
		}
	}
	return fmt.Sprintf("%s; write its start command in the manifest, as in start: %s, or as web in a Procfile", why, c.runtime.Example)
}

// processFields do not apply to a service that the host serves; words is how messages
// refer to them.
var processFields = []struct{ name, words string }{
	{"start", "a start command"},
	{"release", "a release command"},
	{"port", "port"},
	{"health", "health"},
	{"strategy", "strategy"},
	{"stop_timeout", "stop_timeout"},
}

// fillStatic completes a service whose files the host serves.
func (t *detector) fillStatic(d *draftService, s *stack.Spec, c choice, src fs.FS) {
	s.Build = t.pick(s, "build", d.build, c.plan.Build)
	install := c.plan.Install
	if s.Build == "" {
		install = runtimes.Command{} // packages serve the build only
	}
	s.Install = t.pick(s, "install", d.install, install)
	s.SPA = cmp.Or(d.spa, stack.SPAAuto)
	t.noteGiven(d, s, "spa")
	t.fillPublish(d, s, c, src)
}

// fillPublish finds the folder to serve: the manifest's, else the one that the build is
// known to create, else what is there. If the build's folder is unknown, it stays "".
func (t *detector) fillPublish(d *draftService, s *stack.Spec, c choice, src fs.FS) {
	builds := s.Install != "" || s.Build != ""
	switch {
	case d.publish != nil:
		t.givenPublish(d, s, src, builds)
	case builds && c.plan.Static && c.plan.Publish.Line != "":
		s.Publish, s.Origin["publish"] = path.Clean(c.plan.Publish.Line), c.plan.Publish.From
	case builds:
		s.Origin["publish"] = strings.Join(runtimes.PublishFolders, ", ")
	default:
		s.Publish, s.Origin["publish"] = ".", "default"
		if folder := runtimes.FindPublish(src); folder != "" {
			s.Publish, s.Origin["publish"] = folder, path.Join(folder, "index.html")
		}
	}
}

func (t *detector) givenPublish(d *draftService, s *stack.Spec, src fs.FS, builds bool) {
	clean, err := cleanFolder(*d.publish)
	if err != nil {
		t.faultf(d, "publish %s %v", safetext.Quote(*d.publish), err)
		return
	}
	if !builds && !hasFolder(src, clean) {
		t.faultf(d, "publish %s: there is no such folder, and no build command that creates it%s", safetext.Quote(*d.publish), folders(src))
		return
	}
	s.Publish, s.Origin["publish"] = clean, t.manifest
}
