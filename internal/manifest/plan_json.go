package manifest

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Plan is what a create of a source would build and run: the answer of POST
// /v0/validate.
type Plan struct {
	Valid    bool             `json:"valid"`
	Faults   []string         `json:"faults"` // each says what to change; none when valid
	Name     string           `json:"name"`
	TTL      *float64         `json:"ttl"` // seconds; null when neither the request nor the manifest says
	Services []PlannedService `json:"services"`
}

// PlannedService is the plan of one service, without the fields that do not apply to
// it.
type PlannedService struct {
	Name        string   `json:"name"`
	Runtime     string   `json:"runtime"` // "" where a manifest alone leaves it to the source
	Version     string   `json:"version,omitempty"`
	BuiltWith   string   `json:"built_with,omitempty"` // of a static service that is built
	Root        string   `json:"root"`
	Install     string   `json:"install,omitempty"`
	Build       string   `json:"build,omitempty"`
	Release     string   `json:"release,omitempty"`
	Start       string   `json:"start,omitempty"`
	Port        int      `json:"port,omitempty"` // left out where the host chooses
	Health      string   `json:"health,omitempty"`
	Env         []string `json:"env,omitempty"` // names only
	DependsOn   []string `json:"depends_on,omitempty"`
	Strategy    string   `json:"strategy,omitempty"`
	StopTimeout float64  `json:"stop_timeout,omitempty"` // seconds
	Publish     string   `json:"publish,omitempty"`      // left out where it is found after the build
	SPA         string   `json:"spa,omitempty"`

	Paths map[string]stack.Path `json:"paths,omitempty"`

	From map[string]string `json:"from"` // field to where its value came from

	// Hints has, by the variable that it would set, which database to add to the manifest
	// if the service looks as if it needed one that it does not have.
	Hints map[string]string `json:"hints,omitempty"`
}

// NewPlan returns the plan for the result of Check or CheckAlone. It leaves out services
// whose runtime is unknown.
func NewPlan(m *stack.Manifest, faults []string) *Plan {
	p := &Plan{Valid: len(faults) == 0, Faults: append([]string{}, faults...), Name: m.Name, Services: []PlannedService{}}
	if m.TTL != 0 {
		p.TTL = new(m.TTL.Seconds())
	}
	for i := range m.Services {
		if m.Services[i].Origin["runtime"] != "" {
			p.Services = append(p.Services, planService(&m.Services[i]))
		}
	}
	return p
}

func planService(s *stack.Spec) PlannedService {
	p := PlannedService{
		Name: s.Name, Runtime: s.Runtime.Name, Version: s.Runtime.Version, Root: s.Root,
		Install: s.Install, Build: s.Build, Release: s.Release, Start: s.Start,
		Port: s.Port, Health: s.Health, Env: slices.Sorted(maps.Keys(s.Env)), DependsOn: s.DependsOn,
		Strategy: string(s.Strategy), StopTimeout: s.StopTimeout.Seconds(),
		Publish: s.Publish, SPA: string(s.SPA), Paths: s.Paths, From: s.Origin, Hints: s.Hints,
	}
	if s.IsStatic() && s.Builds() {
		p.BuiltWith = s.Builder.String()
	}
	return p
}

// Specs returns the services for WritePlan; a plan does not have the values of
// variables.
func (p *Plan) Specs() []stack.Spec {
	specs := make([]stack.Spec, len(p.Services))
	for i := range p.Services {
		specs[i] = p.Services[i].spec()
	}
	return specs
}

func (p *PlannedService) spec() stack.Spec {
	env := map[string]stack.Env{}
	for _, name := range p.Env {
		env[name] = stack.Env{}
	}
	builder, version, _ := strings.Cut(p.BuiltWith, "@")
	return stack.Spec{
		Name: p.Name, Runtime: stack.Runtime{Name: p.Runtime, Version: p.Version},
		Builder: stack.Runtime{Name: builder, Version: version}, Root: p.Root,
		Install: p.Install, Build: p.Build, Release: p.Release, Start: p.Start,
		Port: p.Port, Health: p.Health, Env: env, DependsOn: p.DependsOn,
		Strategy: stack.Strategy(p.Strategy), StopTimeout: time.Duration(p.StopTimeout * float64(time.Second)),
		Publish: p.Publish, SPA: stack.SPA(p.SPA), Paths: p.Paths, Origin: p.From, Hints: p.Hints,
	}
}
