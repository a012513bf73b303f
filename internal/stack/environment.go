package stack

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// DataDir is the folder of a service's data in its containers, $DATA_DIR.
const DataDir = "/data"

// defaultPort is $PORT if the manifest does not choose one. All services can share it,
// since each has its own address.
const defaultPort = 8080

// Environment builds the variables of the services of one generation of a stack
// (docs/manifest.md, "Environment").
type Environment struct {
	Stack      *Stack // for its id, name and secrets
	Generation *Generation
	URLs       URLs
}

// Build returns the variables of a service's install and build commands: those of its
// process without what has a password of a database, some of them replaced as the source's
// framework requires.
func (e *Environment) Build(s *Spec) map[string]string {
	env, given := e.ofHost(s), e.Generation.env(s)
	for key, value := range given {
		if !e.namesDatabase(value) {
			env[key] = e.value(s, key, value)
		}
	}
	for key, value := range s.BuildEnv {
		if _, replaced := given[key]; !replaced {
			env[key] = value
		}
	}
	return env
}

// Process returns the variables of a service's process: the host's, then the
// manifest's, then those set outside it.
func (e *Environment) Process(s *Spec) map[string]string {
	env := e.ofHost(s)
	maps.Copy(env, e.databases(s))
	for key, value := range e.Generation.env(s) {
		env[key] = e.value(s, key, value)
	}
	return env
}

// ofHost returns the variables that the host gives to every command of a service.
func (e *Environment) ofHost(s *Spec) map[string]string {
	env := map[string]string{
		"PORT":         strconv.Itoa(e.Generation.ListenPort(s)),
		"HOST":         "0.0.0.0",
		"DATA_DIR":     DataDir,
		"STACK_ID":     e.Stack.ID,
		"STACK_NAME":   e.Stack.Name,
		"SERVICE_NAME": s.Name,
		"GENERATION":   strconv.Itoa(e.Generation.Number),
		publicURL:      e.publicURL(s),
	}
	for i := range e.Generation.Services {
		if other := &e.Generation.Services[i].Spec; other.Name != s.Name && other.Database() == nil {
			maps.Copy(env, e.neighbour(other))
		}
	}
	return env
}

// value returns the value of a variable that a service is given.
func (e *Environment) value(s *Spec, key string, given Env) string {
	if given.Generate {
		return e.Stack.Secrets[secretName(s.Name, key)]
	}
	return expand(given.Value, e.reference)
}

// publicURL is the variable of a process with its service's own address.
const publicURL = "PUBLIC_URL"

// neighbour returns what a service learns about another service of its stack: its
// address inside the stack and its public address. It omits the public one if programs
// expect something else under that name.
func (e *Environment) neighbour(other *Spec) map[string]string {
	env := map[string]string{}
	name := strings.ToUpper(other.Name)
	if !slices.Contains(takenNames, other.Name) {
		env[name+"_URL"] = e.publicURL(other)
	}
	if !other.IsStatic() {
		env[name+"_INTERNAL_URL"] = e.Generation.internalURL(other)
	}
	return env
}

// publicURL returns the URL of a service for programs: that of its primary domain, if the
// generation has one for it.
func (e *Environment) publicURL(s *Spec) string {
	for i := range e.Generation.Services {
		if service := &e.Generation.Services[i]; service.Spec.Name == s.Name && service.PublicHost != "" {
			return e.URLs.OfHost(service.PublicHost)
		}
	}
	return e.URLs.Service(e.Stack, s.Name)
}

// takenNames lists the names of services whose <NAME>_URL means something else:
// programs take DATABASE_URL and the like for a database's address, and PUBLIC_URL is
// the service's own.
var takenNames = []string{"database", "redis", "mongo", "postgres", "mysql", "public"}
