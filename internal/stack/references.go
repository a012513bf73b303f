package stack

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-host/berth/internal/safetext"
)

// property is what a reference in a value of env may name, with the text that replaces
// it.
type property struct {
	name  string
	value func(*Environment, *Spec) string
}

type properties []property

var (
	// serviceProperties are the properties of a service, as in ${services.api.url}.
	serviceProperties = properties{
		{"url", func(e *Environment, s *Spec) string { return e.address(s, e.publicURL) }},
		{"internal_url", func(e *Environment, s *Spec) string { return e.address(s, e.Generation.internalURL) }},
		{"host", func(_ *Environment, s *Spec) string { return s.Name }},
		{"port", func(e *Environment, s *Spec) string { return strconv.Itoa(e.Generation.ListenPort(s)) }},
	}
	// stackProperties are the properties of the stack, as in ${stack.id}.
	stackProperties = properties{
		{"id", func(e *Environment, _ *Spec) string { return e.Stack.ID }},
		{"name", func(e *Environment, _ *Spec) string { return e.Stack.Name }},
	}
)

func (ps properties) names() []string {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.name
	}
	return names
}

func (ps properties) value(name string, e *Environment, s *Spec) (string, bool) {
	for _, p := range ps {
		if p.name == name {
			return p.value(e, s), true
		}
	}
	return "", false
}

// reference returns the text that replaces a reference; false if CheckReferences would
// fault it.
func (e *Environment) reference(ref string) (string, bool) {
	parts := strings.Split(ref, ".")
	if parts[0] == "stack" && len(parts) == 2 {
		return stackProperties.value(parts[1], e, nil)
	}
	if parts[0] != "services" || len(parts) != 3 {
		return "", false
	}
	for i := range e.Generation.Services {
		if s := &e.Generation.Services[i].Spec; s.Name == parts[1] {
			return serviceProperties.value(parts[2], e, s)
		}
	}
	return "", false
}

// CheckReferences calls fault with a sentence for each reference in the env of services
// that names something missing. It calls it for none while a service lacks a name,
// which may be the one meant.
func CheckReferences(services []Spec, fault func(sentence string)) {
	if slices.ContainsFunc(services, func(s Spec) bool { return s.Name == "" }) {
		return
	}
	for i := range services {
		checkReferences(whose(services[i].Name), services[i].Env, services[i:i+1], services, fault)
	}
}

// checkReferences is CheckReferences for one set of variables, which whose names and the
// services of users get.
func checkReferences(whose string, env map[string]Env, users, services []Spec, fault func(sentence string)) {
	names := make([]string, len(services))
	for i := range services {
		names[i] = services[i].Name
	}
	for _, key := range slices.Sorted(maps.Keys(env)) {
		expand(env[key].Value, func(ref string) (string, bool) {
			if why := referenceFault(ref, users, services, names); why != "" {
				fault(fmt.Sprintf("%s: env %s: ${%s} %s", whose, safetext.Name(key), safetext.Name(ref), why))
			}
			return "", true
		})
	}
}

func referenceFault(ref string, users, services []Spec, names []string) string {
	parts := strings.Split(ref, ".")
	if parts[0] == "stack" {
		if known := stackProperties.names(); len(parts) != 2 || !slices.Contains(known, parts[1]) {
			return "does not exist; a stack has " + strings.Join(known, " and ")
		}
		return ""
	}
	i := slices.Index(names, parts[1])
	if i < 0 {
		return fmt.Sprintf("names a service that does not exist; the services are %s", strings.Join(safetext.Names(names), ", "))
	}
	if known := serviceProperties.names(); len(parts) != 3 || !slices.Contains(known, parts[2]) {
		return fmt.Sprintf("does not exist; a service has %s", strings.Join(known, ", "))
	}
	if services[i].IsStatic() && parts[2] != "url" {
		return fmt.Sprintf("does not exist: a static service has no process inside the stack; use ${services.%s.url}", parts[1])
	}
	if services[i].Database() != nil {
		return databaseFault(&services[i], users)
	}
	return ""
}

// databaseFault says why one of the services that would get it gets nothing of a database.
func databaseFault(database *Spec, users []Spec) string {
	for i := range users {
		switch user := &users[i]; {
		case user.Database() != nil: // it has no variables
		case user.IsStatic():
			return fmt.Sprintf("names a database, and %s is a static service: it has no process, and commands of a build never get a database's address", safetext.Name(user.Name))
		case !user.dependsOn(database.Name):
			return fmt.Sprintf("names a database that %s does not depend on; add %s to its depends_on", safetext.Name(user.Name), database.Name)
		}
	}
	return ""
}

// expand replaces the references in an env value. It calls vars with the text between
// the braces, "services.api.url" or "stack.id"; if that returns false the reference
// stays. $${ becomes ${, and any other $ stays as it is.
func expand(value string, vars func(ref string) (string, bool)) string {
	return references.ReplaceAllStringFunc(value, func(found string) string {
		if found == "$${" {
			return "${"
		}
		if v, ok := vars(found[len("${") : len(found)-len("}")]); ok {
			return v
		}
		return found
	})
}

// references matches $${, and what is a reference of ours, so that a wrong one is a fault
// and not plain text.
var references = regexp.MustCompile(`\$\$\{|\$\{(services|stack)\.[^}]*\}`)
