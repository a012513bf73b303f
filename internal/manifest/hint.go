package manifest

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

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
			if s.Hints == nil {
				s.Hints = map[string]string{}
			}
			s.Hints[variable] = hintText(s, services, ask, t.manifest)
		}
	}
}

// uses reports whether a service uses a database of a runtime.
func uses(s *stack.Spec, services []stack.Spec, runtime string) bool {
	return slices.ContainsFunc(services, func(other stack.Spec) bool {
		return other.Runtime.Name == runtime && slices.Contains(s.DependsOn, other.Name)
	})
}

// hintText says what to add to the manifest.
func hintText(s *stack.Spec, services []stack.Spec, ask runtimes.Ask, manifest string) string {
	name := "db"
	for n := 1; slices.ContainsFunc(services, func(other stack.Spec) bool { return other.Name == name }); n++ {
		if name = ask.Definition.Name; n > 1 {
			name += strconv.Itoa(n)
		}
	}
	return fmt.Sprintf("%s looks as if it needed %s (%s in %s, %s in %s); this adds one to %s:\nservices:\n  - name: %s\n  - {name: %s, runtime: %s}",
		s.Name, ask.Definition.Database.Title, ask.Driver, ask.DriverFrom, ask.Definition.Database.URL, ask.From, manifestFile(manifest), s.Name, name, ask.Definition.Name)
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
