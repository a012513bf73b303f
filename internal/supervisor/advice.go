package supervisor

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
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
	if building && d.gen.made.UsesDatabase(&spec) && looksForDatabase(fault.Detail, d.gen.made.Services) {
		lines = append(lines, buildsWithoutDatabases)
	}
	for _, variable := range slices.Sorted(maps.Keys(spec.Hints)) {
		lines = append(lines, spec.Hints[variable])
	}
	return stack.NewError(fault.Kind, strings.Join(lines, "\n"))
}

// connectionFault matches a part of what libraries say that find no host.
var connectionFault = regexp.MustCompile(`(?i)econnrefused|enotfound|eai_again|connection refused|could not connect|could not translate|name resolution|no such host|unknown host`)

// looksForDatabase reports whether the error of a build is about a database among services: it
// names the variable of its address, its port, or its name beside such a fault.
func looksForDatabase(text string, services []stack.Service) bool {
	return slices.ContainsFunc(services, func(s stack.Service) bool {
		db := s.Spec.Database()
		if db == nil {
			return false
		}
		name := regexp.MustCompile(`\b` + regexp.QuoteMeta(s.Spec.Name) + `\b`)
		return strings.Contains(text, db.URL) || strings.Contains(text, fmt.Sprintf(":%d", db.Port)) ||
			slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return connectionFault.MatchString(line) && name.MatchString(line) })
	})
}
