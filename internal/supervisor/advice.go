package supervisor

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/stack"
)

// withNeededHints returns the spec with those of its hints whose variable nothing sets.
func (g *generation) withNeededHints(s stack.Spec) stack.Spec {
	env := g.environment().Process(&s)
	s.Hints = maps.Clone(s.Hints)
	maps.DeleteFunc(s.Hints, func(variable, _ string) bool { return env[variable] != "" })
	return s
}

// buildsWithoutDatabases is said of a build that looked for a database.
const buildsWithoutDatabases = "the databases of a stack are not up during its first build, and no build gets their addresses and passwords: do what needs a database in release, which finds it up, or when the program starts"

// withAdvice returns why a deploy failed, with what to do if it failed for lack of a
// database.
func (d *deployment) withAdvice(cause error) error {
	fault, ok := errors.AsType[*stack.Error](cause)
	at := d.gen.progress.current()
	i := slices.IndexFunc(d.gen.made.Services, func(s stack.Service) bool { return s.Spec.Name == at.Service })
	if !ok || fault.Kind != stack.Unprocessable || i < 0 {
		return cause
	}
	spec := d.gen.withNeededHints(d.gen.made.Services[i].Spec)
	lines := []string{fault.Detail}
	building := at.Phase == stack.PhaseInstall || at.Phase == stack.PhaseBuild
	if building && d.gen.usesDatabase(&spec) && looksForDatabase(fault.Detail, spec.Name, d.gen.made.Services) {
		lines = append(lines, buildsWithoutDatabases)
	}
	for _, variable := range slices.Sorted(maps.Keys(spec.Hints)) {
		lines = append(lines, spec.Hints[variable])
	}
	return stack.NewError(fault.Kind, strings.Join(lines, "\n"))
}

// connectionFaults are parts of what libraries say that find no database.
var connectionFaults = []string{"econnrefused", "enotfound", "eai_again", "connection refused", "could not connect", "could not translate host", "name resolution", "no such host"}

// looksForDatabase reports whether the error of a build is about a database among services.
func looksForDatabase(text, service string, services []stack.Service) bool {
	lower := strings.ToLower(text)
	says := func(part string) bool { return strings.Contains(lower, part) }
	return slices.ContainsFunc(connectionFaults, says) || slices.ContainsFunc(services, func(s stack.Service) bool {
		db := s.Spec.Database()
		return db != nil && s.Spec.Name != service && strings.Contains(text, db.URL)
	})
}
