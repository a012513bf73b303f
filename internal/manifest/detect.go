package manifest

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// detector completes services from the source.
type detector struct {
	root     fs.FS
	manifest string // what the manifest is called, for origins
	faults   *faults
	single   string // the archive's only folder, which is the root now, or ""
	name     string // the name that the source gives itself, or ""
}

// choice is what was decided about a service.
type choice struct {
	runtime *runtimes.Definition
	builder *runtimes.Definition // what runs the commands
	plan    runtimes.Plan
	version string // the manifest's; "" leaves it to the plan
	label   string
	from    string
}

// services resolves every draft; a manifest without services gets one, named web.
func (t *detector) services(drafts []draftService) []stack.Spec {
	if len(drafts) == 0 {
		drafts = []draftService{{name: "web", label: "service web"}}
	}
	specs := make([]stack.Spec, len(drafts))
	for i := range drafts {
		specs[i] = t.service(&drafts[i])
	}
	if t.name == "" {
		_, plan, _ := runtimes.Detect(t.root)
		t.name = plan.Name
	}
	return specs
}

func (t *detector) service(d *draftService) stack.Spec {
	s := stack.Spec{
		Name: d.name, Root: ".", Env: d.env, DependsOn: d.dependsOn, Paths: d.paths, Origin: map[string]string{},
	}
	if def, _, ok := d.definition(); ok && def.Database != nil {
		if def, version, ok := t.lookup(d); ok {
			t.checkFields(d, def)
			t.fillDatabase(d, &s, def, version)
		}
		return s
	}
	src, ok := t.folder(d, &s)
	if !ok {
		t.checkKind(d)
		return s
	}
	c, ok := t.choose(d, src)
	if !ok {
		return s
	}
	if s.Root == "." {
		t.name = c.plan.Name
	}
	s.Label = c.label
	s.BuildEnv = c.plan.BuildEnv
	s.Runtime = stack.Runtime{Name: c.runtime.Name}
	s.Origin["runtime"] = c.from
	t.checkFields(d, c.runtime)
	if c.runtime.Name == stack.Static {
		t.fillStatic(d, &s, c, src)
	} else {
		t.fillProcess(d, &s, c)
	}
	t.fillVersion(&s, c)
	return s
}

// checkKind faults what can be judged without the service's folder: an unknown runtime,
// and fields for the other kind of service.
func (t *detector) checkKind(d *draftService) {
	if def, _, ok := t.lookup(d); ok {
		t.checkFields(d, def)
	}
}

// checkFields faults fields for the other kind of service.
func (t *detector) checkFields(d *draftService, def *runtimes.Definition) {
	if def.Database != nil {
		t.checkDatabase(d, def.Database)
		return
	}
	if def.Name == stack.Static {
		for _, field := range processFields {
			if d.has(field.name) {
				t.faultf(d, "a static service must not have %s", field.words)
			}
		}
		return
	}
	for _, name := range []string{"publish", "spa"} {
		if d.has(name) {
			t.faultf(d, "%s is for a static service, and this one runs %s", name, def.Name)
		}
	}
}

// folder finds the service's own folder in the archive.
func (t *detector) folder(d *draftService, s *stack.Spec) (fs.FS, bool) {
	if d.root == nil {
		return t.root, !d.has("root") && !d.broken
	}
	clean, err := cleanFolder(*d.root)
	if err != nil {
		t.faultf(d, "root %s %v", safetext.Quote(*d.root), err)
		return nil, false
	}
	if !hasFolder(t.root, clean) {
		clean = t.belowSingle(clean)
	}
	if !hasFolder(t.root, clean) {
		t.faultf(d, "root %s: the archive has no such folder%s", safetext.Quote(*d.root), folders(t.root))
		return nil, false
	}
	s.Root = clean
	s.Origin["root"] = t.manifest
	src, err := fs.Sub(t.root, clean)
	return src, err == nil
}

func hasFolder(root fs.FS, name string) bool {
	info, err := fs.Stat(root, name)
	return err == nil && info.IsDir()
}

// belowSingle removes the archive's only folder from a name that begins with it: a
// project that consists of web/ may be packed with root: web.
func (t *detector) belowSingle(name string) string {
	if rest, ok := strings.CutPrefix(name+"/", t.single+"/"); ok {
		return path.Clean(rest)
	}
	return name
}

// folders lists the existing folders, for the end of a sentence.
func folders(root fs.FS) string {
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return ""
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && safetext.Name(e.Name()) == e.Name() && len(names) < 10 {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; it has " + strings.Join(names, ", ")
}

// choose decides on the runtime: the manifest's, else static if the manifest has fields
// of a static service, else what the folder shows.
func (t *detector) choose(d *draftService, src fs.FS) (choice, bool) {
	if d.has("runtime") {
		return t.named(d, src)
	}
	if d.has("publish") || d.has("spa") {
		def, _ := runtimes.Lookup(stack.Static)
		return site(choice{runtime: def, label: def.Name, from: "it has publish or spa"}, src), true
	}
	def, plan, ok := runtimes.Detect(src)
	if !ok {
		t.faultf(d, "nothing in its folder shows its runtime; name one in a stack.yaml, as in services: [{name: %s, runtime: node}] (there are %s)", safetext.Name(d.name), strings.Join(runtimes.Names(), ", "))
		return choice{}, false
	}
	c := choice{runtime: def, builder: def, plan: plan, label: def.Name, from: "detected from " + plan.From}
	if def.Name == stack.Static {
		return site(c, src), true
	}
	if plan.Static && plan.Start.Line == "" && !d.has("start") {
		c.runtime, _ = runtimes.Lookup(stack.Static)
		c.label = stack.Static
	}
	return c, true
}

// lookup returns the manifest's runtime, with its version if it has one; false if it is
// left out or wrong.
func (t *detector) lookup(d *draftService) (def *runtimes.Definition, version string, ok bool) {
	if d.runtime == nil {
		return nil, "", false
	}
	def, version, ok = d.definition()
	if !ok {
		name, _, _ := strings.Cut(*d.runtime, "@")
		t.faultf(d, "%s", unknownRuntime(name))
		return nil, "", false
	}
	if strings.Contains(*d.runtime, "@") && !slices.Contains(def.Versions, version) {
		t.faultf(d, "%s", unknownVersion(def, version))
		return nil, "", false
	}
	return def, version, true
}

// definition returns the runtime that the manifest names, with the version that it has
// there, right or wrong; false if it names none that there is.
func (d *draftService) definition() (def *runtimes.Definition, version string, ok bool) {
	if d.runtime == nil {
		return nil, "", false
	}
	name, version, _ := strings.Cut(*d.runtime, "@")
	def, ok = runtimes.Lookup(name)
	return def, version, ok
}

// named chooses the manifest's runtime.
func (t *detector) named(d *draftService, src fs.FS) (choice, bool) {
	def, version, ok := t.lookup(d)
	if !ok {
		return choice{}, false
	}
	c := choice{runtime: def, builder: def, version: version, label: *d.runtime, from: t.manifest}
	if def.Name == stack.Static {
		return site(c, src), true
	}
	c.plan, _ = def.Detect(src)
	return c, true
}

// site completes the choice for a service that is explicitly static.
func site(c choice, src fs.FS) choice {
	c.builder, c.plan = runtimes.DetectSite(src)
	return c
}

func unknownRuntime(name string) string {
	names := runtimes.Names()
	meant := nearest(strings.ToLower(name), names)
	for _, def := range runtimes.All() {
		if slices.Contains(def.Aliases, strings.ToLower(name)) {
			meant = def.Name
		}
	}
	message := "unknown runtime " + safetext.Quote(name)
	if meant != "" {
		message += fmt.Sprintf(" (did you mean %s?)", meant)
	}
	return message + "; there are " + strings.Join(names, ", ")
}

func unknownVersion(def *runtimes.Definition, version string) string {
	if len(def.Versions) == 0 {
		return fmt.Sprintf("%s has no versions; write runtime: %s", def.Name, def.Name)
	}
	return fmt.Sprintf("%s has no version %s here; it has %s", def.Name, safetext.Quote(version), strings.Join(def.Versions, ", "))
}

// fillVersion decides the versions of what runs and of what builds.
func (t *detector) fillVersion(s *stack.Spec, c choice) {
	if s.Install == "" && s.Build == "" && s.IsStatic() {
		return
	}
	version, from := c.version, ""
	if version == "" {
		version, from = c.plan.Version, c.plan.VersionFrom
	}
	if version == "" {
		version, from = c.builder.Default, "default"
	}
	if from != "" {
		s.Origin["version"] = from
	}
	if !s.IsStatic() {
		s.Runtime.Version = version
	}
	if s.Install != "" || s.Build != "" {
		s.Builder = stack.Runtime{Name: c.builder.Name, Version: version}
	}
}

// has reports whether the manifest contains a field, right or wrong.
func (d *draftService) has(name string) bool {
	return !d.given[name].missing()
}

func (t *detector) faultf(d *draftService, format string, args ...any) {
	t.faults.addf("%s: %s", d.label, fmt.Sprintf(format, args...))
}

// pick chooses the manifest's command, else the plan's, and records its origin.
func (t *detector) pick(s *stack.Spec, name string, given *string, found runtimes.Command) string {
	line, from := found.Line, found.From
	if given != nil {
		line, from = strings.TrimSpace(*given), t.manifest
	}
	if line != "" || given != nil {
		s.Origin[name] = from
	}
	return line
}

// noteGiven records the manifest as the origin of the fields that it contains.
func (t *detector) noteGiven(d *draftService, s *stack.Spec, names ...string) {
	for _, name := range names {
		if d.has(name) {
			s.Origin[name] = t.manifest
		}
	}
}

// envNames lists a service's variables by name, and marks those generated by the host.
func envNames(env map[string]stack.Env) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if env[name].Generate {
			name += " (generated)"
		}
		names = append(names, name)
	}
	return names
}
