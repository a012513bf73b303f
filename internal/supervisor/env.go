package supervisor

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/stack"
)

// defaultPort is what $PORT is when the manifest chooses none. Every service
// has an address of its own, so they can all have the same.
const defaultPort = 8080

// port is the one that a service's process listens on.
func port(s *stack.Spec) int {
	if s.Port != 0 {
		return s.Port
	}
	if n, err := strconv.Atoi(s.Env["PORT"].Value); err == nil && n > 0 && n < 1<<16 {
		return n
	}
	return defaultPort
}

// buildEnv is what the commands install and build of a service get: env, with
// what the source's framework needs in place of the host's variables.
func (g *generation) buildEnv(s *stack.Service) map[string]string {
	env := g.env(s)
	for key, value := range s.Spec.BuildEnv {
		if _, given := s.Spec.Env[key]; !given {
			env[key] = value
		}
	}
	return env
}

// processEnv is the environment of a service's process.
func (g *generation) processEnv(s *stack.Service) map[string]string {
	env := builder.BaseEnv(s.Spec.Runtime, s.Spec.Root, false)
	maps.Copy(env, g.env(s))
	return env
}

// env is what every command and process of a service gets: the host's
// variables, then those of the manifest (docs/manifest.md, "Environment").
func (g *generation) env(s *stack.Service) map[string]string {
	env := map[string]string{
		"PORT":         strconv.Itoa(port(&s.Spec)),
		"HOST":         "0.0.0.0",
		"DATA_DIR":     builder.DataDir,
		"STACK_ID":     g.st.ID,
		"STACK_NAME":   g.st.Name,
		"SERVICE_NAME": s.Spec.Name,
		"GENERATION":   strconv.Itoa(g.number),
		"PUBLIC_URL":   g.cfg.URLs.Service(g.st, s.Spec.Name),
	}
	for i := range g.services {
		if other := &g.services[i]; other.Spec.Name != s.Spec.Name {
			g.addNeighbour(env, other)
		}
	}
	for key, value := range s.Spec.Env {
		if value.Generate {
			env[key] = g.st.Secrets[stack.SecretName(s.Spec.Name, key)]
			continue
		}
		env[key] = manifest.Expand(value.Value, g.reference)
	}
	return env
}

// addNeighbour tells a service where another one of its stack is, in both forms
// unless the public one's name is taken.
func (g *generation) addNeighbour(env map[string]string, other *stack.Service) {
	name := strings.ToUpper(other.Spec.Name)
	if !slices.Contains(takenNames, other.Spec.Name) {
		env[name+"_URL"] = g.cfg.URLs.Service(g.st, other.Spec.Name)
	}
	if !other.Spec.IsStatic() {
		env[name+"_INTERNAL_URL"] = internalURL(other)
	}
}

// takenNames are names of services whose <NAME>_URL says something else: programs
// take DATABASE_URL and its like for a database's address, and PUBLIC_URL is the
// service's own.
var takenNames = []string{"database", "redis", "mongo", "postgres", "mysql", "public"}

// internalURL is where a process is reached by the others of its stack.
func internalURL(s *stack.Service) string {
	return "http://" + s.Spec.Name + ":" + strconv.Itoa(port(&s.Spec))
}

// reference gives the value of ${services.<name>.<property>} and
// ${stack.<property>}. The manifest's validation let only known ones through.
func (g *generation) reference(ref string) (string, bool) {
	parts := strings.Split(ref, ".")
	switch {
	case ref == "stack.id":
		return g.st.ID, true
	case ref == "stack.name":
		return g.st.Name, true
	case len(parts) != 3 || parts[0] != "services":
		return "", false
	}
	for i := range g.services {
		if g.services[i].Spec.Name == parts[1] {
			return g.property(&g.services[i], parts[2])
		}
	}
	return "", false
}

func (g *generation) property(s *stack.Service, property string) (string, bool) {
	switch property {
	case "url":
		return g.cfg.URLs.Service(g.st, s.Spec.Name), true
	case "internal_url":
		return internalURL(s), true
	case "host":
		return s.Spec.Name, true
	case "port":
		return strconv.Itoa(port(&s.Spec)), true
	}
	return "", false
}
