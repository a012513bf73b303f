package supervisor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// A backup has the data of each stack in the form in which a restore finds it: as a file in the
// stack's folder, which stands for a snapshot until a process needs the data. While files are
// backed up, what deploys leave of them stays, so that each that a row names is there.

// ServiceData is what a backup has of the data of a service.
type ServiceData struct {
	Service string
	Dump    bool // of a database, as of one moment
	Moving  bool // copied while something may have written to it
	Content io.Reader
	Size    int64 // bytes
}

// How long the processes of a stack may be paused for a backup, and how often data is read that
// could not be.
const (
	backupPause = 5 * time.Second
	backupTries = 3
)

// BackUpData calls put with the data of each service of a stack of this node, also of services
// that a deploy has dropped. Databases that run are dumped; other files are copied while all
// processes are paused, or while they run if that takes too long. All of it is in files before
// put is called, so the stack does not wait for put. It returns why the data of services could
// not be read, by their names. A stack that is not here, or goes before its data is copied, has
// no data.
func (s *Supervisor) BackUpData(ctx context.Context, id string, put func(ServiceData) error) (missing map[string]error, err error) {
	r := s.lookup(id)
	if r == nil {
		return nil, nil
	}
	b := &dataBackup{runner: r, missing: map[string]error{}}
	defer b.close()
	taking, cancel := endsWith(ctx, r.ctx)
	err = b.take(taking)
	cancel()
	if isDeleted(err) || r.ctx.Err() != nil && s.ctx.Err() == nil {
		return nil, nil
	}
	if err == nil {
		err = b.put(put)
	}
	return b.missing, err
}

// dataBackup is a backup of the data of a stack that is being made.
type dataBackup struct {
	runner   *runner
	services []string // that have data, as far as it is known
	taken    []takenData
	missing  map[string]error
}

// takenData is the data of a service in a file.
type takenData struct {
	data ServiceData
	file tempFile
}

// add notes that the data of a service is in a file, which close closes.
func (b *dataBackup) add(d ServiceData, file tempFile) (err error) {
	if d.Size, err = file.Seek(0, io.SeekEnd); err != nil {
		return errors.Join(err, file.Close())
	}
	b.taken = append(b.taken, takenData{d, file})
	return nil
}

// left returns the services whose data is neither in a file nor missing.
func (b *dataBackup) left() []string {
	return slices.DeleteFunc(slices.Clone(b.services), func(service string) bool {
		isTaken := slices.ContainsFunc(b.taken, func(d takenData) bool { return d.data.Service == service })
		return isTaken || b.missing[service] != nil
	})
}

// put calls put with all that is in files, and closes each of them after that.
func (b *dataBackup) put(put func(ServiceData) error) error {
	for _, d := range b.taken {
		if _, err := d.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		d.data.Content = d.file
		if err := put(d.data); err != nil {
			return err
		}
		_ = d.file.Close() // it was only read
	}
	return nil
}

// close closes the files, also those that put has closed.
func (b *dataBackup) close() {
	for _, d := range b.taken {
		_ = d.file.Close() // nobody reads it again
	}
}

// take puts the data of the services into files. Until it returns, the stack is not idle, and its
// data is neither replaced nor kept apart.
func (b *dataBackup) take(ctx context.Context) error {
	r := b.runner
	// What is idle is tidied, and the helpers are leftovers. Besides, what the row says is served
	// once the loop has done this.
	err := r.handOver(ctx, func(l *loop) { l.aside++ })
	defer r.tell(func(l *loop) { l.aside-- })
	if err != nil {
		return err
	}
	end, err := r.transfers.beginBackup(ctx)
	if err != nil {
		return err
	}
	defer end()
	for !r.keeping.CompareAndSwap(false, true) { // a snapshot has helpers of the same names
		if !pause.For(ctx, preparePause) {
			return context.Cause(ctx)
		}
	}
	defer r.keeping.Store(false)
	st, err := r.get(ctx)
	if err != nil {
		return err
	}
	b.services = processServices(st)
	err = b.takeAll(ctx, st)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, service := range b.left() {
		r.log.Warn("data not read for a backup", "service", service, "error", err)
		b.missing[service] = err
	}
	return nil
}

// takeAll dumps the databases that run, and copies the other services' data. After an error, data
// of services is left.
func (b *dataBackup) takeAll(ctx context.Context, st *stack.Stack) error {
	r := b.runner
	if err := b.openPending(); err != nil {
		return err
	}
	there, err := r.inventory(ctx) // after these files: what they had may be in volumes by now
	if err != nil {
		return err
	}
	b.services = servicesWithData(st, there)
	for _, service := range b.left() {
		if err := b.dump(ctx, service); err != nil {
			return err
		}
	}
	if len(b.left()) == 0 {
		return nil
	}
	image, err := r.sup.helperImage(ctx, st) // it may take minutes to build
	if err != nil {
		return err
	}
	c := &dataCopy{runner: r, gen: r.serving(), st: st, image: image, helpers: map[string]string{}}
	c.next.Services = b.left()
	return b.copyFiles(ctx, c)
}

// openPending opens the files of an earlier backup whose data no volume has again yet. They may be
// removed after that.
func (b *dataBackup) openPending() error {
	all, err := b.runner.cfg.Dir.AllBackedUp(b.runner.id)
	if err != nil {
		return err
	}
	for service, from := range all {
		file, err := from.Open()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = b.add(ServiceData{Service: service, Dump: from.Dump}, file)
		}
		if err != nil {
			b.missing[service] = err
		}
	}
	return nil
}

// dump makes the dump of a service if it is a database and runs. If that fails, its files are
// left.
func (b *dataBackup) dump(ctx context.Context, service string) error {
	r := b.runner
	if p := r.servedProcess(service); p == nil || !p.isDatabase() {
		return nil
	}
	file, err := r.spool(func(w io.Writer) error { return r.dump(ctx, service, w) })
	switch {
	case err == nil:
		return b.add(ServiceData{Service: service, Dump: true}, file)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	r.log.Warn("database not dumped for a backup; its files are copied", "service", service, "error", err)
	return nil
}

// spool writes to a file without a name, as long as the disk has room.
func (r *runner) spool(write func(io.Writer) error) (tempFile, error) {
	file, err := r.cfg.Dir.TempFile()
	if err != nil {
		return nil, err
	}
	if err := write(r.cfg.Admission.RoomWriter(file)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// copyFiles copies the data of services as files.
func (b *dataBackup) copyFiles(ctx context.Context, c *dataCopy) error {
	r := b.runner
	busy := b.isBusy(ctx, c.gen)
	running := c.gen != nil && len(c.gen.allProcesses()) > 0
	if running {
		files, err := b.copyPaused(ctx, c)
		if err == nil {
			return b.addFiles(files, busy || b.isBusy(ctx, c.gen))
		}
		closeFiles(files)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.log.Info("data of the stack not copied while it was paused; copying it while the stack runs", "error", err)
	}
	for _, service := range c.next.Services {
		if err := b.copyOne(ctx, c, service, running || busy); err != nil {
			return err
		}
	}
	return nil
}

// isBusy reports whether a process that is not paused may write to the data: one of a job that
// is under way, or of another generation than the one that is copied.
func (b *dataBackup) isBusy(ctx context.Context, copied *generation) bool {
	working, err := ask(ctx, b.runner, func(l *loop) bool { return l.job != nil && !l.job.yields })
	return working || err != nil || b.runner.serving() != copied
}

func (b *dataBackup) copyPaused(ctx context.Context, c *dataCopy) (map[string]tempFile, error) {
	b.runner.copying.Store(true)
	defer b.runner.copying.Store(false)
	defer c.removeHelpers()
	if err := c.makeHelpers(ctx); err != nil {
		return nil, err
	}
	return c.copyPaused(ctx, backupPause)
}

func (b *dataBackup) addFiles(files map[string]tempFile, moving bool) (err error) {
	for _, service := range slices.Sorted(maps.Keys(files)) {
		err = errors.Join(err, b.add(ServiceData{Service: service, Moving: moving}, files[service]))
	}
	return err
}

// copyOne copies the data of a service as it is.
func (b *dataBackup) copyOne(ctx context.Context, c *dataCopy, service string, moving bool) (err error) {
	r := b.runner
	for range backupTries {
		var file tempFile
		file, err = r.spool(func(w io.Writer) error {
			return r.cfg.Engine.ReadData(ctx, dataKey(c.st, service), "", c.image, w)
		})
		if err == nil {
			return b.add(ServiceData{Service: service, Moving: moving || b.isBusy(ctx, c.gen)}, file)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.log.Warn("data not read for a backup", "service", service, "error", err)
	}
	b.missing[service] = err
	return nil
}

// restoreBackup fills the data volume of a service from a backup's file, which goes then.
func (g *generation) restoreBackup(ctx context.Context, s *stack.Service, from *datadir.BackedUp) error {
	err := g.fillFrom(ctx, s, from)
	if err == nil {
		err = from.Remove()
	}
	if err == nil {
		g.log.Info("data of a backup is back in its volume", "service", s.Spec.Name)
	} else if ctx.Err() == nil {
		g.log.Error("data of a backup not restored; it stays in its file", "service", s.Spec.Name, "file", from.Path, "error", err)
	}
	return err
}

// restoreBackups is restoreBackup for the services of a stack that does not run. The owner of one
// that has failed may read the data, except that of a database, which needs its process.
func (r *runner) restoreBackups(ctx context.Context, st *stack.Stack) error {
	g := r.generation(st, st.Generation)
	var errs []error
	for i := range g.made.Services {
		s := &g.made.Services[i]
		from, err := r.cfg.Dir.BackedUp(r.id, s.Spec.Name)
		if err == nil && from != nil && !(from.Dump && st.Status == stack.Failed) {
			err = g.restoreBackup(ctx, s, from)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (g *generation) fillFrom(ctx context.Context, s *stack.Service, from *datadir.BackedUp) error {
	file, err := from.Open()
	if err != nil {
		return err
	}
	defer file.Close()
	if !from.Dump {
		return g.runner.sup.fillData(ctx, g.st, s.Spec.Name, file)
	}
	if err := g.cfg.Engine.Remove(ctx, g.processName(s)); err != nil {
		return err
	}
	how, err := g.loading(ctx, s)
	if err != nil {
		return err
	}
	return g.cfg.Engine.UnpackData(ctx, g.data(s.Spec.Name), how, func(_ context.Context, w io.Writer) error {
		_, err := io.Copy(w, file)
		return err
	})
}

// Images returns the references of the images that stacks run from, as far as the engine has
// them, and of those that they were built on.
func (s *Supervisor) Images(ctx context.Context, stacks []*stack.Stack) ([]string, error) {
	wanted := map[string]bool{}
	for _, st := range stacks {
		served, layers := stackImages(st)
		for _, ref := range append(served, layers...) {
			wanted[ref] = true
		}
		for i := range st.Generation.Services {
			if spec := &st.Generation.Services[i].Spec; spec.Builds() || !spec.IsStatic() {
				wanted[s.cfg.Builder.Base(spec.Base())] = true
			}
		}
	}
	var there []string
	for _, ref := range slices.Sorted(maps.Keys(wanted)) {
		has, err := s.cfg.Engine.HasImage(ctx, ref)
		if err != nil {
			return nil, err
		}
		if has {
			there = append(there, ref)
		}
	}
	return there, nil
}

// heldFiles are the sources and sites of stacks that are not removed while somebody copies them.
type heldFiles struct {
	mu     sync.Mutex
	holds  int
	unused []string // to be removed afterwards
}

func (h *heldFiles) areHeld() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds > 0
}

// HoldFiles keeps the sources and sites that deploys replace until release is called. What a
// deletion or an expiry removes goes all the same.
func (s *Supervisor) HoldFiles() (release func()) {
	h := &s.held
	h.mu.Lock()
	h.holds++
	h.mu.Unlock()
	return sync.OnceFunc(func() {
		h.mu.Lock()
		h.holds--
		var unused []string
		if h.holds == 0 {
			unused, h.unused = h.unused, nil
		}
		h.mu.Unlock()
		if err := s.cfg.Dir.RemoveFolders(unused...); err != nil {
			s.cfg.Log.Warn("files of builds not removed; the next start tries again", "error", err)
		}
	})
}

// removeFolders removes sources and sites, or has them removed once nobody holds them.
func (s *Supervisor) removeFolders(folders ...string) error {
	h := &s.held
	h.mu.Lock()
	if h.holds > 0 {
		h.unused = append(h.unused, folders...)
		h.mu.Unlock()
		return nil
	}
	h.mu.Unlock()
	return s.cfg.Dir.RemoveFolders(folders...)
}
