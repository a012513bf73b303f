package builder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/lastlines"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// Config configures a Builder.
type Config struct {
	Engine  engine.Driver
	Slots   int               // builds at the same time, server-wide
	Timeout time.Duration     // of each command and of taking a site out, separately
	Env     map[string]string // package hosts, given to every command and base image
	CA      []byte            // PEM bundle that commands and base images trust besides their own; nil for none
	Memory  int64             // bytes a build may use; 0 for no ceiling
	Pids    int64             // processes a build may have at once

	DiskFloor int64 // bytes that an image leaves free

	CacheMax int64 // bytes that the build caches of a service may take; see TrimCache

	Sites archive.Limits // of a published folder
	Log   *slog.Logger

	Bases Bases // keeps base images for other nodes; nil without a registry

	LayerKey []byte // of the hashes of what install commands can see

	// Observe is called after each build with its result: ok, failed or stopped. It may
	// be nil.
	Observe func(runtime, result string, took time.Duration)
}

// Bases keeps base images in a registry.
type Bases interface {
	// FetchBase brings one from there. The error is engine.ErrNotFound if it is not there.
	FetchBase(ctx context.Context, ref string) error
	// OfferBase has one put there, unless it is there, without waiting for that.
	OfferBase(ref string)
}

// Builder builds services, a limited number at a time.
type Builder struct {
	cfg    Config
	queue  *fair.Queue
	making sync.Map // a *semaphore.Weighted of one for each image that is made, by reference
}

// slotKept is how long after another's build a client that builds leaves the last free
// slot to others.
const slotKept = time.Minute

// New returns a Builder.
func New(cfg Config) *Builder {
	b := &Builder{cfg: cfg, queue: fair.NewKeepingQueue(cfg.Slots, slotKept)}
	if b.cfg.Observe == nil {
		b.cfg.Observe = func(string, string, time.Duration) {}
	}
	return b
}

// Queue returns how many builds have a slot and how many wait for one.
func (b *Builder) Queue() (running, waiting int) { return b.queue.State() }

// Job is one service to build.
type Job struct {
	Stack      *stack.Stack
	Spec       *stack.Spec
	Generation int
	Attempt    int                         // numbers what the build makes; a taken over part has the number of an earlier one
	Source     string                      // folder of the source; see package source
	Digest     string                      // of the source
	Others     []string                    // folders of the other services in its tree
	Site       string                      // path of the folder that a static service publishes; nothing is there yet
	Network    func(context.Context) error // creates the network of the generation's builds when it is first needed
	Env        map[string]string           // of every command
	Log        io.Writer                   // the build log
	Begin      func(stack.Phase)           // called when the install or the build command is about to run

	Layer   stack.Layer // what was installed before; without inputs for none
	Listing string      // folder of the listing of the source that the layer has, if it has one
	// Keep records the layer that the build has made, before what follows, which may fail.
	Keep func(context.Context, stack.Layer) error

	Ready *Ready // its container, made ahead; nil for none

	Previous     Result // the served generation's result for this service; zero for none
	PreviousSite string // its published folder
}

// key identifies the owner of the build's objects.
func (j *Job) key() engine.Key {
	return engine.Key{Stack: j.Stack.ID, Service: j.Spec.Name, Generation: j.Generation}
}

// image returns the reference of the image that the build makes.
func (j *Job) image() string { return j.key().Image(j.Attempt) }

// client identifies the user of the build's slot: the account that owns the stack, or
// the network that it came from.
func (j *Job) client() string {
	return cmp.Or(j.Stack.Owner, j.Stack.Network)
}

// Result is what a build produced or took over: an image, or a folder for a static service.
type Result struct {
	Image       string // reference; "" for a static service
	Copied      bool   // the image does not have the source, apart from the Installed files
	Installed   []string
	Unlayered   bool   // it was made without a layer: one of before is of no use any more
	Site        int    // attempt that published the folder; 0 for a service with a process
	Linked      bool   // the folder is a link into the source; see the function Linked
	Fingerprint string // equal if the service would be built the same way again
}

// Build runs a job, which must have its slot, to its end. A failure that the stack's
// owner can do something about is a *stack.Error; the context's error is returned as it
// is. A failed build leaves nothing behind. After a successful one, the caller runs
// cleanUp, which can wait until the service is live.
func (b *Builder) Build(ctx context.Context, job Job) (result Result, cleanUp func(), err error) {
	fmt.Fprintf(job.Log, "== attempt %d\n== build %s (%s) gen %d\n", job.Attempt, job.Spec.Name, job.Spec.Label, job.Generation)
	begun := time.Now()
	result, cleanUp, err = b.build(ctx, job)
	b.cfg.Observe(job.Spec.Runtime.Name, outcome(ctx, err), time.Since(begun))
	if err != nil {
		fmt.Fprintf(job.Log, "== build failed: %s\n", lastlines.Headline(reason(ctx, err)))
		return Result{}, nil, err
	}
	fmt.Fprintln(job.Log, "== build ok")
	return result, cleanUp, nil
}

// Acquire waits until a job may be built, and writes the length of the queue to its
// log. The caller must call release once, after Build. A job that runs nothing needs no
// slot.
func (b *Builder) Acquire(ctx context.Context, job Job) (release func(), err error) {
	if job.runsNothing() {
		return func() {}, nil
	}
	return b.queue.Acquire(ctx, job.client(), func(place int) {
		fmt.Fprintf(job.Log, "waiting for a build slot: place %d in line\n", place)
	})
}

// runsNothing reports whether the job only publishes a folder of the source, or is a
// database, whose image is the base image.
func (j *Job) runsNothing() bool {
	return j.Spec.Database() != nil || j.Spec.IsStatic() && !j.Spec.Builds()
}

func (b *Builder) build(ctx context.Context, job Job) (result Result, cleanUp func(), err error) {
	if job.Spec.Database() != nil {
		base, err := b.EnsureBase(ctx, job.Spec.Runtime, job.Log)
		return Result{Image: base, Fingerprint: base}, func() {}, err
	}
	if job.runsNothing() {
		return Result{Site: job.Attempt, Linked: true}, func() {}, publishSource(job)
	}
	base, err := b.EnsureBase(ctx, job.Spec.Base(), job.Log)
	if err != nil {
		return Result{}, nil, err
	}
	if result.Fingerprint, err = b.fingerprint(job, base); err != nil {
		return Result{}, nil, err
	}
	if job.Previous.Fingerprint == result.Fingerprint {
		if there, err := b.isThere(ctx, job); err != nil || there {
			fmt.Fprintln(job.Log, "nothing changed since the served generation; not built again")
			return job.Previous, func() {}, err
		}
	}
	cleanUp, err = b.make(ctx, job, base, &result)
	return result, cleanUp, err
}

// make builds a service that cannot be taken over, and fills in the result.
func (b *Builder) make(ctx context.Context, job Job, base string, result *Result) (cleanUp func(), err error) {
	w := &work{builder: b, cfg: &b.cfg, job: job, base: base, result: result}
	if w.plan, err = b.plan(ctx, job, base); err == nil {
		err = w.do(ctx)
	}
	if err != nil {
		w.cleanUp() // with the command that may still run in a container
		return nil, err
	}
	return w.cleanUp, nil
}

// BaseEnv returns the environment that a runtime gives its commands (building) and its
// processes in a folder of the source.
func BaseEnv(r stack.Runtime, root string, building bool) map[string]string {
	env := map[string]string{"HOME": home}
	if def, ok := runtimes.Lookup(r.Name); ok {
		maps.Copy(env, def.Environ(path.Join(AppDir, root), building))
	}
	return env
}

// EnvList formats an environment for the engine, sorted by name.
func EnvList(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// fault returns a failure for the stack's owner.
func fault(job Job, format string, args ...any) error {
	return stack.NewError(stack.Unprocessable, "service "+job.Spec.Name+": "+fmt.Sprintf(format, args...))
}

// outcome returns the result of a build for Observe.
func outcome(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "ok"
	case ctx.Err() != nil:
		return "stopped"
	}
	return "failed"
}

// reason returns the text of an error for the build log.
func reason(ctx context.Context, err error) string {
	var fault *stack.Error
	switch {
	case ctx.Err() != nil: // a request that was cut off may carry the cause, another service's fault
		return "stopped"
	case errors.As(err, &fault):
		return fault.Detail
	case errors.Is(err, ErrNoBase):
		return "the host could not prepare the runtime"
	}
	return "an error of the host"
}
