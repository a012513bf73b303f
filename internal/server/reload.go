package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/peer"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/redis"
	"github.com/berth-host/berth/internal/reload"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/supervisor"
)

// Program is how a server is replaced by another process of its program.
type Program struct {
	Path   reload.Program
	Args   []string            // after the path, that make it serve with the same settings
	Check  []string            // that make it check the settings
	Before *reload.Predecessor // that started this process to take its place; nil for none
}

// Serve runs a server until ctx ends, it fails, or another process of the program has taken
// its place, which SIGHUP asks for. If this process was started to take the place of another
// one, it does.
func Serve(ctx context.Context, cfg Config, program Program, log *slog.Logger) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	defer signal.Stop(asked)
	s, err := newServer(ctx, cfg, log, placeOf(program.Before))
	if err != nil {
		return err
	}
	s.reloads = newReloads(program, asked)
	return s.Run(ctx)
}

// place is that of another server, which this one takes without anybody noticing.
type place struct {
	files map[string]*os.File // its listeners and its lock, by name
	// leave makes the other server leave the place, and returns what it leaves.
	leave func() (state, error)
	// taken tells the other that this one serves, and where it takes the requests that the
	// other still gets.
	taken func(relayAddress) error
	// ended returns once the other gets no more requests.
	ended func()
	// back means that the other's program is this one, and a newer one did not get on.
	back bool
}

// state is what a server leaves to the one that takes its place.
type state struct {
	Hits    redis.Hits           // of the rate limits
	Retries map[string]time.Time // of webhooks, and when they are due
	Stacks  supervisor.HandOver
}

// The steps that a new process reports.
type (
	prepared struct{}
	serving  struct{ Relay relayAddress }
)

// placeOf returns the place of the process that has started this one; nil if none has.
func placeOf(before *reload.Predecessor) *place {
	if before == nil {
		return nil
	}
	return &place{
		files: before.Files(),
		leave: func() (left state, err error) {
			if err := before.Report(prepared{}); err != nil {
				return left, err
			}
			return left, before.Await(&left)
		},
		taken: func(at relayAddress) error { return before.Report(serving{at}) },
		ended: before.AwaitEnd,
	}
}

// takePlace checks that this server can take the place of another one, and then makes that
// leave it.
func (s *Server) takePlace(ctx context.Context) error {
	if s.place == nil {
		return nil
	}
	if err := s.locate(); err != nil {
		return err
	}
	if !s.place.back {
		if err := s.checkPlace(ctx); err != nil {
			return err
		}
	}
	left, err := s.place.leave()
	if err != nil {
		return err
	}
	s.redis.Recall(left.Hits)
	s.left = &left
	return nil
}

// checkPlace returns why the other server, which another program runs, serves better than this
// one would.
func (s *Server) checkPlace(ctx context.Context) error {
	if s.engine == nil {
		return errors.New("the Docker engine does not answer; reload again once it does")
	}
	_, err := store.Check(ctx, s.storeOptions())
	return err
}

// beforeStacks returns what the server before left of its stacks; nil at a start.
func (s *Server) beforeStacks() *supervisor.HandOver {
	if s.left == nil {
		return nil
	}
	return &s.left.Stacks
}

// beforeRetries returns the webhooks' retries that the server before left.
func (s *Server) beforeRetries() map[string]time.Time {
	if s.left == nil {
		return nil
	}
	return s.left.Retries
}

// The names of the files that a server takes over.
const (
	fileLock   = "lock"
	filePublic = "public"
	filePlain  = "plain"
	fileAdmin  = "admin"
	filePeers  = "peers"
)

// listen listens at an address, or takes over the listener of a name.
func (s *Server) listen(name, address string) (net.Listener, error) {
	if s.place == nil || s.place.files[name] == nil {
		return net.Listen("tcp", address)
	}
	return net.FileListener(s.place.files[name])
}

// files returns copies of what another process takes over.
func (s *Server) files() (map[string]*os.File, error) {
	open := map[string]any{fileLock: s.lock, filePublic: s.listener, filePlain: s.plainListener, fileAdmin: s.adminListener}
	if s.others != nil {
		open[filePeers] = s.others.listener
	}
	files := map[string]*os.File{}
	var errs []error
	for name, o := range open {
		if o == nil {
			continue
		}
		file, err := copyOf(o.(syscall.Conn), name)
		if errs = append(errs, err); err == nil {
			files[name] = file
		}
	}
	return files, errors.Join(errs...)
}

// copyOf returns another handle of what is open. Unlike with (*net.TCPListener).File, passing
// it on does not make calls on the first wait in the kernel.
func copyOf(open syscall.Conn, name string) (file *os.File, err error) {
	raw, err := open.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var fault error
	err = raw.Control(func(from uintptr) { fd, fault = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, fault); err != nil {
		return nil, fmt.Errorf("copy the handle of the %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// closeFiles closes files that are only passed on.
func closeFiles(files map[string]*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written
	}
}

// reloads are the requests to be replaced by another process.
type reloads struct {
	program Program
	asked   chan os.Signal
	ready   chan *reload.Successor // one that is prepared; nil for one that failed
	end     context.CancelFunc     // of one under way; nil for none
	files   map[string]*os.File    // that the one under way has taken over, too
}

func newReloads(program Program, asked chan os.Signal) reloads {
	return reloads{program: program, asked: asked, ready: make(chan *reload.Successor)}
}

// underWay refuses a reload.
const underWay = "not reloaded: another reload is under way"

// refuse refuses reloads until stop is called, which may be called again.
func (r *reloads) refuse(log *slog.Logger) (stop func()) {
	stopped, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-r.asked:
				log.Warn(underWay)
			case <-stopped:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(stopped)
		<-over
	})
}

// beginReload starts another process of the program, unless that must not be now. It is ready
// once no job is under way.
func (s *Server) beginReload(ctx context.Context) {
	switch {
	case os.Getpid() == 1:
		s.log.Warn("not reloaded: this is the first process of a container, with which the container ends; replace the container instead")
		return
	case s.reloads.end != nil:
		s.log.Warn(underWay)
		return
	}
	s.log.Info("reloading", "program", s.reloads.program.Path.Path())
	s.manager.reloading(s.cfg.Drain + preparation + s.cfg.ReloadWait + takingPlace) // the last reload may be draining
	ctx, s.reloads.end = context.WithCancel(ctx)
	go func() {
		next, err := s.prepareReload(ctx)
		if err != nil {
			s.log.Error("not reloaded, and this process serves on", "error", err)
		}
		select {
		case s.reloads.ready <- next:
		case <-ctx.Done():
			if next != nil {
				next.Kill()
			}
		}
	}()
}

// preparation is how long the new process may take to start and to check what it can.
const preparation = time.Minute

// prepareReload returns a new process that is ready to take this one's place, once no job is
// under way.
func (s *Server) prepareReload(ctx context.Context) (next *reload.Successor, err error) {
	if err := s.relayed.awaitEnd(ctx); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, preparation)
	defer cancel()
	p := s.reloads.program
	if err := p.Path.Check(limited, p.Check...); err != nil {
		return nil, err
	}
	files, err := s.files()
	defer func() {
		if err != nil {
			closeFiles(files)
		}
	}()
	if err != nil {
		return nil, err
	}
	if next, err = p.Path.Start(p.Args, files); err != nil {
		return nil, err
	}
	var done prepared
	if err = next.Await(limited, &done); err == nil {
		err = s.awaitWork(ctx, next)
	}
	if err != nil {
		next.Kill()
		return nil, err
	}
	s.reloads.files = files
	return next, nil
}

// How long requests that may take long wait for those that do: for a moment now and then while
// this server serves on, for longer each time, so that one slow upload hardly holds others up and
// a reload comes to an end beside many that overlap; and once more when all have had their time.
const (
	firstHold    = 300 * time.Millisecond
	longestHold  = time.Minute
	betweenHolds = 3 * time.Second // at least
	lastHold     = 5 * time.Second
)

// awaitWork returns once neither a job nor an upload is under way, or these have had their
// time. New ones wait from then on, and deploys meanwhile, too. It fails if the new process ends
// meanwhile, and nothing waits any longer.
func (s *Server) awaitWork(ctx context.Context, next *reload.Successor) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-next.Ended():
			cancel(errors.New("the new process ended while it waited for this one"))
		case <-ctx.Done():
		}
	}()
	limited, stop := context.WithTimeout(ctx, s.cfg.ReloadWait)
	defer stop()
	s.log.Info("the new process is ready; jobs and uploads get time to end", "limit", s.cfg.ReloadWait)
	hold := firstHold
	for s.supervisor.Quiesce(limited) && s.gate.awaitUnderWay(limited) && !s.rests(limited, hold) {
		pause.For(limited, max(hold, betweenHolds))
		hold = min(2*hold, longestHold)
	}
	if limited.Err() != nil && ctx.Err() == nil {
		s.log.Warn("jobs are stopped for the reload, as at a restart", "waited", s.cfg.ReloadWait)
		s.lastRest(ctx)
	}
	if ctx.Err() != nil {
		s.gate.hold(heldNone)
		s.supervisor.Resume()
		return context.Cause(ctx)
	}
	return nil
}

// rests reports whether no long work is under way, once new requests for some have waited for it
// for a time. If none is, they go on waiting.
func (s *Server) rests(ctx context.Context, hold time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	s.gate.hold(heldLong)
	if s.gate.awaitRest(ctx) && s.supervisor.IsQuiet() {
		return true
	}
	s.gate.hold(heldNone)
	return false
}

// lastRest gives requests that have come late a moment to end, in which no more come.
func (s *Server) lastRest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastHold)
	defer cancel()
	s.gate.hold(heldLong)
	s.gate.awaitRest(ctx)
}

// How long requests are waited for that other requests wait for meanwhile, and how long the
// other process may take to begin to serve.
const (
	lastRequests = 500 * time.Millisecond
	takingPlace  = time.Minute
)

// handOver makes another process take this server's place. If that fails, another server of
// this process does. It returns once this process is not needed any more.
func (s *Server) handOver(ctx context.Context, next *reload.Successor) error {
	defer closeFiles(s.reloads.files)
	accept := s.reloads.refuse(s.log)
	defer accept()
	s.endBeside()
	retries := s.webhooks.Close() // an attempt may take its time, and nobody waits for it
	began := time.Now()
	left, err := s.vacate()
	if err != nil {
		s.log.Error("not all closed for the reload", "error", err)
	}
	left.Retries = retries
	var took serving
	if err := s.give(ctx, next, left, &took); err != nil {
		next.Kill()
		s.log.Error("not reloaded, and this process serves on", "error", err)
		return s.takeBack(ctx, left, accept)
	}
	s.manager.replacedBy(next.PID(), s.status())
	s.log.Info("reloaded", "pid", next.PID(), "took", time.Since(began))
	stay := context.AfterFunc(ctx, func() { // whoever asks this process to end means the server
		s.log.Info("passing the request to shut down on", "pid", next.PID())
		next.Terminate()
	})
	s.finish(took.Relay)
	if !stay() {
		s.awaitEndOf(next)
	}
	return nil
}

// awaitEndOf returns once the process that has taken this one's place has ended, as it was asked
// to, or has had the time for it: this one may still be the one that others watch.
func (s *Server) awaitEndOf(next *reload.Successor) {
	select {
	case <-next.Ended():
	case <-time.After(s.cfg.Drain + closing):
	}
}

// give gives another process what this one leaves, and returns once that serves.
func (s *Server) give(ctx context.Context, next *reload.Successor, left state, took *serving) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takingPlace)
	defer cancel()
	if err := next.Give(left); err != nil {
		return err
	}
	return next.Await(ctx, took)
}

// takeBack has a new server of this process take the place that this one has left, and runs it.
// Reloads are refused until accept.
func (s *Server) takeBack(ctx context.Context, left state, accept func()) error {
	served := make(chan relayAddress, 1)
	finished := make(chan struct{})
	from := &place{
		files: s.reloads.files,
		back:  true,
		leave: func() (state, error) { return left, nil },
		taken: func(at relayAddress) error { served <- at; return nil },
		ended: func() { <-finished },
	}
	again, err := newServer(ctx, s.cfg, s.log, from)
	if err != nil && ctx.Err() != nil {
		return s.closeListeners() // it was asked to end meanwhile, and all else has
	}
	if err != nil {
		return errors.Join(err, s.closeListeners())
	}
	accept()
	again.reloads = newReloads(s.reloads.program, s.reloads.asked)
	go func() {
		defer close(finished)
		s.finish(<-served)
	}()
	err = again.Run(ctx)
	<-finished
	return err
}

// vacate ends all other work, and returns what whoever takes this server's place is to be given.
// Requests for services go on; the others wait. Streams end, and go on with the next server.
func (s *Server) vacate() (state, error) {
	s.gate.hold(heldAll)
	s.api.Release()
	s.pages.Release()
	ctx, cancel := context.WithTimeout(context.Background(), lastRequests)
	defer cancel()
	if !s.gate.awaitEmpty(ctx) {
		s.log.Warn("requests cut for the reload")
	}
	return s.closeState()
}

// finish passes the requests that this server still gets on to the one that has taken its
// place, for as long as open requests get, and closes the rest.
func (s *Server) finish(at relayAddress) {
	relay := proxy.NewRelay(at.dial, peer.Protocol, proxy.Options{Log: s.log})
	s.gate.passOn(relay)
	s.edge.PassOn(relay)
	_ = s.listener.Close() // its server reports it
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Drain)
	defer cancel()
	if s.others != nil {
		s.others.edge.PassOn(relay)
		_ = s.others.listener.Close()
	}
	s.edge.Finish(ctx)
	s.shutdown(ctx)
	if err := errors.Join(relay.Drain(ctx), s.closeListeners()); err != nil {
		s.log.Warn("requests cut after the reload", "error", err)
	}
}
