// Package usage measures what the services of stacks serve and use, and keeps it for 30 days
// in a database of its own: a small file, which may be lost. What goes wrong here is logged,
// and harms nothing else.
//
// Every 15 seconds the Recorder takes what the proxy has counted, reads the control groups of
// the processes, and writes a point for each service. Points are merged into steps of 5
// minutes and of an hour, and removed when they are too old. The sizes of data directories are
// added up elsewhere.
//
// Code in this package touches its own database file, and no others. It asks the engine only
// where a container is.
package usage

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// Process is a container of a service that is served.
type Process struct {
	Key       engine.Key // of the service, and of its data volume
	Container string     // id
}

// series names the points of one service.
type series struct{ stack, service string }

func (p Process) series() series { return series{p.Key.Stack, p.Key.Service} }

// measurer is engine.Measures.Measure.
type measurer = func(ctx context.Context, container string) (read func() (engine.Usage, error), err error)

type eventReader = func(ctx context.Context, id string, since time.Time, types ...stack.EventType) ([]stack.Event, error)

// Size is how large a data directory was.
type Size struct {
	Bytes int64
	At    time.Time // when it was added up
}

// Config is what a Recorder works with.
type Config struct {
	Path string // of the database's file

	// Traffic returns what was counted since the last call, by stack and service.
	Traffic   func() map[string]map[string]*proxy.Counts
	Processes func() []Process
	Measure   measurer
	// Size returns how large the data directory of a service was when that was added up last;
	// false if it was not.
	Size func(stack, service string) (Size, bool)
	// Events returns the events of a stack from a time on that are of some types.
	Events eventReader
	// Gone reports whether a stack was deleted, so that its points go.
	Gone func(ctx context.Context, id string) (bool, error)

	Ceilings Ceilings // of every service

	Log *slog.Logger
}

// Recorder measures and records.
type Recorder struct {
	cfg    Config
	file   *file
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	ended  sync.Once // see End

	turn   sync.Mutex           // held while a step is recorded
	gauges map[string]*gauge    // by container
	latest map[series]*Point    // of the last step, as far as it was measured
	sized  map[series]time.Time // when the size that was recorded last was added up
	stacks map[string]bool      // that the last step has points of
	left   []string             // stacks that it has none of, unlike the one before
	seen   map[series]bool      // the services with points since they were merged last
	merged time.Time            // when that was
	lately map[string]*lately   // by stack
}

// New returns a Recorder, which does nothing before Start. Without its database it records
// nothing, and tries again.
func New(cfg Config) *Recorder {
	r := &Recorder{cfg: cfg, file: &file{path: cfg.Path, log: cfg.Log}, gauges: map[string]*gauge{}, seen: map[series]bool{}, lately: map[string]*lately{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Start begins to measure.
func (r *Recorder) Start() {
	r.file.open()
	r.work.Go(r.run)
}

// run records each step when it ends.
func (r *Recorder) run() {
	r.skip()
	r.loadLately(time.Now())
	for {
		at := time.Now().Truncate(Finest.Length)
		if !pause.For(r.ctx, time.Until(at.Add(Finest.Length))) {
			return
		}
		r.record(at)
		r.maintain(at.Add(Finest.Length))
	}
}

// skip measures what processes have used so far, which is none of the first step.
func (r *Recorder) skip() {
	r.turn.Lock()
	defer r.turn.Unlock()
	r.measure(time.Now())
}

// End records the step under way, which the next Recorder goes on with. What was recorded can
// still be read.
func (r *Recorder) End() {
	r.ended.Do(func() {
		r.cancel()
		r.work.Wait()
		r.record(time.Now().Truncate(Finest.Length))
	})
}

// Close is End, and closes the database.
func (r *Recorder) Close() {
	r.End()
	r.file.close()
}

// record measures, and adds the result to the step that begins at a time.
func (r *Recorder) record(at time.Time) {
	r.turn.Lock()
	defer r.turn.Unlock()
	points := r.measure(time.Now())
	r.latest = points
	before := r.stacks
	r.stacks = map[string]bool{}
	for s, p := range points {
		p.At = at.Unix()
		r.stacks[s.stack] = true
		delete(before, s.stack)
		r.seen[s] = true
		r.addLately(s.stack, p.At, p.Requests())
	}
	r.left = slices.AppendSeq(r.left, maps.Keys(before))
	r.forgetLately(at)
	r.file.add(points)
}
