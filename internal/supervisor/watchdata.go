package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// In a cluster a snapshot of the data of each stack that runs can be kept in the archive, so
// that another node can begin with it: one every Config.SnapshotEvery if the data has changed
// since the last, and one soon after each deploy, since an earlier generation's data may not
// be what the program expects. It is a job to which any other comes first. The processes of
// the stack are paused while the files are copied to this node's disk, pauseMax at most; data
// for which that is too short is copied while the stack runs, and the row says so. From the
// disk the copy goes to the archive, and the row names it once all of it is there.

const (
	dataLook   = 5 * time.Second // between looks for stacks that are due
	dataCopies = 4               // snapshots at once
)

// watchData has snapshots taken of the stacks that are due.
func (s *Supervisor) watchData() {
	for pause.For(s.ctx, min(dataLook, s.cfg.SnapshotEvery)) {
		for _, r := range s.everyRunner() {
			if !r.isSnapshotDue() || s.copying.Acquire(s.ctx, 1) != nil {
				continue
			}
			s.jobs.Go(func() {
				defer s.copying.Release(1)
				r.doYielding(s.ctx, r.snapshot)
			})
		}
	}
}

// isSnapshotDue reports whether to look at the data of the stack: it was not for a while, or
// not since the generation is served. A stack that has never had data needs no snapshot.
func (r *runner) isSnapshotDue() bool {
	g := r.serving()
	if g == nil || len(g.allProcesses()) == 0 || !r.snapped.Load() && r.sup.isEmpty(r.id) {
		return false
	}
	return r.snapshotOf.Load() != int64(g.made.Attempt) || time.Now().UnixNano() >= r.snapshotDue.Load()
}

// isEmpty reports whether a stack had no data when EmptyStacks looked last.
func (s *Supervisor) isEmpty(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, empty := s.empty[id]
	return empty
}

// snapshot is the job that takes a snapshot of the stack if one is due. If another job comes
// first, it is due again at once, and after an error at the next period.
func (r *runner) snapshot(ctx context.Context) {
	g := r.serving()
	if g == nil || !r.keeping.CompareAndSwap(false, true) {
		return
	}
	defer r.keeping.Store(false)
	r.copying.Store(true)
	defer r.copying.Store(false)
	r.snapshotOf.Store(int64(g.made.Attempt))
	r.snapshotDue.Store(time.Now().Add(r.cfg.SnapshotEvery).UnixNano())
	err := r.takeSnapshot(ctx, g)
	switch {
	case ctx.Err() != nil:
		r.snapshotDue.Store(0)
	case err != nil:
		r.log.Warn("no snapshot of the stack's data taken; trying again at the next period", "error", err)
	}
}

// takeSnapshot takes a snapshot of a generation, if it is served and its data has changed
// since the last.
func (r *runner) takeSnapshot(ctx context.Context, g *generation) error {
	st, err := r.get(ctx)
	if err != nil || st.Status != stack.Live || st.Deploying != 0 || st.Generation.Attempt != g.made.Attempt {
		return err
	}
	if due := st.Snapshot.At.Add(r.cfg.SnapshotEvery); st.HasSnapshot() && time.Now().Before(due) { // an earlier server took it
		r.snapshotDue.Store(due.UnixNano())
		return nil
	}
	c := &dataCopy{runner: r, gen: g, st: st, helpers: map[string]string{}}
	changed, err := c.look(ctx)
	if err != nil || !changed {
		return err
	}
	defer c.removeHelpers()
	if err := c.makeHelpers(ctx); err != nil {
		return err
	}
	if err := c.put(ctx); err != nil {
		return err
	}
	failpoint.Here("snapshot-put")
	return r.recordSnapshot(ctx, c.next)
}

// recordSnapshot makes the row name a snapshot, and removes the one before from the archive.
func (r *runner) recordSnapshot(ctx context.Context, next stack.Snapshot) error {
	r.snapped.Store(true) // before others can know
	st, err := r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		if st.Status != stack.Live || st.Generation.Attempt != next.Attempt {
			return nil, stack.NewError(stack.Conflict, "the stack has changed since the snapshot was begun")
		}
		st.Snapshot = next
		return nil, nil
	})
	if err != nil {
		return err
	}
	failpoint.Here("snapshot-recorded")
	r.log.Info("snapshot of the stack's data taken", "bytes", next.Bytes, "in_motion", next.InMotion)
	return r.cfg.Archive.Keep(ctx, st, isApart)
}

// How long the processes of a stack may be paused for a snapshot, and the part of it in which
// they are let go on.
const (
	pauseMax   = 2 * time.Second
	resumeTime = 200 * time.Millisecond
)

// whilePaused calls do while the processes of the generation are paused, for a time at most.
// The context of do ends when they are to go on, which they do then even if do goes on. The
// error is that of the context if do was not done in time.
func (g *generation) whilePaused(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit-resumeTime)
	defer cancel()
	processes := g.allProcesses()
	g.runner.hasPaused.Store(true)
	g.runner.pausing.Store(true)
	err := sideBySide(processes, func(p *process) error { return p.pause(limited) })
	failpoint.Here("data-paused")
	done := make(chan error, 1)
	go func() {
		if err == nil {
			err = do(limited)
		}
		done <- err
	}()
	select {
	case err := <-done:
		g.resume(processes)
		return err
	case <-limited.Done():
		g.resume(processes)
		<-done
		return limited.Err()
	}
}

// How often a process is paused that does not freeze, and the time between two attempts.
const (
	freezeTries = 3
	freezeAgain = 200 * time.Millisecond
)

// pause pauses the process. One that does not run has crashed, and waits to be started again.
func (p *process) pause(ctx context.Context) (err error) {
	for try := range freezeTries {
		if try > 0 && !pause.For(ctx, freezeAgain) {
			break
		}
		if err = p.cfg.Engine.Pause(ctx, p.id); !errors.Is(err, engine.ErrNotFrozen) {
			break
		}
	}
	if errors.Is(err, engine.ErrNotRunning) {
		return nil
	}
	return err
}

// resume lets paused processes go on, also if the server stops. What fails is tried again by
// unpauseLate, or by the next server.
func (g *generation) resume(processes []*process) {
	defer g.runner.pausing.Store(false)
	err := sideBySide(processes, func(p *process) error { return g.cfg.Engine.Unpause(context.WithoutCancel(g.runner.ctx), p.id) })
	if err != nil {
		g.log.Error("stack still paused after its data was copied; trying again", "error", err)
	}
}

// unpause lets the containers of an inventory go on that an earlier server has paused.
func (s *Supervisor) unpause(ctx context.Context, there inventory) {
	for id, o := range there {
		for i := range o.Containers {
			c := &o.Containers[i]
			if !c.Paused {
				continue
			}
			if err := s.cfg.Engine.Unpause(ctx, c.ID); err != nil {
				s.cfg.Log.Warn("container that an earlier server paused does not go on; it is started again", "stack", id, "error", err)
				continue
			}
			s.cfg.Log.Info("container that an earlier server paused goes on", "stack", id, "container", c.Name)
			c.Paused = false
		}
	}
}

// unpauseLate lets a container of the stack go on that is paused while nothing is copied:
// that failed before, or the engine carried out a request to pause it after the server had
// given it up.
func (r *runner) unpauseLate(container string) {
	if !r.hasPaused.Load() || r.pausing.Load() {
		return
	}
	r.sup.jobs.Go(func() {
		if err := r.cfg.Engine.Unpause(r.ctx, container); err != nil && r.ctx.Err() == nil {
			r.log.Warn("paused container does not go on; trying again", "error", err)
		}
	})
}
