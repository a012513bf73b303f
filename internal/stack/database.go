package stack

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/runtimes"
)

// DependOnDatabases makes every service with a process depend on each database that no
// service of the manifest lists (docs/manifest.md, "Databases"). A service that the database
// itself has to wait for is left out.
func DependOnDatabases(specs []Spec) {
	for i := range specs {
		name := specs[i].Name
		if specs[i].Database() == nil || slices.ContainsFunc(specs, func(s Spec) bool { return s.Database() == nil && s.dependsOn(name) }) {
			continue
		}
		for j := range specs {
			if specs[j].usesDatabases() && !waitsFor(specs, name, specs[j].Name) {
				specs[j].DependsOn = append(slices.Clip(specs[j].DependsOn), name)
			}
		}
	}
}

func (s *Spec) dependsOn(name string) bool { return slices.Contains(s.DependsOn, name) }

// usesDatabases reports whether the service has a process that may use databases.
func (s *Spec) usesDatabases() bool { return !s.IsStatic() && s.Database() == nil }

// UsesDatabase reports whether a service uses any of the generation's databases.
func (g *Generation) UsesDatabase(s *Spec) bool { return len(used(s, g.specs())) > 0 }

// waitsFor reports whether a service depends on another, be it by way of others.
func waitsFor(specs []Spec, name, on string) bool {
	seen := map[string]bool{}
	for ahead := []string{name}; len(ahead) > 0; ahead = ahead[1:] {
		if ahead[0] == on {
			return true
		}
		for i := range specs {
			if specs[i].Name == ahead[0] && !seen[ahead[0]] {
				ahead = append(ahead, specs[i].DependsOn...)
			}
		}
		seen[ahead[0]] = true
	}
	return false
}

// connection returns what the services that depend on a database get of it: what libraries
// read, and the connection string under names that begin with the service's, except
// PUBLIC_URL, which is their own.
func connection(s *Spec, login runtimes.Login) map[string]string {
	db := s.Database()
	env := maps.Clone(db.Variables(login))
	url, name := env[db.URL], strings.ToUpper(s.Name)
	for _, own := range []string{name + "_" + db.URL, name + "_URL", name + "_INTERNAL_URL"} {
		if own != publicURL {
			env[own] = url
		}
	}
	return env
}

// used returns the databases that a service depends on, in the order in which it lists them.
func used(s *Spec, specs []*Spec) (databases []*Spec) {
	if !s.usesDatabases() {
		return nil
	}
	for _, name := range s.DependsOn {
		for _, other := range specs {
			if other.Name == name && other.Database() != nil {
				databases = append(databases, other)
			}
		}
	}
	return databases
}

// databases returns what the process of a service gets of the databases that it uses, or
// that of a database of itself. Of several of a kind, the first gives the plain names.
func (e *Environment) databases(s *Spec) map[string]string {
	if db := s.Database(); db != nil {
		return db.Own(e.login(s))
	}
	env := map[string]string{}
	for _, other := range slices.Backward(used(s, e.Generation.specs())) {
		maps.Copy(env, connection(other, e.login(other)))
	}
	return env
}

// specs returns the services of the generation.
func (g *Generation) specs() []*Spec {
	specs := make([]*Spec, len(g.Services))
	for i := range g.Services {
		specs[i] = &g.Services[i].Spec
	}
	return specs
}

// login returns how the services of the stack connect to a database.
func (e *Environment) login(s *Spec) runtimes.Login {
	return runtimes.Login{Host: s.Name, Port: s.Database().Port, Password: e.Stack.Secrets[databaseSecret(s)]}
}

// connectionString returns the connection string of a database.
func (e *Environment) connectionString(s *Spec) string {
	return s.Database().Variables(e.login(s))[s.Database().URL]
}

// address returns the connection string of a database, and of any other service what of
// returns.
func (e *Environment) address(s *Spec, of func(*Spec) string) string {
	if s.Database() != nil {
		return e.connectionString(s)
	}
	return of(s)
}

// namesDatabase reports whether a value refers to a database.
func (e *Environment) namesDatabase(value Env) bool {
	names := false
	expand(value.Value, func(ref string) (string, bool) {
		parts := strings.Split(ref, ".")
		names = names || len(parts) > 1 && slices.ContainsFunc(e.Generation.specs(), func(s *Spec) bool { return s.Name == parts[1] && s.Database() != nil })
		return "", true
	})
	return names
}

// CheckVariables calls fault with a sentence for each variable that a service would get from
// two others. It calls it for none while a service lacks a name.
func CheckVariables(services []Spec, fault func(sentence string)) {
	if slices.ContainsFunc(services, func(s Spec) bool { return s.Name == "" }) {
		return
	}
	all := make([]*Spec, len(services))
	for i := range services {
		all[i] = &services[i]
	}
	for _, s := range all {
		if s.usesDatabases() {
			checkVariables(s, all, fault)
		}
	}
}

func checkVariables(s *Spec, all []*Spec, fault func(sentence string)) {
	givers := map[string]string{} // services by the variable that they give
	give := func(other *Spec, variables map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			if first := givers[name]; first != "" && first != other.Name {
				fault(fmt.Sprintf("%s: it would get %s from %s and from %s; give one of them another name", whose(s.Name), name, safetext.Name(first), safetext.Name(other.Name)))
			}
			givers[name] = other.Name
		}
	}
	names := Environment{Stack: &Stack{}, Generation: &Generation{}, URLs: URLs{Base: &url.URL{}}}
	for _, other := range all {
		if other != s && other.Database() == nil {
			give(other, names.neighbour(other))
		}
	}
	kinds := map[string]bool{} // of which one gives the plain names
	for _, other := range used(s, all) {
		variables := connection(other, runtimes.Login{})
		if kinds[other.Runtime.Name] {
			own := strings.ToUpper(other.Name) + "_"
			maps.DeleteFunc(variables, func(name, _ string) bool { return !strings.HasPrefix(name, own) })
		}
		kinds[other.Runtime.Name] = true
		give(other, variables)
	}
}

// databaseSecret returns the key in Stack.Secrets of the password of a database, which no
// generated variable can have. It also says which database made the data of the service.
func databaseSecret(s *Spec) string { return secretName(s.Name, s.Runtime.String()) }

// makePassword makes the password of a database that does not have one yet. If the data was
// another's, it is gone by now.
func (s *Stack) makePassword(database *Spec) {
	if s.Secrets[databaseSecret(database)] != "" {
		return
	}
	maps.DeleteFunc(s.Secrets, func(name, _ string) bool { return isDatabaseSecret(name, database.Name) })
	s.Secrets[databaseSecret(database)] = makeSecret()
}

// dropPasswords drops the passwords of databases that have not taken the place of a program:
// their deploy failed, and what is in the data folder is the program's.
func (s *Stack) dropPasswords() {
	maps.DeleteFunc(s.Secrets, func(name, _ string) bool {
		return slices.ContainsFunc(s.Generation.Services, func(svc Service) bool { return svc.Spec.usesDatabases() && isDatabaseSecret(name, svc.Spec.Name) })
	})
}

// DatabaseOf returns the runtime and version of the database that made the data of a
// service, as in postgres@17; "" if none did.
func (s *Stack) DatabaseOf(service string) string {
	if svc := s.Service(service); svc != nil && svc.Spec.usesDatabases() {
		return "" // a deploy that would change that is under way, or has failed
	}
	for name := range s.Secrets {
		if isDatabaseSecret(name, service) {
			return strings.TrimPrefix(name, secretName(service, ""))
		}
	}
	return ""
}

func isDatabaseSecret(name, service string) bool {
	return strings.HasPrefix(name, secretName(service, "")) && strings.Contains(name, "@")
}
