package api

import (
	"fmt"
	"maps"
	"mime"
	"os"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// validateRetry is the Retry-After of the limit on validations.
const validateRetry = time.Minute

// planView is what a create of the same source would build and run.
type planView struct {
	Valid    bool          `json:"valid"`
	Faults   []string      `json:"faults"` // each says what to change; none when valid
	Name     string        `json:"name"`
	TTL      *float64      `json:"ttl"` // seconds; null when neither the request nor the manifest says
	Services []plannedView `json:"services"`
}

// plannedView is the plan of one service. A field that does not apply to it is
// left out.
type plannedView struct {
	Name        string   `json:"name"`
	Runtime     string   `json:"runtime"`
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

	From map[string]string `json:"from"` // field to where its value came from
}

// validate answers POST /v0/validate: what a create would make of the source.
// Nothing is built and nothing is kept. What is wrong with the manifest or the
// source is in the answer; an upload that cannot be read is an error, as it is
// for a create.
func (a *API) validate(c *fiber.Ctx) error {
	allowed := a.Validations.Allow(a.base, a.network(c))
	a.showQuota(c, a.Validations)
	if !allowed {
		return stack.NewTooMany(validateRetry)
	}
	dir, err := a.Host.TempDir()
	if err != nil {
		return fmt.Errorf("make a folder for the upload: %w", err)
	}
	defer a.removeAll(dir)
	v, err := a.plan(c, dir)
	if err != nil {
		return err
	}
	return c.JSON(v)
}

// plan reads the upload into dir and resolves it.
func (a *API) plan(c *fiber.Ctx, dir string) (planView, error) {
	f, err := a.sourceOf(c, dir)
	if err != nil {
		return planView{}, err
	}
	u, err := a.tree(f, dir)
	if err != nil {
		return planView{}, err
	}
	root, err := os.OpenRoot(u.project)
	if err != nil {
		return planView{}, fmt.Errorf("read the upload: %w", err)
	}
	defer root.Close()
	m, faults := source.Check(root.FS(), u.name, f.request())
	if _, present := bearer(c); !present && m.TTL != 0 {
		now := stack.Now()
		if err := a.Limits.CheckTTL(m.TTL, now, now); err != nil {
			faults = append(faults, err.Error())
		}
	}
	return viewPlan(m, faults), nil
}

// sourceOf reads a form, as a create has it, or a list of files in JSON.
func (a *API) sourceOf(c *fiber.Ctx, dir string) (form, error) {
	media, _, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err == nil && media == fiber.MIMEApplicationJSON {
		return a.files(c, dir)
	}
	return a.upload(c, createForm, dir)
}

// viewPlan leaves out services of which not even the runtime is known.
func viewPlan(m *stack.Manifest, faults []string) planView {
	v := planView{Valid: len(faults) == 0, Faults: faults, Name: m.Name, Services: []plannedView{}}
	if v.Valid {
		v.Faults = []string{}
	}
	if m.TTL != 0 {
		v.TTL = orNull(m.TTL.Seconds())
	}
	for i := range m.Services {
		if m.Services[i].Runtime.Name != "" {
			v.Services = append(v.Services, viewPlanned(&m.Services[i]))
		}
	}
	return v
}

func viewPlanned(s *stack.Spec) plannedView {
	v := plannedView{
		Name: s.Name, Runtime: s.Runtime.Name, Version: s.Runtime.Version, Root: s.Root,
		Install: s.Install, Build: s.Build, Release: s.Release, Start: s.Start,
		Port: s.Port, Health: s.Health, Env: slices.Sorted(maps.Keys(s.Env)), DependsOn: s.DependsOn,
		Strategy: string(s.Strategy), StopTimeout: s.StopTimeout.Seconds(),
		Publish: s.Publish, SPA: string(s.SPA), From: s.Origin,
	}
	if s.IsStatic() && s.Builds() {
		v.BuiltWith = s.Builder.String()
	}
	return v
}
