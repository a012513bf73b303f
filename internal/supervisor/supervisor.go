package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/berth-host/berth/internal/admission"
	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/health"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Config is what a Supervisor works with. Durations and bounds are settings of
// the server.
type Config struct {
	Store   Store
	Engine  engine.Driver
	Builder *builder.Builder
	Routes  *proxy.Routes
	URLs    stack.URLs
	Limits  stack.Limits
	Dir     datadir.Dir

	Admission *admission.Gate
	DiskFloor int64 // free bytes that a snapshot leaves

	BuildTimeout time.Duration // of a release command
	// Health waits until a program passes its health check, or ctx ends: health.Wait.
	Health         func(context.Context, health.Request) *health.Failure
	HealthTimeout  time.Duration
	Drain          time.Duration // that open requests get when their target goes
	ConnectTimeout time.Duration // of the proxy to a service
	HeaderTimeout  time.Duration // until a service's response headers

	CheckEvery time.Duration // between looks at all containers

	Memory   int64 // bytes a service may use; 0 for no ceiling
	NanoCPUs int64 // billionths of a core; 0 for no ceiling
	Pids     int64 // processes a service may have at once
	LogMax   int64 // bytes of a log before it is rotated

	// For how long containers, images and files stay that the store does not explain:
	// those of unknown stacks, and of generations newer than their rows.
	OrphanGrace time.Duration

	Log *slog.Logger
}

// Store keeps the stacks; package store implements it.
type Store interface {
	// All reads every stack that is not deleted, in order of creation.
	All(ctx context.Context) ([]*stack.Stack, error)
	// Get reads one stack; NotFound for one that is unknown or deleted.
	Get(ctx context.Context, id string) (*stack.Stack, error)
	// Deleted reports whether an id is that of a deleted stack.
	Deleted(ctx context.Context, id string) (bool, error)
	// Create stores a new stack with its first events and sets its Seq.
	Create(ctx context.Context, st *stack.Stack, events []stack.Event, options ...store.Option) error
	// Update changes a stack by fn and records the events that fn returns, both or
	// neither. An error of fn is returned as it is.
	Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error)
	// Watch returns a channel that gets a value after each change of a stack.
	Watch(id string) (woken <-chan struct{}, stop func())
	// FollowOthers wakes watchers for what other processes change, until ctx ends.
	FollowOthers(ctx context.Context)
	// Reserve makes stacks that are created from now on get a Seq above last.
	Reserve(ctx context.Context, last int64) error
}

// Supervisor owns the stacks of one installation.
type Supervisor struct {
	cfg    Config
	ctx    context.Context // of everything; ends with Close
	cancel context.CancelFunc
	jobs   sync.WaitGroup

	began    time.Time           // when it was made: what is there by then may be of another database
	absences atomic.Int64        // of the engine, so far
	reading  *semaphore.Weighted // held while the tree of an adopted site is read

	mu      sync.Mutex
	runners map[string]*runner // by stack id
}

// turns is how many trees of adopted sites are read at once: each takes
// descriptors and a core.
const siteReaders = 2

// New returns a Supervisor that has done nothing yet; see Start.
func New(cfg Config) *Supervisor {
	s := &Supervisor{cfg: cfg, began: time.Now(), runners: map[string]*runner{}}
	s.reading = semaphore.NewWeighted(siteReaders)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start makes the engine agree with the store: running containers of live
// stacks are adopted as they are, the others started in the background, builds
// that a dead server left are failed, deadlines that passed are met, and
// leftovers removed. The networks of stacks are walled off first. From then on the
// supervisor watches over all of it. Start fails when the stacks cannot be read
// from the store; what a fault of the host keeps from being done is tried again
// until it passes, or ctx ends.
func (s *Supervisor) Start(ctx context.Context) error {
	stacks, err := s.cfg.Store.All(ctx)
	if err != nil {
		return err
	}
	there, err := s.awaitInventory(ctx)
	if err != nil {
		return err
	}
	s.cfg.Admission.Guard(ctx)
	failpoint.Here("start-begun")
	s.reserveUsers(ctx, stacks, there)
	orphans := s.sweep(ctx, stacks, there)
	failpoint.Here("start-swept")
	for _, st := range stacks {
		s.take(ctx, st, there[st.ID])
		failpoint.Here("start-taken")
	}
	s.jobs.Go(func() { s.cfg.Admission.Watch(s.ctx) })
	s.jobs.Go(s.watchEngine)
	s.jobs.Go(s.watchProcesses)
	s.jobs.Go(func() { s.watchLeftovers(orphans) })
	s.jobs.Go(func() { s.cfg.Store.FollowOthers(s.ctx) })
	return nil
}

// Create records a new stack and starts its first build. The folder dir, an
// unpacked source tree, belongs to the stack once Create succeeded. A full
// network is a *stack.Error and leaves nothing behind. The receipt of the
// request, nil for none, is recorded with the stack.
func (s *Supervisor) Create(ctx context.Context, st *stack.Stack, dir string, receipt *store.Receipt) error {
	st.MakeSecrets(st.Services)
	// Before the row: on a full disk it could not be taken back.
	source, err := s.cfg.Dir.KeepSource(st.ID, dir)
	failpoint.Here("source-kept")
	if err == nil {
		err = s.cfg.Store.Create(ctx, st, []stack.Event{st.Created()}, store.WithLimit(s.cfg.Limits.UnclaimedPerIP), store.WithReceipt(receipt))
	}
	if err != nil {
		return errors.Join(err, s.cfg.Dir.Remove(st.ID))
	}
	failpoint.Here("create-committed")
	r := s.runner(st.ID)
	r.tell(func(l *loop) {
		r.route(st, nil)
		l.queue(func(ctx context.Context) { r.deploy(ctx, st.Deploying, st.Services, source) })
		l.startKeepingTime()
	})
	return nil
}

// Deploy accepts a new generation of a stack and starts its build
// (docs/api.md, "POST /v0/stacks/{id}/deploy"). The folder dir belongs to the
// stack once Deploy succeeded. The secret is for a stack that gets its first
// webhook. A state that does not allow it is a *stack.Error. The receipt of the
// request, nil for none, is recorded with the change.
func (s *Supervisor) Deploy(ctx context.Context, id string, m *stack.Manifest, secret, dir string, receipt *store.Receipt) (*stack.Stack, error) {
	services := stack.Services(m.Services)
	st, err := s.cfg.Store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	source, err := s.cfg.Dir.KeepSource(st.ID, dir) // before the row, as in Create
	if err != nil {
		return nil, err
	}
	st, err = s.cfg.Store.Update(ctx, id, func(st *stack.Stack) ([]stack.Event, error) {
		events, err := st.Deploy(services)
		if err != nil {
			return nil, err
		}
		st.MakeSecrets(services)
		st.Notify(m.Webhook, secret)
		return events, nil
	}, store.WithLimit(s.cfg.Limits.UnclaimedPerIP), store.WithReceipt(receipt))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(source))
	}
	failpoint.Here("deploy-committed")
	return st, s.tell(id, func(l *loop) {
		if st.Status == stack.Building {
			l.runner.route(st, nil)
		}
		l.queue(func(ctx context.Context) { l.runner.deploy(ctx, st.Deploying, services, source) })
	})
}

// Claim moves a stack into an account (docs/api.md, "POST /v0/claim"); an expired
// one comes back in the background.
func (s *Supervisor) Claim(ctx context.Context, id, owner, email string) (*stack.Stack, error) {
	st, err := s.cfg.Store.Update(ctx, id, func(st *stack.Stack) ([]stack.Event, error) {
		return st.Claim(owner, email, stack.Now())
	})
	if err != nil {
		return nil, err
	}
	failpoint.Here("claim-committed")
	s.cfg.Admission.Poke()
	return st, s.tell(id, func(l *loop) {
		if !st.Restoring() {
			s.cfg.Routes.MarkClaimed(st.ID)
			return
		}
		l.runner.route(st, nil)
		l.interrupt(context.Canceled, l.runner.restore)
	})
}

// How long to wait for an engine that accepts requests and does not answer them.
const (
	listWait   = 30 * time.Second // for what it has
	deleteWait = time.Minute      // by a delete, for a stack to be gone
	closeWait  = 30 * time.Second // by Close, for what is under way
)

// Delete ends a stack and returns when nothing of it is left: no container,
// image, volume, network or file. It waits at most deleteWait for an engine that does
// not answer; the stack is deleted by then, and its objects go when the engine works
// again. Delete goes on when ctx ends.
func (s *Supervisor) Delete(ctx context.Context, id string) error {
	return s.endStack(context.WithoutCancel(ctx), id, func(st *stack.Stack) ([]stack.Event, error) {
		return st.Delete(stack.Now())
	})
}

// endStack moves a stack to its end by the given trigger and removes all of it. What
// the engine cannot remove now is left to watchLeftovers: the stack is deleted.
func (s *Supervisor) endStack(ctx context.Context, id string, trigger func(*stack.Stack) ([]stack.Event, error)) error {
	st, err := s.cfg.Store.Update(ctx, id, trigger)
	if err != nil {
		return err
	}
	failpoint.Here("delete-committed")
	gone := make(chan struct{})
	s.jobs.Go(func() {
		defer close(gone)
		s.runner(id).discardStack(st)
	})
	if !within(deleteWait, gone) {
		s.cfg.Log.Warn("the engine does not answer; what it has of a deleted stack goes later", "stack", id)
	}
	return nil
}

// within waits for done, and reports whether it was closed in time.
func within(limit time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Close stops all jobs and waits for them, for closeWait at most: what is under
// way by then waits for the engine, and is the next start's. Containers go on
// running for the next server to adopt.
func (s *Supervisor) Close() {
	s.cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.jobs.Wait()
	}()
	if !within(closeWait, ended) {
		s.cfg.Log.Warn("the engine does not answer; what is under way is left to the next start")
	}
}

// runner is the one of a stack, made when it is first asked for. That is when the
// stack is created or taken over; whoever comes later looks it up, as the stack
// may be deleted by then.
func (s *Supervisor) runner(id string) *runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runners[id]
	if r == nil {
		r = newRunner(s, id)
		s.runners[id] = r
	}
	return r
}

// tell has the loop of a stack do something after a change of its row; NotFound when
// the stack was deleted since.
func (s *Supervisor) tell(id string, do func(*loop)) error {
	if r := s.lookup(id); r == nil || !r.tell(do) {
		return stack.NewNoStack(id)
	}
	return nil
}

// lookup is the runner of a stack; nil when it has none.
func (s *Supervisor) lookup(id string) *runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runners[id]
}

// everyRunner is all the runners there are.
func (s *Supervisor) everyRunner() []*runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.runners))
}
