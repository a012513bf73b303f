package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/build"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Config is what a Supervisor works with. Durations and bounds are those of
// decisions.md, "Configuration of the server".
type Config struct {
	Store   *store.Store
	Engine  *docker.Engine
	Builder *build.Builder
	Routes  *proxy.Routes
	URLs    stack.URLs
	Dir     string        // data directory
	Labels  docker.Labels // of the installation: everything made carries them
	Pool    netip.Prefix  // stacks' networks are /28s of it

	UnclaimedPerIP int // unclaimed stacks that one network may have; 0 for no cap

	HealthTimeout  time.Duration
	Drain          time.Duration // that open requests get when their target goes
	ConnectTimeout time.Duration // of the proxy to a service
	HeaderTimeout  time.Duration // until a service's response headers

	Memory   int64  // bytes a service may use; 0 for no ceiling
	NanoCPUs int64  // billionths of a core; 0 for no ceiling
	Pids     int64  // processes a service may have at once
	Runtime  string // of containers; "" for the engine's own
	LogMax   int64  // bytes of a log before it is rotated

	Log *slog.Logger
}

// Supervisor owns the stacks of one installation.
type Supervisor struct {
	Config
	ctx    context.Context // of all jobs; ends with Close
	cancel context.CancelFunc
	jobs   sync.WaitGroup

	mu      sync.Mutex
	runners map[string]*runner // by stack id
}

// New returns a Supervisor that has done nothing yet; see Start.
func New(cfg Config) *Supervisor {
	s := &Supervisor{Config: cfg, runners: map[string]*runner{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start makes the engine agree with the store: running containers of live
// stacks are adopted as they are, the others started in the background, builds
// that a dead server left are failed, and leftovers removed.
func (s *Supervisor) Start(ctx context.Context) error {
	stacks, err := s.Store.All(ctx)
	if err != nil {
		return err
	}
	if err := s.sweep(ctx, stacks); err != nil {
		return err
	}
	for _, st := range stacks {
		if err := s.take(ctx, st); err != nil {
			return fmt.Errorf("stack %s: %w", st.ID, err)
		}
	}
	return nil
}

// take puts one stack of an earlier server under supervision.
func (s *Supervisor) take(ctx context.Context, st *stack.Stack) error {
	r := s.runner(st.ID)
	switch st.Status {
	case stack.Building:
		return r.interrupted(ctx)
	case stack.Live:
		return r.adopt(ctx, st)
	default:
		r.route(st, nil)
		return s.removeGenerations(ctx, st, 0)
	}
}

// Create records a new stack and starts its first build. The folder dir, an
// unpacked source tree, belongs to the stack once Create succeeded. A full
// network is a *stack.Error and leaves nothing behind.
func (s *Supervisor) Create(ctx context.Context, st *stack.Stack, dir string) error {
	st.MakeSecrets()
	if err := s.Store.Create(ctx, st, s.UnclaimedPerIP, st.Created()); err != nil {
		return err
	}
	if err := s.keepSource(st, dir); err != nil {
		_, deleteErr := s.Store.Update(context.WithoutCancel(ctx), st.ID, func(st *stack.Stack) ([]stack.Event, error) { return st.Delete() })
		return errors.Join(err, deleteErr)
	}
	r := s.runner(st.ID)
	r.route(st, nil)
	r.start(r.deploy)
	return nil
}

// keepSource moves an unpacked tree to where the build of the generation that
// is being made reads it.
func (s *Supervisor) keepSource(st *stack.Stack, dir string) error {
	for _, d := range []string{s.stackDir(st), s.logDir(st)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("keep the source: %w", err)
		}
	}
	if err := os.Rename(dir, s.sourceDir(st)); err != nil {
		return fmt.Errorf("keep the source: %w", err)
	}
	return nil
}

// Delete ends a stack and returns when nothing of it is left: no container,
// image, volume, network or file. It goes on when ctx ends.
func (s *Supervisor) Delete(ctx context.Context, id string) error {
	ctx = context.WithoutCancel(ctx)
	st, err := s.Store.Update(ctx, id, func(st *stack.Stack) ([]stack.Event, error) { return st.Delete() })
	if err != nil {
		return err
	}
	r := s.runner(id)
	r.stop()
	r.unroute(st)
	r.forget()
	err = s.removeStack(ctx, st)
	s.mu.Lock()
	delete(s.runners, id)
	s.mu.Unlock()
	return err
}

// Logs writes the last lines of each service's log, or of one service's, a
// section each ("GET /v0/stacks/{id}/logs"). Kind is run or build.
func (s *Supervisor) Logs(_ context.Context, st *stack.Stack, service, kind string, tail int, w io.Writer) error {
	for _, name := range st.ServiceNames() {
		if service != "" && service != name {
			continue
		}
		if _, err := fmt.Fprintf(w, "### %s (%s)\n", name, kind); err != nil {
			return err
		}
		if err := logfile.Tail(w, s.logPath(st, name, kind), tail); err != nil {
			return err
		}
	}
	return nil
}

// Close stops all jobs and waits for them. Containers go on running for the
// next server to adopt.
func (s *Supervisor) Close() {
	s.cancel()
	s.jobs.Wait()
}

// runner is the one of a stack, made when it is first asked for.
func (s *Supervisor) runner(id string) *runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runners[id]
	if r == nil {
		r = &runner{Supervisor: s, id: id}
		s.runners[id] = r
	}
	return r
}
