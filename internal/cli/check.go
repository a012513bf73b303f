package cli

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

func (a *app) checkCommand() *cobra.Command {
	o := origin{}
	var manifest string
	cmd := &cobra.Command{
		Use:     "check [DIR]",
		Short:   "Show how a folder would be built and run, and what is wrong with it",
		Long:    "Show how a folder would be built and run, where each answer comes from, and everything that is wrong with it (exit code 4). The server is asked; where it cannot be, the folder is looked at here.",
		GroupID: "folder",
		Args:    cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			o.path = argument(args, ".")
			return a.check(ctx, o, manifest)
		}),
	}
	cmd.Flags().StringVar(&manifest, "manifest", "", "a manifest to use in place of the folder's")
	cmd.Flags().StringArrayVar(&o.include, "include", nil, "look at what matches this pattern too, as deploy does")
	return cmd
}

func (a *app) check(ctx context.Context, o origin, manifest string) error {
	archive, err := a.archive(ctx, o)
	if err != nil {
		return err
	}
	defer archive.Close()
	form, err := archive.upload(manifest)
	if err != nil {
		return err
	}
	plan, err := a.plan(ctx, archive, form)
	if err != nil {
		return err
	}
	if a.json {
		err = a.ui.printJSON(plan)
	} else {
		err = source.WritePlan(a.ui.out, specs(plan)...)
	}
	if err != nil || plan.Valid {
		return err
	}
	return &failure{
		code: exitInvalid, detail: strings.Join(plan.Faults, "\n"),
		next: archive.aside("not looked at: ", "; --include PATTERN adds it", archive.leftOut),
	}
}

// plan asks the server, or resolves the source here when there is none that can
// be asked.
func (a *app) plan(ctx context.Context, archive *spool, form client.Upload) (*client.Plan, error) {
	c, _, err := a.account()
	if err != nil {
		return nil, err
	}
	plan, err := c.Validate(ctx, form)
	var away *client.Unreachable
	switch {
	case err == nil:
		return plan, nil
	case errors.As(err, &away):
		a.ui.sayf("%v; the folder is looked at here", err)
	case !client.IsStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed):
		return nil, err
	}
	src, err := archive.unpack(ctx)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return src.plan(source.Request{Manifest: form.Manifest, ManifestName: form.ManifestName})
}

// plan is what the server would answer.
func (t *tree) plan(req source.Request) (*client.Plan, error) {
	m, err := source.Resolve(t.fs(), t.single, req)
	var refusal *stack.Error
	if errors.As(err, &refusal) {
		return &client.Plan{Faults: strings.Split(refusal.Detail, "\n"), Services: []client.Planned{}}, nil
	}
	if err != nil {
		return nil, err
	}
	p := &client.Plan{Valid: true, Faults: []string{}, Name: m.Name}
	if seconds := m.TTL.Seconds(); seconds > 0 {
		p.TTL = &seconds
	}
	for i := range m.Services {
		p.Services = append(p.Services, planned(&m.Services[i]))
	}
	return p, nil
}

// planned is a service as the API shows it.
func planned(s *stack.Spec) client.Planned {
	p := client.Planned{
		Name: s.Name, Runtime: s.Runtime.Name, Version: s.Runtime.Version, Root: s.Root,
		Install: s.Install, Build: s.Build, Release: s.Release, Start: s.Start,
		Port: s.Port, Health: s.Health, Env: slices.Sorted(maps.Keys(s.Env)), DependsOn: s.DependsOn,
		Strategy: string(s.Strategy), StopTimeout: s.StopTimeout.Seconds(),
		Publish: s.Publish, SPA: string(s.SPA), From: s.Origin,
	}
	if s.IsStatic() && s.Builds() {
		p.BuiltWith = s.Builder.String()
	}
	return p
}

// specs are a plan's services as source.WritePlan takes them.
func specs(plan *client.Plan) []stack.Spec {
	all := make([]stack.Spec, len(plan.Services))
	for i, p := range plan.Services {
		env := map[string]stack.Env{}
		for _, name := range p.Env {
			env[name] = stack.Env{}
		}
		builder, version, _ := strings.Cut(p.BuiltWith, "@")
		all[i] = stack.Spec{
			Name: p.Name, Runtime: stack.Runtime{Name: p.Runtime, Version: p.Version},
			Builder: stack.Runtime{Name: builder, Version: version}, Root: p.Root,
			Install: p.Install, Build: p.Build, Release: p.Release, Start: p.Start,
			Port: p.Port, Health: p.Health, Env: env, DependsOn: p.DependsOn,
			Strategy: stack.Strategy(p.Strategy), StopTimeout: time.Duration(p.StopTimeout * float64(time.Second)),
			Publish: p.Publish, SPA: stack.SPA(p.SPA), Origin: p.From,
		}
	}
	return all
}
