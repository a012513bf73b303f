package cli

import (
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/manifest"
)

func (a *app) checkCommand() *cobra.Command {
	var o origin
	cmd := &cobra.Command{
		Use:   "check [DIR]",
		Short: "Show how a folder would be built and run, and what is wrong with it",
		Long:  "Show how a folder would be built and run, where each value comes from, and every fault (exit code 4). The server checks the folder; if it does not answer, berth checks it on this machine.",
	}
	cmd.Flags().StringVar(&o.manifest, "manifest", "", "manifest to use instead of the folder's")
	return a.onFolder(cmd, &o, func(ctx context.Context) error { return a.check(ctx, o) })
}

func (a *app) check(ctx context.Context, o origin) error {
	archive, err := a.archive(ctx, o)
	if err != nil {
		return err
	}
	defer archive.Close()
	plan, err := a.plan(ctx, archive)
	if err != nil {
		return err
	}
	if a.json {
		err = a.ui.printJSON(plan)
	} else {
		err = manifest.WritePlan(a.ui.out, plan.Specs()...)
	}
	if err != nil || plan.Valid {
		return err
	}
	faults := strings.Join(plan.Faults, "\n")
	return &failure{
		code: exitInvalid, detail: faults,
		next: archive.aside("not included: ", "; pass --include PATTERN to include it", archive.missed(faults)),
	}
}

// plan asks the server, or resolves the source here if no server can be asked.
func (a *app) plan(ctx context.Context, archive *spool) (*manifest.Plan, error) {
	c, _, err := a.account()
	if err != nil {
		return nil, err
	}
	if a.hasManageToken() {
		c = c.WithToken("") // the server does not accept a stack's token here
	}
	plan, err := c.Validate(ctx, archive.form)
	switch {
	case err == nil:
		return plan, nil
	case client.IsUnreachable(err):
		a.ui.sayf("%v; checking the folder on this machine", err)
	case !client.IsStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed):
		return nil, err
	}
	src, err := archive.unpack(ctx)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return src.plan(manifest.Request{Manifest: archive.form.Manifest, ManifestName: archive.form.ManifestName}), nil
}

// plan returns what the server would answer.
func (t *tree) plan(req manifest.Request) *manifest.Plan {
	return manifest.NewPlan(manifest.Check(t.fs(), t.single, req))
}
