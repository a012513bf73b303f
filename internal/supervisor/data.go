package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/hostfault"
	"github.com/berth-host/berth/internal/lastlines"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// The data of a service is replaced as a whole: a new volume is filled beside the one that
// is served, a new process is started on it in place of the old one, and one change of the
// row makes both the served ones. Whatever fails before that, the old process is started
// again on its volume, which nobody has written to meanwhile. Whichever of the two volumes the
// row does not name is a leftover.

// dataKey returns the key of a service's data volume, as the row names it.
func dataKey(st *stack.Stack, service string) engine.Key {
	return engine.Key{Stack: st.ID, Service: service, Volume: st.DataVolumes[service]}
}

// hasVolume reports whether the data volume of a key is among volumes.
func hasVolume(volumes []engine.Volume, key engine.Key) bool {
	return slices.ContainsFunc(volumes, func(v engine.Volume) bool { return v.Name == key.Data() })
}

// ReadData writes the data of a service of a live stack to w, as a tar.gz, or a database's
// dump as of one moment; files also of a failed stack. They may change meanwhile, unless its
// process is to stop for that time. After an error, what was written has no end. If the state does not allow it, the
// error is a *stack.Error and nothing was written.
func (s *Supervisor) ReadData(ctx context.Context, id, service string, stop bool, w io.Writer) error {
	st, r, end, err := s.beginTransfer(ctx, id, service, false)
	if err != nil {
		return err
	}
	defer end()
	if stop && st.Status == stack.Live && st.Service(service).Spec.Database() == nil { // a dump is of one moment anyway
		return r.doJob(ctx, func(job context.Context) error { return r.readHalted(job, ctx, service, w) })
	}
	// What is idle is tidied, and the helper is a leftover. Besides, what the row says is served
	// once the loop has done this.
	err = r.handOver(ctx, func(l *loop) { l.aside++ })
	defer r.tell(func(l *loop) { l.aside-- })
	if err != nil {
		return err
	}
	return r.readMeanwhile(ctx, service, w)
}

// ReplaceData replaces the data of a service of a live stack by a tar or tar.gz, or that of a
// database by a dump, and returns the stack once a process with it is healthy. If the process
// does not become healthy, the old data serves again, and the error is an Unprocessable
// *stack.Error. If the state does not allow it, the archive is refused, or the stack would take
// more of the disk than it may and does, the error is a *stack.Error as well, and nothing has
// changed. A failed stack stays failed with the new data. If data has a method Abort, which makes
// a Read that waits fail, what ends the stack need not wait for it.
func (s *Supervisor) ReplaceData(ctx context.Context, id, service string, data io.Reader) (*stack.Stack, error) {
	if err := s.cfg.Admission.CheckRoom(); err != nil {
		return nil, err
	}
	st, r, end, err := s.beginTransfer(ctx, id, service, true)
	if err != nil {
		return nil, err
	}
	defer end()
	if s.cfg.DiskLimit > 0 { // what has been written since the last time counts, if it can be measured in a moment
		r.measureWithin(ctx, checkWait, func(ctx context.Context) {
			_, _ = r.addUpAndRecord(ctx, r.volumes) // whose way out this may be is not stopped for it
		})
	}
	db := st.Service(service).Spec.Database()
	err = r.doJob(ctx, func(job context.Context) error {
		return r.replaceData(job, service, func(job context.Context, w io.Writer, check func(bytes int64) error) error {
			both, cancel := endsWith(job, ctx)
			defer cancel()
			if body, ok := data.(interface{ Abort() }); ok {
				defer context.AfterFunc(job, body.Abort)()
			}
			limits := archive.DataLimits{MaxBytes: s.cfg.MaxData, MaxEntries: stack.MaxDataEntries, Root: stack.DataDir, Room: check}
			if db != nil {
				return archive.CopyDump(both, w, data, archive.DumpFormat{Magic: db.Magic, HowTo: db.HowToDump}, limits)
			}
			return archive.CopyData(both, w, data, limits)
		})
	})
	if err == nil {
		r.startMeasure()
	}
	switch {
	case errors.Is(err, engine.ErrNoSpace):
		return nil, fmt.Errorf("%w: %w", hostfault.NoSpace, err)
	case errors.Is(err, errTimeRanOut):
		return nil, stack.NewError(stack.Conflict, "the stack's time ran out before all of its new data was there; claim it, then send the data again")
	case err != nil:
		return nil, err
	}
	return s.cfg.Store.Get(ctx, id)
}

// beginTransfer takes the place of a copy of a service's data, if its state allows that.
func (s *Supervisor) beginTransfer(ctx context.Context, id, service string, replace bool) (*stack.Stack, *runner, func(), error) {
	st, err := s.cfg.Store.Get(ctx, id)
	if err == nil {
		check := st.CheckDataRead
		if replace {
			check = st.CheckData
		}
		err = check(service, stack.Now())
	}
	if err != nil {
		return nil, nil, nil, err
	}
	r := s.lookup(id)
	switch {
	case r == nil:
		return nil, nil, nil, s.whyNotHere(ctx, id)
	case r.moving.Load():
		return nil, nil, nil, errMoving
	}
	end, err := r.transfers.begin(service, replace)
	return st, r, end, err
}

// readMeanwhile reads the data as long as the stack's state allows it: its end needs the volume.
func (r *runner) readMeanwhile(ctx context.Context, service string, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(r.gone()) })()
	woken, stop := r.cfg.Store.Watch(r.id)
	defer stop()
	read := make(chan error, 1)
	go func() { read <- r.readData(ctx, service, w) }()
	for {
		select {
		case err := <-read:
			return err
		case <-woken:
		}
		st, err := r.cfg.Store.Get(ctx, r.id)
		if err == nil && st.Status != stack.Live && st.Status != stack.Failed {
			cancel(stack.NewError(stack.Conflict, "the stack is no longer live"))
		}
	}
}

// readData writes the data of a service to w.
func (r *runner) readData(ctx context.Context, service string, w io.Writer) error {
	st, err := r.get(ctx)
	if err != nil {
		return err
	}
	if s := st.Service(service); s != nil && s.Spec.Database() != nil {
		return r.dump(ctx, service, w)
	}
	image, err := r.sup.helperImage(ctx, st)
	if err != nil {
		return err
	}
	err = engine.Stream(ctx, func(ctx context.Context, out io.Writer) error {
		return r.cfg.Engine.ReadData(ctx, dataKey(st, service), "", image, out)
	}, func(in io.Reader) error { return archive.PackData(w, in, engine.DataFolder, stack.DataDir) })
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, engine.ErrNotFound):
		return stack.NewError(stack.Conflict, service+" has no data: it has never run")
	}
	return err
}

// readHalted is the job that reads the data of a service while its process is stopped. The
// reading ends with the caller's context too.
func (r *runner) readHalted(job, caller context.Context, service string, w io.Writer) error {
	p, err := r.haltForData(job, service)
	if err != nil {
		return err
	}
	failpoint.Here("data-halted")
	both, cancel := endsWith(job, caller)
	defer cancel()
	err = r.readData(both, service, w)
	p.resume(job)
	return err
}

// endsWith returns a context like ctx that also ends with another one, for its cause.
func endsWith(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() { stop(); cancel(nil) }
}

// dataWriter writes data to w, and calls check now and then with how many bytes it has written.
type dataWriter func(ctx context.Context, w io.Writer, check func(bytes int64) error) error

// replaceData is the job that replaces the data of a service by what data writes.
func (r *runner) replaceData(ctx context.Context, service string, data dataWriter) error {
	st, err := r.get(ctx)
	if err != nil {
		return err
	}
	how, err := r.unpacking(ctx, st, service)
	if err != nil {
		return err
	}
	old := dataKey(st, service)
	next := old
	next.Volume++
	bytes, err := r.fillNew(ctx, st, next, how, data)
	if err != nil {
		return err
	}
	failpoint.Here("data-filled")
	longer := context.WithoutCancel(ctx)
	err = r.useData(ctx, st, service, newData{next.Volume, bytes})
	if errors.Is(err, store.ErrInDoubt) {
		_, _ = r.settle(r.settling())
		return err
	}
	unused := next
	if err == nil {
		unused = old
		if st.Status == stack.Failed {
			err = r.dropKept(longer, service)
		}
	}
	if left := r.cfg.Engine.Discard(longer, engine.Objects{Volumes: []engine.Volume{{Name: unused.Data()}}}); left != nil {
		r.log.Warn("data volume that is not used not removed; trying again later", "volume", unused.Data(), "error", left)
	}
	failpoint.Here("data-discarded")
	return err
}

// newData is a data volume that was filled.
type newData struct {
	volume int
	bytes  int64 // that its files take
}

// useData makes new data that of a service. After an error the old data is, as before.
func (r *runner) useData(ctx context.Context, st *stack.Stack, service string, next newData) error {
	if st.Status == stack.Failed { // no process has it
		_, err := r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
			st.UseData(service, next.volume, next.bytes)
			return nil, nil
		})
		failpoint.Here("data-recorded")
		return err
	}
	p, err := r.haltForData(ctx, service)
	if err != nil {
		return err
	}
	failpoint.Here("data-halted")
	return p.startOn(ctx, next)
}

// dropKept removes the snapshot and the file of a backup that a service of a failed stack may
// have. Until they are gone, the next start of the service brings them back in place of the
// volume that the row names: whatever fails before that, the data is as it was.
func (r *runner) dropKept(ctx context.Context, service string) error {
	snapshot := engine.Image{Tags: []string{engine.Key{Stack: r.id, Service: service}.Snapshot()}}
	if err := r.cfg.Engine.Discard(ctx, engine.Objects{Images: []engine.Image{snapshot}}); err != nil {
		return err
	}
	return r.cfg.Dir.RemoveBackedUp(r.id, service)
}

// fillNew fills a new volume, and returns how many bytes its files take. An archive that cannot
// be unpacked, or a dump that cannot be loaded, is an Unprocessable error.
func (r *runner) fillNew(ctx context.Context, st *stack.Stack, key engine.Key, how engine.Unpacking, data dataWriter) (bytes int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	isDump := how.Cmd != nil
	if isDump { // what a dump becomes is known only then
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for pause.For(ctx, loadedLook) {
				if _, err := r.checkFilled(st, key, isDump); err != nil {
					cancel(err)
				}
			}
		}()
		defer func() { cancel(nil); <-watched }()
	}
	err = r.cfg.Engine.UnpackData(ctx, key, how, func(ctx context.Context, w io.Writer) error {
		return data(ctx, w, func(bytes int64) error {
			if !isDump && bytes > r.cfg.DiskLimit.DataRoom(st.Disk, key.Service) {
				return r.cfg.DiskLimit.DataTooLarge(st.Disk, key.Service)
			}
			return r.cfg.Admission.CheckRoom()
		})
	})
	if err == nil {
		if bytes, err = r.checkFilled(st, key, isDump); err != nil {
			left := r.cfg.Engine.Discard(context.WithoutCancel(ctx), engine.Objects{Volumes: []engine.Volume{{Name: key.Data()}}})
			return 0, errors.Join(err, left)
		}
	}
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case errors.Is(err, engine.ErrData):
		said := strings.TrimPrefix(err.Error(), engine.ErrData.Error())
		if isDump {
			return 0, stack.NewError(stack.Unprocessable, "the dump cannot be loaded"+faultOfDump(st.Service(key.Service).Spec.Database().LoadFault, said))
		}
		return 0, stack.NewError(stack.Unprocessable, "the archive cannot be unpacked"+said)
	}
	return bytes, err
}

// faultOfDump returns what fault finds in a loader's output, or else its last line, in place
// of all that it said.
func faultOfDump(fault *regexp.Regexp, said string) string {
	_, output, printed := strings.Cut(said, "\n")
	if !printed {
		return said
	}
	if found := fault.FindStringSubmatch(output); found != nil {
		return ": " + found[1]
	}
	return ": " + output[strings.LastIndex(output, "\n")+1:]
}

// loadedLook is the time between looks at how large a database is that a dump becomes.
const loadedLook = 2 * time.Second

// checkFilled returns how many bytes the files of a new volume take. A database that is larger
// than twice what data may be once its dump is loaded is a TooLarge error: indexes and logs are in
// it, which no dump has. More than the stack has room for is a NoRoom error. What cannot be
// measured is not too large.
func (r *runner) checkFilled(st *stack.Stack, key engine.Key, isDump bool) (int64, error) {
	size, err := r.cfg.Engine.VolumeSize(key.Data(), func() error { return nil })
	switch {
	case err != nil:
		return 0, nil
	case isDump && size > 2*r.cfg.MaxData:
		return 0, stack.NewError(stack.TooLarge, fmt.Sprintf("loading the dump takes more than %s; leave tables or indexes out of it", units.HumanSize(float64(2*r.cfg.MaxData))))
	case size > r.cfg.DiskLimit.DataRoom(st.Disk, key.Service):
		return 0, r.cfg.DiskLimit.DataTooLarge(st.Disk, key.Service)
	}
	return size, nil
}

// unpacking returns how a new volume of a service is filled: of a database by its own
// program, beside the process that serves if the stack is live.
func (r *runner) unpacking(ctx context.Context, st *stack.Stack, service string) (u engine.Unpacking, err error) {
	svc := st.Service(service)
	if svc.Spec.Database() == nil {
		u.User = st.UID()
		u.Image, err = r.sup.helperImage(ctx, st)
		return u, err
	}
	if p := r.servedProcess(service); p != nil {
		return p.gen.loading(ctx, p.service)
	}
	if st.Status != stack.Failed {
		return u, errNoProcess(service)
	}
	return r.generation(st, st.Generation).loading(ctx, svc)
}

// loading returns how a new volume of a database is filled from a dump.
func (g *generation) loading(ctx context.Context, s *stack.Service) (u engine.Unpacking, err error) {
	u.User, u.Memory = g.st.UID(), g.cfg.Memory
	u.Cmd, u.Env = []string{s.Spec.Database().Load}, builder.EnvList(g.processEnv(s))
	u.Image, err = g.cfg.Builder.EnsureBase(ctx, s.Spec.Runtime, io.Discard)
	return u, err
}

// errNoProcess is the Conflict for data that is to be read or replaced while no process has it.
func errNoProcess(service string) *stack.Error { return notRunning(service, "try") }

// dump writes what is in a database to w, as its own program does.
func (r *runner) dump(ctx context.Context, service string, w io.Writer) error {
	p := r.servedProcess(service)
	if p == nil {
		return errNoProcess(service)
	}
	last := lastlines.OfOutput(dumpTail)
	code, err := r.cfg.Engine.Exec(ctx, p.id, engine.Cmd{Args: []string{p.service.Spec.Database().Dump}, Whole: true}, w, last)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		if c, lookErr := p.look(ctx); lookErr == nil && !c.Running {
			return errNoProcess(service)
		}
		return err
	case code != 0:
		return serviceError(p.service, "its data was not dumped%s", last.Phrase())
	}
	return nil
}

// dumpTail is how many bytes of the output of a failed dump its error has.
const dumpTail = 500

// haltForData stops the process of a service after its open requests, and returns it. Nobody
// watches it then, and what it left is on the disk. After an error it serves as before.
func (r *runner) haltForData(ctx context.Context, service string) (*process, error) {
	g := r.serving()
	if g == nil {
		return nil, errNoProcess(service)
	}
	p := g.unwatch(service)
	if p == nil {
		return nil, errNoProcess(service)
	}
	p.logLine("stopped for its data")
	// Before the engine is asked, so that the next server knows.
	st, err := r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) { return nil, st.HaltForData(service) })
	if err == nil {
		_, err = p.retryHung(ctx, func() error { return p.hide(ctx) })
	}
	if err == nil {
		g.setTarget(service, nil)
		r.drainAll(g.republish(st))
		_, err = p.retryHung(ctx, func() error { return p.halt(ctx) })
	}
	if err != nil {
		p.resume(ctx)
		return nil, err
	}
	return p, nil
}

// startOn starts another process in place of this one, which has been halted, with new data. If
// it does not get healthy, this one serves again, and the error is an Unprocessable with the
// reason, or a fault of the host.
func (p *process) startOn(ctx context.Context, data newData) error {
	r, name := p.gen.runner, p.service.Spec.Name
	before := p.gen.setVolume(name, data.volume)
	err := p.startNext(ctx, data)
	if err == nil {
		if err := p.cfg.Engine.Remove(context.WithoutCancel(ctx), p.id); err != nil {
			p.log.Warn("replaced process not removed; trying again later", "error", err)
		}
		return nil
	}
	p.gen.setVolume(name, before)
	if errors.Is(err, store.ErrInDoubt) { // ctx has ended
		return errors.Join(context.Cause(ctx), err)
	}
	p.resume(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if isOfHost(err) {
		return err
	}
	return stack.NewError(stack.Unprocessable, "the data was not replaced, and what was there before serves again: "+r.explain(err))
}

// startNext starts the process with the new data, and makes both the served ones.
func (p *process) startNext(ctx context.Context, data newData) error {
	service := *p.service
	service.Replaced++
	name := service.Spec.Name
	next, err := p.gen.startProcess(ctx, &service, name)
	if err != nil {
		return err
	}
	failpoint.Here("data-started")
	err = next.waitHealthy(ctx)
	if err == nil {
		failpoint.Here("data-healthy")
		_, err = p.replace(ctx, next, func(st *stack.Stack) ([]stack.Event, error) {
			return st.DataReplaced(name, p.gen.made.Number, service.Replaced, data.volume, data.bytes)
		})
	}
	if err != nil {
		return errors.Join(err, next.endAndRemove(context.WithoutCancel(ctx)))
	}
	next.logLine(name + " is healthy with other data")
	return nil
}

// resume starts a process again that was halted, and returns once it serves. If ctx, the
// job's own, has ended, that is left to whoever ended it. If the process does not get
// healthy, it has crashed.
func (p *process) resume(ctx context.Context) {
	away, err := p.retryHung(ctx, func() error { return p.restart(ctx) })
	if away || ctx.Err() != nil {
		return // it comes back with the engine, or with the next job
	}
	if err == nil {
		if p.recordRestart(ctx, (*stack.Stack).RestartedOnRequest) {
			p.watchIfServed(func(context.Context) bool { return true })
		}
		return
	}
	p.watchIfServed(func(ctx context.Context) bool {
		p.endFailedRestart(ctx, err)
		return p.revive(ctx, nil, true)
	})
}

// watchIfServed is watchAfter, unless the generation has fallen: it is being ended then. The
// stack is not idle before first has returned.
func (p *process) watchIfServed(first func(context.Context) bool) {
	r := p.gen.runner
	_ = r.handOver(r.ctx, func(l *loop) { // if the loop has ended, so has the watching
		if r.serving() != p.gen {
			return
		}
		l.aside++ // before this job ends
		p.watchAfter(func(ctx context.Context) bool {
			defer r.tell(func(l *loop) { l.aside-- })
			return first(ctx)
		})
	})
}
