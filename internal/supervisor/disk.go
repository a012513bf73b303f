package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// What each stack takes on the disk is added up about once a minute, and after what changes it:
// of all stacks at once, in a small part of the time. The row has the result. A stack over the
// limit loses what can be made again, and is stopped if that is far from enough.

// measurement is what is known of the disk that a stack takes. Whoever measures has it alone, with
// what its processes know of their layers.
type measurement struct {
	disk  stack.Disk // as it was added up last
	of    string     // the state in which that was; see diskState
	ended bool       // nothing of the stack ran, so that nothing changes in that state
}

// measureAgain is how old a measurement of a stack that runs is before there is another one.
const measureAgain = 45 * time.Second

// measureDue measures a stack that has some volumes, unless that was done a moment ago, or nothing
// has changed since.
func (r *runner) measureDue(st *stack.Stack, volumes []engine.Volume) {
	last := r.measured.Load()
	if last != nil && (last.ended && last.of == r.diskState(st) || time.Since(last.disk.At) < measureAgain) {
		return
	}
	r.sup.jobs.Go(func() {
		if r.measuring.TryAcquire(1) {
			defer r.measuring.Release(1)
			r.measure(r.ctx, func(context.Context) ([]engine.Volume, error) { return volumes, nil })
		}
	})
}

// startMeasure begins to measure what the stack takes. If that is under way, it is done once
// more.
func (r *runner) startMeasure() {
	r.measureMore.Store(true)
	r.sup.jobs.Go(func() {
		if !r.measuring.TryAcquire(1) {
			return
		}
		defer r.measuring.Release(1)
		for r.measureMore.Swap(false) {
			r.measure(r.ctx, r.volumes)
		}
	})
}

// checkWait is how long a request waits for a new measurement of its stack.
const checkWait = 5 * time.Second

// CheckDisk returns a NoRoom error if a stack takes more of the disk than it may, so that it
// takes no deploy. What has just been deleted counts if it can be measured in a moment.
func (s *Supervisor) CheckDisk(ctx context.Context, id string) error {
	limit := s.cfg.DiskLimit
	st, err := s.cfg.Store.Get(ctx, id)
	if err != nil || !limit.IsOver(st.Disk) {
		return err
	}
	if r := s.lookup(id); r != nil {
		r.measureWithin(ctx, checkWait, func(ctx context.Context) { r.measure(ctx, r.volumes) })
		if st, err = s.cfg.Store.Get(ctx, id); err != nil {
			return err
		}
	}
	return limit.Check(st.Disk, stack.Now())
}

// measureWithin measures once, as measure does it, and gives up after a time.
func (r *runner) measureWithin(ctx context.Context, limit time.Duration, measure func(context.Context)) {
	both, cancel := endsWith(r.ctx, ctx)
	defer cancel()
	limited, end := context.WithTimeout(both, limit)
	defer end()
	if r.measuring.Acquire(limited, 1) == nil {
		defer r.measuring.Release(1)
		measure(limited)
	}
}

// volumes asks the engine for the volumes of the stack.
func (r *runner) volumes(ctx context.Context) ([]engine.Volume, error) {
	return r.cfg.Engine.Volumes(ctx, engine.Key{Stack: r.id})
}

// measure adds up what the stack takes, records it, and does what follows from that. Nobody else
// measures it meanwhile.
func (r *runner) measure(ctx context.Context, volumes func(context.Context) ([]engine.Volume, error)) {
	st, err := r.addUpAndRecord(ctx, volumes)
	if err == nil && r.cfg.DiskLimit.IsOver(st.Disk) && st.Deploying == 0 && (st.Disk.Caches > 0 || st.HasUnusedLayer()) {
		r.reclaim(ctx)
		st, err = r.addUpAndRecord(ctx, r.volumes)
	}
	if err == nil {
		err = r.stopTooLarge(ctx, st)
	}
	if err != nil && ctx.Err() == nil && stack.KindOf(err) == 0 {
		r.log.Info("what a stack takes on the disk is not known; trying again", "error", err)
	}
}

// stopTooLarge stops a stack that takes far more than it may.
func (r *runner) stopTooLarge(ctx context.Context, st *stack.Stack) error {
	reason := r.cfg.DiskLimit.StopReason(st.Disk)
	if reason == "" || st.Status != stack.Live && st.Status != stack.Building {
		return nil
	}
	return r.sup.Stop(ctx, r.id, reason)
}

// addUpAndRecord adds up what the stack takes, and returns the row that has it.
func (r *runner) addUpAndRecord(ctx context.Context, list func(context.Context) ([]engine.Volume, error)) (*stack.Stack, error) {
	idle, _ := ask(ctx, r, func(l *loop) bool { return l.isIdle() })
	st, err := r.cfg.Store.Get(ctx, r.id)
	if err != nil {
		return nil, err
	}
	m := &measurement{of: r.diskState(st), ended: idle && st.Status != stack.Live && st.Status != stack.Building}
	volumes, err := list(ctx)
	if err == nil {
		m.disk, err = r.addUp(ctx, st, m.of, volumes)
	}
	if err != nil {
		return nil, err
	}
	m.disk.At = stack.Now()
	r.measured.Store(m)
	if r.isNews(st.Disk, m.disk) {
		var told string
		if limit := r.cfg.DiskLimit; limit.IsOver(m.disk) && !limit.IsOver(st.Disk) {
			told = limit.Tell(m.disk)
		}
		err = r.cfg.Store.SetDisk(ctx, r.id, m.disk, told, store.ByOwner(r.cfg.Node, r.epoch))
	}
	st.Disk = m.disk
	return st, err
}

// recordAgain is how old a measurement in the row is before one like it is recorded.
const recordAgain = 10 * time.Minute

// isNews reports whether a measurement is to be recorded: it differs from the one that the row
// has by more than 1%, or about the limit, or that is old.
func (r *runner) isNews(had, has stack.Disk) bool {
	const share = 100
	limit, a, b := r.cfg.DiskLimit, had.Total(), has.Total()
	return has.At.Sub(had.At) >= recordAgain || max(a-b, b-a) > min(a, b)/share ||
		limit.IsOver(had) != limit.IsOver(has) || limit.StopReason(had) == "" != (limit.StopReason(has) == "")
}

// diskState names all that the measurement of a stack depends on but what its programs write.
func (r *runner) diskState(st *stack.Stack) string {
	return fmt.Sprint(st.Status, st.Attempt, st.Deploying, st.CachesDropped, st.DataVolumes, keptImages(st), r.trims.Load())
}

// keptImages returns the images that the stack runs from or keeps for the next build.
func keptImages(st *stack.Stack) (refs []string) {
	for i := range st.Generation.Services {
		s := &st.Generation.Services[i]
		layer := st.Layers[s.Spec.Name]
		refs = append(refs, s.Image, layer.Image, layer.Source.Image)
	}
	return slices.DeleteFunc(refs, func(ref string) bool { return ref == "" })
}

// keptFolders returns the folders of the source of the served generation, and of its sites.
func (r *runner) keptFolders(st *stack.Stack) (folders []string) {
	if name := st.Generation.Source.Folder; name != "" {
		folders = append(folders, r.cfg.Dir.Source(r.id, name))
	}
	for i := range st.Generation.Services {
		if s := &st.Generation.Services[i]; s.Site != 0 {
			folders = append(folders, r.cfg.Dir.Site(r.id, s.Spec.Name, s.Site))
		}
	}
	return folders
}

// addUp adds up what the stack, which has some volumes, takes in a state.
func (r *runner) addUp(ctx context.Context, st *stack.Stack, state string, volumes []engine.Volume) (d stack.Disk, err error) {
	last := r.measured.Load()
	known := last != nil && last.of == state
	if known {
		d.Images, d.Files, d.Caches = last.disk.Images, last.disk.Files, last.disk.Caches
	} else if d.Images, err = r.cfg.Engine.ImagesSize(ctx, keptImages(st)); err != nil {
		return d, err
	}
	d.Data = map[string]int64{}
	err = r.sup.turns.Do(ctx, func(step func() error) error {
		if !known {
			for _, folder := range r.keptFolders(st) {
				size, err := r.cfg.Dir.Size(folder, step)
				if err != nil {
					return err
				}
				d.Files += size
			}
		}
		for _, v := range volumes {
			_, isData := v.Key.DataNumber(v.Name)
			if known && !isData || !isNeeded(st, v, volumes) {
				continue
			}
			size, err := r.cfg.Engine.VolumeSize(v.Name, step)
			switch {
			case errors.Is(err, engine.ErrNotFound): // it has just been removed, or cannot be seen
			case err != nil:
				return err
			case isData:
				d.Data[v.Key.Service] += size
			default:
				d.Caches += size
			}
		}
		return nil
	})
	if err == nil {
		d.Layers, err = r.layersSize(ctx)
	}
	if err != nil {
		return d, err
	}
	return d, r.addSnapshots(ctx, st, &d)
}

// layersSize returns what the served processes have written beside their data, as far as the machine
// shows it.
func (r *runner) layersSize(ctx context.Context) (bytes int64, err error) {
	g := r.serving()
	if g == nil {
		return 0, nil
	}
	for _, p := range g.allProcesses() {
		size, err := p.layerSize(ctx)
		switch {
		case errors.Is(err, engine.ErrNotFound), errors.Is(err, engine.ErrHidden): // it has just been removed, or cannot be seen
		case err != nil:
			return 0, err
		}
		bytes += size
	}
	return bytes, nil
}

// layerSize adds up what the process has written beside its data. The engine is asked once.
func (p *process) layerSize(ctx context.Context) (bytes int64, err error) {
	if p.layer == nil {
		p.layer, err = p.cfg.Engine.LayerSize(ctx, p.id)
		if errors.Is(err, engine.ErrHidden) { // it stays so
			p.layer, err = func(func() error) (int64, error) { return 0, engine.ErrHidden }, nil
		}
		if err != nil {
			return 0, err
		}
	}
	err = p.gen.runner.sup.turns.Do(ctx, func(step func() error) (err error) {
		bytes, err = p.layer(step)
		return err
	})
	return bytes, err
}

// addSnapshots adds the data of services that is in their snapshots.
func (r *runner) addSnapshots(ctx context.Context, st *stack.Stack, d *stack.Disk) error {
	for i := range st.Generation.Services {
		name := st.Generation.Services[i].Spec.Name
		if _, ok := d.Data[name]; ok || st.Generation.Services[i].Spec.IsStatic() {
			continue
		}
		size, err := r.cfg.Engine.ImagesSize(ctx, []string{dataKey(st, name).Snapshot()})
		if err != nil {
			return err
		}
		if size > 0 {
			d.Data[name] = size
		}
	}
	return nil
}

// DataSize returns how many bytes the data of a service took when that was added up last by this
// server.
func (s *Supervisor) DataSize(id, service string) (bytes int64, at time.Time, ok bool) {
	r := s.lookup(id)
	if r == nil {
		return 0, at, false
	}
	m := r.measured.Load()
	if m == nil {
		return 0, at, false
	}
	bytes, ok = m.disk.Data[service]
	return bytes, m.disk.At, ok
}
