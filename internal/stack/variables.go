package stack

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/safetext"
)

// Variables are the variables that are set outside the manifest, by service and name.
// Those of the service "" are for all services. They win over the manifest's, and a
// service's own over those of all (docs/manifest.md, "Environment"). A service that is
// not deployed any more keeps its own, like its data.
type Variables map[string]map[string]Env

// Limits of the variables of a service, the manifest's and those set outside it together
// (docs/api.md, "Stack size"). Sizes are in bytes.
const (
	MaxEnvValue = 32 << 10
	MaxEnvNames = 200
	MaxEnvSize  = 256 << 10 // names and values
	maxSetSize  = 2 << 20   // all variables of a stack that are set outside the manifest, names and values
)

// Origins of a variable, as the API names them.
const (
	FromManifest  = "manifest"
	FromSet       = "set"
	FromGenerated = "generated"
)

// Given is a variable that the owner of a stack gives to a service, without its value.
type Given struct {
	Service   string // "" for all
	Name      string
	From      string
	ChangedAt time.Time // zero if it was deployed before this was recorded
}

// Given returns the variables that the generation's services are given: those for all,
// then those of each service in the manifest's order, then those kept for services of
// before. One of the manifest that a set one replaces is not among them.
func (g *Generation) Given() []Given {
	given := g.Variables.list("")
	var names []string
	for i := range g.Services {
		names = append(names, g.Services[i].Spec.Name)
		given = append(given, g.givenTo(&g.Services[i].Spec)...)
	}
	for _, service := range slices.Sorted(maps.Keys(g.Variables)) {
		if service != "" && !slices.Contains(names, service) {
			given = append(given, g.Variables.list(service)...)
		}
	}
	return given
}

// givenTo returns what a service is given by the manifest and by its own variables.
func (g *Generation) givenTo(s *Spec) []Given {
	given := g.Variables.list(s.Name)
	for name, value := range s.Env {
		if g.Variables.replaces(s.Name, name) {
			continue
		}
		from := FromManifest
		if value.Generate {
			from = FromGenerated
		}
		given = append(given, Given{s.Name, name, from, value.ChangedAt})
	}
	slices.SortFunc(given, func(a, b Given) int { return cmp.Compare(a.Name, b.Name) })
	return given
}

// list returns the variables that are set for one service, sorted by name.
func (v Variables) list(service string) []Given {
	given := []Given{}
	for _, name := range slices.Sorted(maps.Keys(v[service])) {
		given = append(given, Given{service, name, FromSet, v[service][name].ChangedAt})
	}
	return given
}

// replaces reports whether a variable of a service is set, for it or for all.
func (v Variables) replaces(service, name string) bool {
	_, own := v[service][name]
	_, all := v[""][name]
	return own || all
}

// env returns the variables that a service is given, by name.
func (g *Generation) env(s *Spec) map[string]Env {
	env := map[string]Env{}
	if s.Database() != nil {
		return env // its settings are the host's
	}
	maps.Copy(env, s.Env)
	maps.Copy(env, g.Variables[""])
	maps.Copy(env, g.Variables[s.Name])
	return env
}

// with returns the variables after a change: the values by service and name, where nil
// unsets a variable.
func (v Variables) with(values map[string]map[string]*string, now time.Time) Variables {
	after := Variables{}
	for service, set := range v {
		after[service] = maps.Clone(set)
	}
	for service, change := range values {
		if after[service] == nil {
			after[service] = map[string]Env{}
		}
		for name, value := range change {
			before, there := after[service][name]
			switch {
			case value == nil:
				delete(after[service], name)
			case !there || before.Value != *value:
				after[service][name] = Env{Value: *value, ChangedAt: now}
			}
		}
	}
	maps.DeleteFunc(after, func(_ string, set map[string]Env) bool { return len(set) == 0 })
	return after
}

// equal reports whether two sets hold the same variables with the same values.
func (v Variables) equal(other Variables) bool {
	return maps.EqualFunc(v, other, func(a, b map[string]Env) bool { return maps.EqualFunc(a, b, Env.equal) })
}

// size returns the bytes of all names and values.
func (v Variables) size() int {
	size := 0
	for _, set := range v {
		size += envSize(set)
	}
	return size
}

func envSize(env map[string]Env) int {
	size := 0
	for name, value := range env {
		size += len(name) + len(value.Value)
	}
	return size
}

// equal reports whether two variables get the same value.
func (e Env) equal(other Env) bool { return e.Value == other.Value && e.Generate == other.Generate }

// date records when each variable of services got its value: a variable that the served
// generation has from the manifest too keeps its time.
func (g *Generation) date(services []Service, now time.Time) {
	for i := range services {
		spec := &services[i].Spec
		var before map[string]Env
		if at := slices.IndexFunc(g.Services, func(s Service) bool { return s.Spec.Name == spec.Name }); at >= 0 {
			before = g.Services[at].Spec.Env
		}
		for name, value := range spec.Env {
			value.ChangedAt = now
			if was, there := before[name]; there && was.equal(value) {
				value.ChangedAt = was.ChangedAt
			}
			spec.Env[name] = value
		}
	}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// EnvFault returns what is wrong with a variable by itself, as a sentence that begins
// with its name; "" if nothing is.
func EnvFault(name string, value Env) string {
	switch {
	case !envName.MatchString(name):
		return safetext.Quote(name) + " is not the name of a variable; begin with a letter or _ and continue with letters, digits and _"
	case strings.ContainsRune(value.Value, 0):
		return safetext.Name(name) + " holds a NUL character, which a variable cannot"
	case len(value.Value) > MaxEnvValue:
		return fmt.Sprintf("%s has %d bytes; a value has at most %d KiB, so put larger ones into a file", safetext.Name(name), len(value.Value), MaxEnvValue>>10)
	case name == "PORT" && portNumber(value.Value) == 0:
		return "PORT is not a whole number from 1 to 65535"
	}
	return ""
}

// EnvsFault returns what is wrong with the variables of one service together, as the end
// of a sentence; "" if nothing is.
func EnvsFault(env map[string]Env) string {
	switch size := envSize(env); {
	case len(env) > MaxEnvNames:
		return fmt.Sprintf("%d variables; a service has at most %d", len(env), MaxEnvNames)
	case size > MaxEnvSize:
		return fmt.Sprintf("%d bytes of variables; the names and values of a service have at most %d KiB", size, MaxEnvSize>>10)
	}
	return ""
}

// portNumber returns the number of a port; 0 if the text is not one.
func portNumber(text string) int {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 1<<16 {
		return n
	}
	return 0
}

// ListenPort returns the port that the process of a service listens on.
func (g *Generation) ListenPort(s *Spec) int {
	if db := s.Database(); db != nil {
		return db.Port
	}
	return cmp.Or(
		portNumber(g.Variables[s.Name]["PORT"].Value), portNumber(g.Variables[""]["PORT"].Value),
		s.Port, portNumber(s.Env["PORT"].Value), defaultPort)
}

// internalURL returns the address of the process for the other services of the stack.
func (g *Generation) internalURL(s *Spec) string {
	return "http://" + s.Name + ":" + strconv.Itoa(g.ListenPort(s))
}
