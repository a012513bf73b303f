package manifest

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// hint adds to each service the databases that its source looks as if it needed, and that it
// does not use.
func (t *detector) hint(services []stack.Spec) {
	for i := range services {
		s := &services[i]
		src, err := fs.Sub(t.root, s.Root)
		if err != nil || s.Runtime.Name == "" || s.IsStatic() || s.Database() != nil {
			continue
		}
		for _, ask := range runtimes.Asks(src) {
			variable := ask.Definition.Database.URL
			if _, set := s.Env[variable]; set || uses(s, services, ask.Definition.Name) {
				continue
			}
			text := hintText(s, services, ask, t.manifest)
			if text == "" {
				continue
			}
			if s.Hints == nil {
				s.Hints = map[string]string{}
			}
			s.Hints[variable] = text
		}
	}
}

// uses reports whether a service uses a database of a runtime.
func uses(s *stack.Spec, services []stack.Spec, runtime string) bool {
	return slices.ContainsFunc(services, func(other stack.Spec) bool {
		return other.Runtime.Name == runtime && slices.Contains(s.DependsOn, other.Name)
	})
}

// hintText says what to add to the manifest: depends_on for a database that is there, or else
// a new one. It returns "" if the stack has no room for a new one.
func hintText(s *stack.Spec, services []stack.Spec, ask runtimes.Ask, manifest string) string {
	why := fmt.Sprintf("%s looks as if it needed %s (%s in %s, %s in %s)",
		s.Name, ask.Definition.Database.Title, ask.Driver, ask.DriverFrom, ask.Definition.Database.URL, ask.From)
	at := slices.IndexFunc(services, func(other stack.Spec) bool { return other.Runtime.Name == ask.Definition.Name })
	switch {
	case at >= 0:
		depends := append(slices.Clone(s.DependsOn), services[at].Name)
		return fmt.Sprintf("%s; this lets it use %s, in %s:\nservices:\n  - {name: %s, depends_on: [%s]}",
			why, services[at].Name, manifestFile(manifest), s.Name, strings.Join(depends, ", "))
	case len(services) >= stack.MaxServices:
		return ""
	}
	return fmt.Sprintf("%s; this adds one to %s:\nservices:\n  - name: %s\n  - {name: %s, runtime: %s}",
		why, manifestFile(manifest), s.Name, newName(services, ask.Definition), ask.Definition.Name)
}

// newName returns a name for a new database that no service has.
func newName(services []stack.Spec, def *runtimes.Definition) string {
	name := def.Database.Usual
	for n := 1; slices.ContainsFunc(services, func(other stack.Spec) bool { return other.Name == name }); n++ {
		if name = def.Name; n > 1 {
			name += strconv.Itoa(n)
		}
	}
	return name
}

// manifestFile returns the file in which a manifest is best kept.
func manifestFile(name string) string {
	if slices.Contains(Files, name) {
		return name
	}
	return Files[0]
}

// hints returns the hints of a service, sorted by variable.
func hints(s *stack.Spec) (texts []string) {
	for _, variable := range slices.Sorted(maps.Keys(s.Hints)) {
		texts = append(texts, s.Hints[variable])
	}
	return texts
}
