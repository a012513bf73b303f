package stack

import (
	"slices"
	"time"

	"github.com/berth-host/berth/runtimes"
)

// MaxServices is the greatest number of services in a stack (docs/api.md, "Stack
// size").
const MaxServices = 4

// Static is the name of the runtime without a process: the host serves the files.
const Static = "static"

// Manifest is what a deploy asks for, with every default resolved from the source
// (docs/manifest.md, "Fields of the stack").
type Manifest struct {
	Name       string
	TTL        time.Duration // 0 when the manifest has none
	ClaimEmail string
	Webhook    string
	Services   []Spec
}

// Runtime names a runtime and its version, as in node@22.
type Runtime struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // "" for static
}

// String returns the identifier as a manifest writes it: node@22, static.
func (r Runtime) String() string {
	if r.Version == "" {
		return r.Name
	}
	return r.Name + "@" + r.Version
}

// Spec describes how one service is built and run. It is complete: nothing in it is
// looked up in the source again.
type Spec struct {
	Name    string  `json:"name"`
	Label   string  `json:"label"`   // the runtime as the manifest wrote it (node, node@22); what the API shows
	Runtime Runtime `json:"runtime"` // static, or what runs the process
	Builder Runtime `json:"builder"` // what runs the commands: Runtime, or a language for a static site that is built; zero when there is no command

	Root    string `json:"root"` // folder of the archive, slash-separated, "." for all of it
	Install string `json:"install,omitempty"`
	Build   string `json:"build,omitempty"`
	Release string `json:"release,omitempty"`
	Start   string `json:"start,omitempty"`

	Port        int            `json:"port,omitempty"`   // 0: the host chooses
	Health      string         `json:"health,omitempty"` // path that must answer 2xx or 3xx; "": any answer at / counts
	Env         map[string]Env `json:"-"`                // sealed at rest
	DependsOn   []string       `json:"depends_on,omitempty"`
	Strategy    Strategy       `json:"strategy,omitempty"`
	StopTimeout time.Duration  `json:"stop_timeout,omitempty"`

	// BuildEnv replaces variables set by the host for install and build; a key in Env
	// wins.
	BuildEnv map[string]string `json:"build_env,omitempty"`

	Publish string `json:"publish,omitempty"` // static: folder to serve below Root; "" means find it after the build
	SPA     SPA    `json:"spa,omitempty"`

	Paths map[string]Path `json:"paths,omitempty"` // by path, as CleanPath returns it

	// Origin maps a resolved field to where it came from ("runtime": ".nvmrc", "start":
	// "package.json scripts.start"), for the plan in the build log.
	Origin map[string]string `json:"origin,omitempty"`
	// Hints say which database to add, by the variable that it would set, if the source looks
	// as if it needed one that the stack does not have.
	Hints map[string]string `json:"hints,omitempty"`
	// Lost lists what the archive has and the source does not, for the same plan.
	Lost []Lost `json:"lost,omitempty"`
}

// Lost is an entry of an archive that was left out when it was unpacked.
type Lost struct {
	Entry  string `json:"entry"` // its name, quoted, and of a link its target; or how many more there are
	Reason string `json:"reason,omitempty"`
}

// String returns the log line about the entry.
func (l Lost) String() string {
	if l.Reason == "" {
		return l.Entry
	}
	return l.Entry + "  # " + l.Reason
}

// Env is the value of one variable: a literal, or {generate: true} of a manifest.
type Env struct {
	Value     string
	Generate  bool
	ChangedAt time.Time `json:",omitzero"` // when it got this value; zero if that was not recorded
}

// Strategy is how a new generation takes over from the old one.
type Strategy string

// Overlap starts the new process beside the old one; Recreate stops the old one first.
const (
	Overlap  Strategy = "overlap"
	Recreate Strategy = "recreate"
)

// SPA chooses whether a path without a file gets index.html.
type SPA string

// SPAAuto means yes if index.html is the only page and there is no 404.html.
const (
	SPAAuto SPA = "auto"
	SPAOn   SPA = "true"
	SPAOff  SPA = "false"
)

// IsStatic reports whether the host itself serves the service's files.
func (s *Spec) IsStatic() bool { return s.Runtime.Name == Static }

// Database returns what the host knows about the database, or nil if the service is not
// one.
func (s *Spec) Database() *runtimes.Database {
	if def, ok := runtimes.Lookup(s.Runtime.Name); ok {
		return def.Database
	}
	return nil
}

// Base returns the runtime whose base image the service is built on.
func (s *Spec) Base() Runtime {
	if s.Builds() {
		return s.Builder
	}
	return s.Runtime
}

// Builds reports whether any command runs before the service can start.
func (s *Spec) Builds() bool { return s.Builder.Name != "" }

// InOrder returns the indexes of specs so that each follows what it depends on,
// otherwise in the manifest's order. Validation of the manifest has already refused
// circles and unknown names.
func InOrder(specs []Spec) []int {
	order := make([]int, 0, len(specs))
	placed := map[string]bool{}
	for len(order) < len(specs) {
		before := len(order)
		for i := range specs {
			waits := slices.ContainsFunc(specs[i].DependsOn, func(d string) bool { return !placed[d] })
			if !waits && !placed[specs[i].Name] {
				placed[specs[i].Name] = true
				order = append(order, i)
			}
		}
		if len(order) == before {
			break // a circle: validation never lets one through
		}
	}
	return order
}
