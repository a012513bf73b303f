package manifest

import (
	"cmp"
	"strings"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// fromSource is the origin of what only a source can decide.
const fromSource = "detected from the source"

// CheckAlone is like Check for a manifest without its source. The services have what the
// manifest itself says; a runtime that it leaves to the source is empty.
func CheckAlone(req Request) (*stack.Manifest, []string) {
	f := &faults{}
	name := cmp.Or(req.ManifestName, "manifest")
	d := readDraft(req.Manifest, name, req, f)
	if d == nil {
		return &stack.Manifest{}, f.all()
	}
	m := d.manifest
	m.Name = firstName(m.Name, "stack")
	det := &detector{manifest: name, faults: f}
	m.Services = det.written(d)
	if !d.broken {
		checkTogether(m.Services, f)
	}
	req.checkTTL(m.TTL, f)
	return &m, f.all()
}

// written returns the services as far as their drafts describe them.
func (t *detector) written(d *draft) []stack.Spec {
	drafts := d.services
	if len(drafts) == 0 && !d.broken {
		drafts = []draftService{{name: "web", label: "service web"}}
	}
	specs := make([]stack.Spec, len(drafts))
	for i := range drafts {
		specs[i] = t.writtenService(&drafts[i])
	}
	return specs
}

func (t *detector) writtenService(d *draftService) stack.Spec {
	s := stack.Spec{Name: d.name, Root: ".", Env: d.env, DependsOn: d.dependsOn, Paths: d.paths, Origin: map[string]string{}}
	if d.root != nil {
		s.Root = t.writtenFolder(d, &s, "root", *d.root)
	}
	def, version := t.writtenRuntime(d, &s)
	if def != nil {
		t.checkFields(d, def)
		s.Runtime = stack.Runtime{Name: def.Name, Version: version}
		if def.Database != nil {
			t.fillDatabase(d, &s, def, version)
			return s
		}
	}
	s.Install = t.pick(&s, "install", d.install, runtimes.Command{})
	s.Build = t.pick(&s, "build", d.build, runtimes.Command{})
	if def != nil && def.Name == stack.Static {
		t.writtenSite(d, &s)
	} else {
		t.writtenProcess(d, &s)
	}
	return s
}

// writtenRuntime returns the runtime that the manifest names or that its fields need; nil
// if the source decides or the name is wrong.
func (t *detector) writtenRuntime(d *draftService, s *stack.Spec) (*runtimes.Definition, string) {
	switch {
	case d.has("runtime"):
		def, version, ok := t.lookup(d)
		if ok {
			s.Origin["runtime"] = t.manifest
		}
		return def, version
	case d.has("publish") || d.has("spa"):
		def, _ := runtimes.Lookup(stack.Static)
		s.Origin["runtime"] = "it has publish or spa"
		return def, ""
	case !d.broken:
		s.Origin["runtime"] = fromSource
	}
	return nil, ""
}

// writtenFolder returns the folder that a field names, "" if it names none.
func (t *detector) writtenFolder(d *draftService, s *stack.Spec, field, name string) string {
	clean, err := cleanFolder(name)
	if err != nil {
		t.faultf(d, "%s %s %v", field, safetext.Quote(name), err)
		return ""
	}
	s.Origin[field] = t.manifest
	return clean
}

func (t *detector) writtenSite(d *draftService, s *stack.Spec) {
	s.SPA = cmp.Or(d.spa, stack.SPAAuto)
	t.noteGiven(d, s, "spa")
	if d.publish != nil {
		s.Publish = t.writtenFolder(d, s, "publish", *d.publish)
	}
}

func (t *detector) writtenProcess(d *draftService, s *stack.Spec) {
	s.Release = t.pick(s, "release", d.release, runtimes.Command{})
	s.Start = t.pick(s, "start", d.start, runtimes.Command{})
	if d.start != nil && strings.TrimSpace(*d.start) == "" {
		t.faultf(d, "start is empty; write its start command, as in start: node server.js, or leave it out")
	}
	s.Port, s.Health, s.Strategy, s.StopTimeout = d.port, d.health, d.strategy, d.stopTimeout
	t.noteGiven(d, s, "port", "health", "strategy", "stop_timeout")
}
