package builder

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// work is the build of a service that runs commands or a process.
type work struct {
	builder *Builder
	cfg     *Config
	job     Job
	base    string
	plan    plan
	result  *Result
	boxes   []*box // the containers that it has made
}

// do makes what the service needs, in as few containers as the plan allows.
func (w *work) do(ctx context.Context) error {
	if w.plan.isLayered() && !w.plan.taken {
		if err := w.install(ctx); err != nil {
			return err
		}
	}
	layered := w.plan.isLayered()
	w.result.Unlayered = w.plan.layer.Inputs == nil
	switch {
	case w.job.Spec.Build == "" && (layered || w.plan.taken):
		w.result.Image = w.plan.layer.Image
		w.result.Copied, w.result.Installed = layered, w.plan.inputs.Files
		return nil
	case layered || w.plan.taken:
		return w.goOn(ctx)
	default:
		return w.finish(ctx, w.box(w.job.key().Build(), w.base, everything))
	}
}

// goOn runs the build command in a container of the layer.
func (w *work) goOn(ctx context.Context) error {
	image, files, err := w.builder.beginBuild(ctx, &w.job, w.plan.layer, w.base)
	if err != nil {
		return err
	}
	return w.finish(ctx, w.box(w.job.key().Build(), image, files))
}

// box returns a container that is not made yet.
func (w *work) box(name, image string, files selection) *box {
	x := &box{cfg: w.cfg, job: w.job, name: name, base: w.base, image: image, bare: image == w.base, files: files}
	w.boxes = append(w.boxes, x)
	return x
}

// install makes the layer, in a container that has only what install reads, unless it
// turns out that install may have looked for more.
func (w *work) install(ctx context.Context) error {
	x := w.box(w.job.key().Install(), w.base, only(append(w.plan.inputs.Files, w.job.Spec.Root)))
	x.runs = w.job.Spec.Install != ""
	if err := x.open(ctx); err != nil {
		return err
	}
	begun := time.Now()
	err := x.runStep(ctx, stack.PhaseInstall, w.job.Spec.Install)
	if w.plan.inputs.Unlisted {
		err = w.look(ctx, x, err, time.Since(begun))
	}
	if err != nil || w.plan.inputs.Whole != "" {
		return err
	}
	if err := x.commit(ctx, w.plan.layer.Image); err != nil {
		return err
	}
	return w.keep(ctx, w.plan.layer)
}

// look looks in the container whether an install script of a dependency may have missed
// the source, and makes install run again with it then; also after an error, unless
// another run would take too long.
func (w *work) look(ctx context.Context, x *box, failure error, took time.Duration) error {
	if failure != nil && (stack.KindOf(failure) != stack.Unprocessable || took >= w.cfg.Timeout) {
		return failure
	}
	why := "it failed without the rest of it"
	if failure == nil {
		reader, err := x.findReader(ctx)
		if err != nil || reader == "" {
			return err
		}
		why = reader + " has an install script"
	}
	w.plan.seeWhole(why)
	fmt.Fprintln(w.job.Log, w.plan.describe(w.job, ""))
	return nil
}

// keep records a layer.
func (w *work) keep(ctx context.Context, layer stack.Layer) error {
	err := w.job.Keep(ctx, layer)
	failpoint.Here("layer-kept")
	return err
}

// finish runs the commands that are left in a container, and keeps their results.
func (w *work) finish(ctx context.Context, x *box) error {
	x.runs = w.job.Spec.Install != "" || w.job.Spec.Build != ""
	if err := x.open(ctx); err != nil {
		return err
	}
	if !w.plan.isLayered() && !w.plan.taken {
		if err := x.runStep(ctx, stack.PhaseInstall, w.job.Spec.Install); err != nil {
			return err
		}
		if err := w.keepCached(ctx, x); err != nil {
			return err
		}
	}
	if err := x.runStep(ctx, stack.PhaseBuild, w.job.Spec.Build); err != nil {
		return err
	}
	if w.job.Spec.IsStatic() {
		w.result.Site = w.job.Attempt
		return x.publish(ctx)
	}
	w.result.Image = w.job.image()
	if err := x.commit(ctx, w.result.Image); err != nil || w.plan.layer.Image != w.result.Image {
		return err
	}
	return w.keep(ctx, w.plan.layer) // of the whole source
}

// keepCached records that what install leaves, if it does anything, is in the build cache,
// unless it has changed files of the source as well; or that it needs the whole source.
func (w *work) keepCached(ctx context.Context, x *box) error {
	if w.plan.layer.Inputs == nil || w.plan.layer.Image != "" {
		return nil
	}
	if w.plan.layer.Whole == "" {
		if same, err := x.hasFiles(ctx, w.plan.inputs.Files); err != nil || !same {
			return err
		}
	}
	return w.keep(ctx, w.plan.layer)
}

// cleanUp removes the containers, with whatever still runs in them.
func (w *work) cleanUp() {
	for _, x := range w.boxes {
		x.removeContainer()
	}
}
