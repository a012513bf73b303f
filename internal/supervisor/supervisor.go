package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"maps"
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
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Config is what a Supervisor works with. Durations and limits are settings of the
// server.
type Config struct {
	Node    string // id of the node that this server is; "" on one machine
	Store   Store
	Engine  engine.Driver
	Builder *builder.Builder
	Routes  *proxy.Routes
	URLs    stack.URLs
	Limits  stack.Limits
	Quota   stack.Quota // of each account
	Dir     datadir.Dir

	Admission *admission.Gate
	DiskFloor int64 // bytes that a snapshot leaves free
	DiskLimit stack.DiskLimit

	BuildTimeout time.Duration // a release command's limit
	// Health waits until a program passes its health check or ctx ends, as health.Wait
	// does.
	Health         func(context.Context, health.Request) *health.Failure
	HealthTimeout  time.Duration
	Drain          time.Duration // how long open requests may go on after their target is gone
	ConnectTimeout time.Duration // for the proxy to connect to a service
	HeaderTimeout  time.Duration // until a service's response headers

	CheckEvery time.Duration // between looks at all containers

	Memory   int64 // bytes that a service may use; 0 for no limit
	NanoCPUs int64 // billionths of a core; 0 for no limit
	Pids     int64 // processes that a service may have at once
	LogMax   int64 // bytes of a log before it is rotated
	MaxData  int64 // bytes that may replace the data of a service

	// How long containers, images and files stay that the store does not explain: those
	// of unknown stacks, and of generations newer than their rows.
	OrphanGrace time.Duration

	// Before is what the process has left that this one takes the place of; nil at a start.
	Before *HandOver

	// Of a cluster; all zero on one machine.
	Peers    Peers
	Registry Registry // nil for none
	Archive  Archive  // nil for none
	// SnapshotEvery is how often a snapshot of the data of a stack that runs is kept in the
	// Archive; 0 for never. With RestoreLost, others begin with it if the node is lost.
	SnapshotEvery time.Duration
	RestoreLost   bool
	// Lost reports whether a node is lost, so that others answer for its stacks; nil for never.
	Lost func(node string) bool
	// Hold makes new requests for a live stack wait until its routes change; nil for routes
	// that cannot.
	Hold func(id string)
	// Closed returns a *stack.Error that says why this node takes no new stacks at the moment,
	// or nil; nil for a node that always does.
	Closed func() error
	// Elsewhere makes the routes of a stack lead to the node that owns it, and returns the
	// targets that they led to before. Without it they lead nowhere.
	Elsewhere func(id string) []*proxy.Target

	Log *slog.Logger
}

// Store keeps the stacks; package store implements it.
type Store interface {
	// Kept reads every stack of a node that is not deleted, in order of creation.
	Kept(ctx context.Context, node string) ([]*stack.Stack, error)
	// Get reads one stack. An unknown or deleted one is NotFound.
	Get(ctx context.Context, id string) (*stack.Stack, error)
	// Deleted reports whether an id belongs to a deleted stack.
	Deleted(ctx context.Context, id string) (bool, error)
	// Create stores a new stack with its first events and sets its Seq.
	Create(ctx context.Context, st *stack.Stack, events []stack.Event, options ...store.Option) error
	// Update changes a stack by fn and records the events that fn returns, both or
	// neither. It returns an error of fn as it is, and store.ErrNotOwner if the options let
	// only another owner change the stack.
	Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error)
	// Watch returns a channel that receives a value after each change of a stack.
	Watch(id string) (woken <-chan struct{}, stop func())
	// FollowOthers wakes watchers for the changes of other processes, until ctx ends.
	FollowOthers(ctx context.Context)
	// SetDisk records what a stack takes on the disk, and tells its owner what told says
	// unless it is "".
	SetDisk(ctx context.Context, id string, d stack.Disk, told string, options ...store.Option) error
	// AddCommand stores a command that is about to run.
	AddCommand(ctx context.Context, c stack.Command, options ...store.Option) error
	// EndCommand records how a command ended.
	EndCommand(ctx context.Context, c stack.Command) error
	// EndCommands ends all commands of a node's stacks that have not ended, at a time and with
	// an error.
	EndCommands(ctx context.Context, node string, at time.Time, why string) error
	// Remains reads what a node may have of a stack that another one owns.
	Remains(ctx context.Context, id, node string) (r store.Remains, ok bool, err error)
	// RemainsOn reads the stacks of others that a node may have something of.
	RemainsOn(ctx context.Context, node string) ([]store.Remains, error)
	// Expect records that a node is about to get copies of a stack, which go unless it
	// becomes the owner.
	Expect(ctx context.Context, id, node string) error
	// Renounce records that it does not become the owner after all.
	Renounce(ctx context.Context, id, node string) error
	// MarkRemains records which data of a stack of another a node keeps.
	MarkRemains(ctx context.Context, id, node string, data []string) error
	// ForgetRemains records that a node has nothing any more of a stack of another.
	ForgetRemains(ctx context.Context, id, node string) error
	// Reserve makes stacks created from now on get a Seq above last.
	Reserve(ctx context.Context, last int64) error
}

// Supervisor owns the stacks of one node: all of an installation on one machine.
type Supervisor struct {
	cfg    Config
	ctx    context.Context // of everything; ends with Close
	cancel context.CancelFunc
	jobs   sync.WaitGroup

	began    time.Time           // when it was created: what is there by then may belong to another database
	absences atomic.Int64        // how often watchEngine saw the engine go or come back: odd while it is away
	reading  *semaphore.Weighted // slots for reading the trees of adopted sites
	copying  *semaphore.Weighted // slots for snapshots of stacks that run
	ready    *semaphore.Weighted // slots for stacks that have containers made ahead
	turns    *pause.Turns        // of the walks over files

	quiet atomic.Bool // no deploy begins
	held  heldFiles

	surveyed *survey // by ForeignData, for Start on one machine; or nil

	mu      sync.Mutex
	runners map[string]*runner   // by the stack's id
	guests  map[string]*guest    // stacks that are about to come, by id
	passing map[string]passage   // stacks that come or go otherwise, by id
	empty   map[string]time.Time // what EmptyStacks returned last, and when each was seen to have no data

	isolated bool // the node is cut off; see Isolated
	cuts     int  // how often it was
	taken    bool // whether Start has taken the stacks
}

// siteReaders is how many trees of adopted sites are read at once: each needs file
// descriptors and a core.
const siteReaders = 2

// New returns a Supervisor that does nothing before Start.
func New(cfg Config) *Supervisor {
	s := &Supervisor{cfg: cfg, began: time.Now(), runners: map[string]*runner{}, guests: map[string]*guest{}, passing: map[string]passage{}}
	s.reading, s.ready = semaphore.NewWeighted(siteReaders), semaphore.NewWeighted(maxReady)
	s.copying, s.turns = semaphore.NewWeighted(dataCopies), pause.NewTurns()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start makes the engine agree with the store: it adopts the running containers of live
// stacks, starts missing ones in the background, fails builds that a dead server left,
// meets deadlines that have passed, and removes leftovers. No process starts before the
// firewall is in place. From then on the supervisor watches all of it. Start fails if it
// cannot read the stacks from the store, or that is not available before it takes a stack,
// and may be called again then; what a fault of the host prevents is tried again until it
// passes, or ctx ends.
func (s *Supervisor) Start(ctx context.Context) error {
	if err := s.cfg.Store.EndCommands(ctx, s.cfg.Node, stack.Now(), "the server died while the command ran, so its end is not known"); err != nil {
		return err
	}
	var guarding sync.WaitGroup
	guarding.Go(func() { s.cfg.Admission.Guard(ctx) })
	defer guarding.Wait()
	cuts := s.countCuts()
	stacks, there, err := s.survey(ctx)
	if err != nil {
		return err
	}
	s.unpause(ctx, there)
	failpoint.Here("start-begun")
	if err := s.reserveUsers(ctx, stacks, there); err != nil {
		return err
	}
	orphans := s.sweep(ctx, stacks, there)
	failpoint.Here("start-swept")
	begin := make([]func(), len(stacks))
	for i, st := range stacks {
		begin[i] = s.take(ctx, st, there[st.ID], cuts)
		failpoint.Here("start-taken")
	}
	s.noteTaken()
	guarding.Wait() // before any process starts
	for _, do := range begin {
		do()
	}
	s.jobs.Go(func() { s.cfg.Admission.Watch(s.ctx) })
	s.jobs.Go(s.watchEngine)
	s.jobs.Go(s.watchProcesses)
	s.jobs.Go(func() { s.watchLeftovers(orphans) })
	s.jobs.Go(func() { s.cfg.Store.FollowOthers(s.ctx) })
	if s.cfg.SnapshotEvery > 0 && s.cfg.Archive != nil {
		s.jobs.Go(s.watchData)
	}
	return nil
}

// Create records a new stack and starts its first build. If it succeeds, the folder of
// the source belongs to the stack. If the network has too many
// unclaimed stacks, or the account no room, the error is a *stack.Error and nothing is left behind. The receipt
// of the request, nil for none, is recorded with the stack.
func (s *Supervisor) Create(ctx context.Context, st *stack.Stack, src *source.Source, receipt *store.Receipt) error {
	if s.cfg.Closed != nil {
		if err := s.cfg.Closed(); err != nil {
			return err
		}
	}
	st.Node, st.Epoch = s.cfg.Node, s.firstEpoch()
	st.MakeSecrets(st.Generation.Services)
	s.beginPassage(st.ID, coming)
	defer s.endPassage(st.ID)
	// Before the row, which could not be taken back on a full disk.
	kept, err := s.cfg.Dir.KeepSource(st.ID, src.Dir())
	failpoint.Here("source-kept")
	if err == nil {
		err = s.cfg.Store.Create(ctx, st, []stack.Event{st.Created()}, store.WithLimit(s.cfg.Limits.UnclaimedPerIP), store.WithQuota(s.cfg.Quota), store.WithReceipt(receipt))
	}
	if err != nil {
		return errors.Join(err, s.cfg.Dir.Remove(st.ID))
	}
	failpoint.Here("create-committed")
	next := st.Generation
	next.Source = stack.Source{Folder: kept, Digest: src.Digest()}
	r := s.runner(st.ID, st.Epoch)
	_ = r.handOver(ctx, func(l *loop) { // if the stack is gone already, it was created all the same
		r.route(st, nil)
		l.queueDeploy(next, src.Synced())
		l.startKeepingTime()
	})
	return nil
}

// Deploy accepts a new generation of a stack and starts its build (docs/api.md, "POST
// /v0/stacks/{id}/deploy"), or lets it take the place of the one under way. A stack that takes
// too much of the disk is a NoRoom error. If it
// succeeds, the source's folder belongs to the stack. If the state does not allow the
// deploy, the error is a *stack.Error. The receipt of the request, nil for none, is
// recorded with the change.
func (s *Supervisor) Deploy(ctx context.Context, id string, u source.Upload, receipt *store.Receipt) (*stack.Stack, error) {
	services := stack.Services(u.Manifest.Services)
	var before stack.Source
	st, err := s.cfg.Store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.CheckDisk(ctx, id); err != nil {
		return nil, err
	}
	if err := s.checkDatabases(ctx, st, services); err != nil {
		return nil, err
	}
	kept, err := s.cfg.Dir.KeepSource(st.ID, u.Source.Dir()) // before the row, as in Create
	if err != nil {
		return nil, err
	}
	st, err = s.change(ctx, id, func(st *stack.Stack) ([]stack.Event, error) {
		before = st.Generation.Source
		return accept(st, u, services)
	}, store.WithLimit(s.cfg.Limits.UnclaimedPerIP), store.WithReceipt(receipt))
	if err != nil {
		return nil, errors.Join(err, s.cfg.Dir.RemoveFolders(s.cfg.Dir.Source(id, kept)))
	}
	failpoint.Here("deploy-committed")
	next := stack.Generation{Number: st.Deploying, Attempt: st.Attempt, Source: stack.Source{Folder: kept, Digest: u.Source.Digest()}, Services: services, Variables: st.Generation.Variables}
	return st, s.handOver(ctx, id, func(l *loop) {
		if st.Status == stack.Building {
			l.runner.route(st, nil)
			l.runner.removeSource(before)
		}
		l.supersede(st.LastDeploy)
		l.queueDeploy(next, u.Source.Synced())
	})
}

// Configure changes the variables that are set outside the manifest of a stack (docs/api.md,
// "PATCH /v0/stacks/{id}/env"): it accepts a next generation with them and starts its
// build, or nothing if the change changes nothing. If the state does not allow it, a
// variable is refused, or the source is needed and damaged, the error is a *stack.Error.
// The receipt of the request, nil for none, is recorded with the change.
func (s *Supervisor) Configure(ctx context.Context, id string, change stack.EnvChange, receipt *store.Receipt) (*stack.Stack, error) {
	st, next, err := s.acceptKept(ctx, id, receipt, func(st *stack.Stack) (stack.Generation, []stack.Event, error) {
		return st.Configure(change, s.cfg.URLs, stack.Now())
	})
	if err != nil || next.Number == 0 {
		return st, err
	}
	failpoint.Here("env-committed")
	return st, s.deployKept(ctx, st, next)
}

// Rebuild builds what a stack serves again, from its kept source and without anything that
// earlier builds left, as another generation. If the state does not allow it, or the source
// is damaged, the error is a *stack.Error.
func (s *Supervisor) Rebuild(ctx context.Context, id string) (*stack.Stack, error) {
	st, next, err := s.acceptKept(ctx, id, nil, func(st *stack.Stack) (stack.Generation, []stack.Event, error) {
		return st.Rebuild(stack.Now())
	})
	if err != nil {
		return nil, err
	}
	failpoint.Here("deploy-committed")
	return st, s.deployKept(ctx, st, next)
}

// acceptKept changes a stack by accept, which returns a next generation with the kept
// source, or one without a number if there is none. If that generation needs the source and
// it is not as it was kept, nothing changes and the error is a Conflict.
func (s *Supervisor) acceptKept(
	ctx context.Context, id string, receipt *store.Receipt, accept func(*stack.Stack) (stack.Generation, []stack.Event, error),
) (st *stack.Stack, next stack.Generation, err error) {
	if st, err = s.cfg.Store.Get(ctx, id); err != nil {
		return nil, next, err
	}
	if next, _, err = accept(st); err != nil { // of this copy
		return nil, next, err
	}
	if next.Number != 0 {
		err = s.CheckDisk(ctx, id)
	}
	if err == nil {
		err = s.checkKept(id, &next)
	}
	if err != nil {
		return nil, next, err
	}
	st, err = s.change(ctx, id, func(st *stack.Stack) (events []stack.Event, err error) {
		next, events, err = accept(st)
		return events, err
	}, store.WithLimit(s.cfg.Limits.UnclaimedPerIP), store.WithReceipt(receipt))
	return st, next, err
}

// checkKept returns a Conflict if a generation needs its source and that is not as it was
// kept.
func (s *Supervisor) checkKept(id string, g *stack.Generation) error {
	if !g.NeedsSource() {
		return nil
	}
	kept, err := source.Load(s.cfg.Dir.Source(id, g.Source.Folder), g.Source.Digest)
	if err == nil {
		err = kept.Check()
	}
	if err != nil {
		s.cfg.Log.Error("kept source of a stack is missing or damaged", "stack", id, "error", err)
	}
	return err
}

// deployKept starts the deploy of a generation whose source is the kept one.
func (s *Supervisor) deployKept(ctx context.Context, st *stack.Stack, next stack.Generation) error {
	return s.handOver(ctx, st.ID, func(l *loop) {
		if st.Status == stack.Building {
			l.runner.route(st, nil)
		}
		l.queueDeploy(next, true)
	})
}

// accept changes the row of a stack for the deploy of an upload.
func accept(st *stack.Stack, u source.Upload, services []stack.Service) ([]stack.Event, error) {
	if err := u.CheckOver(st); err != nil {
		return nil, err
	}
	deploy := st.Deploy
	if u.Supersede {
		deploy = st.Supersede
	}
	events, err := deploy(services, stack.Now())
	if err != nil {
		return nil, err
	}
	if u.Fresh {
		st.BuildFresh()
	}
	st.MakeSecrets(services)
	st.Notify(u.Manifest.Webhook, u.WebhookSecret)
	return events, nil
}

// Claim moves a stack into an account (docs/api.md, "POST /v0/claim"). An expired one
// comes back in the background. While the stack moves to another node, Claim waits as
// AwaitMove does.
func (s *Supervisor) Claim(ctx context.Context, id, owner, email string) (*stack.Stack, error) {
	s.AwaitMove(ctx, id)
	var late bool // the time of the stack had run out, and it had not expired yet
	st, err := s.change(ctx, id, func(st *stack.Stack) ([]stack.Event, error) {
		now := stack.Now()
		late = st.Due(now)
		return st.Claim(owner, email, now)
	}, store.WithQuota(s.cfg.Quota))
	if err != nil {
		return nil, err
	}
	failpoint.Here("claim-committed")
	s.cfg.Admission.Poke()
	return st, s.handOver(ctx, id, func(l *loop) {
		switch {
		case late:
			l.dropDeploys(st.Attempt + 1)
			l.interrupt(context.Canceled, l.runner.restoreLate)
		case st.Restoring():
			l.interrupt(context.Canceled, l.runner.restore)
		default:
			s.cfg.Routes.MarkClaimed(st.ID)
			return
		}
		l.runner.route(st, nil)
	})
}

// How long to wait for an engine that accepts requests and does not answer them.
const (
	listWait   = 30 * time.Second // for the list of what it has
	deleteWait = time.Minute      // by Delete, until nothing of the stack is left
	closeWait  = 30 * time.Second // by Close, for what is under way
)

// Delete ends a stack and returns when nothing of it is left: no container, image,
// volume, network or file. If the engine does not answer, it waits at most deleteWait:
// the stack is deleted by then, and its objects go when the engine works again. The
// same holds if ctx ends, which ends the wait and not the delete.
//
// A stack of a lost node is deleted at once; the node removes what it has when it is back. One
// of another node that is not lost is store.ErrNotOwner.
func (s *Supervisor) Delete(ctx context.Context, id string) error {
	if s.cfg.Node != "" && s.lookup(id) == nil {
		st, err := s.cfg.Store.Get(ctx, id)
		if err != nil || st.Node != s.cfg.Node {
			return s.deleteLost(ctx, st, err)
		}
	}
	if err := s.awaitReplaced(ctx, id); err != nil {
		return err
	}
	return s.endStack(ctx, id, func(st *stack.Stack) ([]stack.Event, error) {
		return st.Delete(stack.Now())
	})
}

// endStack ends a stack by the given trigger, and waits as Delete does until all of it
// is removed. What the engine cannot remove now is left to watchLeftovers, since the
// stack is deleted.
func (s *Supervisor) endStack(ctx context.Context, id string, trigger func(*stack.Stack) ([]stack.Event, error)) error {
	st, err := s.changeRow(context.WithoutCancel(ctx), id, trigger)
	if err != nil {
		return err
	}
	failpoint.Here("delete-committed")
	gone := make(chan struct{})
	s.jobs.Go(func() {
		defer close(gone)
		s.runner(id, st.Epoch).discardStack()
	})
	if !within(ctx, deleteWait, gone) {
		s.cfg.Log.Warn("the engine does not answer; what it has of a deleted stack goes later", "stack", id)
	}
	return nil
}

// within waits until done is closed or ctx ends, and reports whether that was within the
// limit.
func within(ctx context.Context, limit time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-timer.C:
		return false
	}
	return true
}

// Close stops all jobs and waits for them, at most closeWait: what is still under way
// waits for the engine, and the next start does it. Containers go on running for the
// next server to adopt.
func (s *Supervisor) Close() {
	s.cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.jobs.Wait()
	}()
	if !within(context.Background(), closeWait, ended) {
		s.cfg.Log.Warn("the engine does not answer; what is under way is left to the next start")
	}
}

// runner returns the runner of a stack, and makes it if there is none: only when a
// stack is created or deleted. Others call lookup, since the stack may be deleted by
// then.
func (s *Supervisor) runner(id string, epoch int64) *runner {
	return s.findRunner(id, func() *runner { return newRunner(s, id, epoch, false, nil) })
}

func (s *Supervisor) findRunner(id string, create func() *runner) *runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runners[id]
	if r == nil {
		r = create()
		s.runners[id] = r
	}
	return r
}

// firstEpoch returns the epoch of a stack that this node creates.
func (s *Supervisor) firstEpoch() int64 {
	if s.cfg.Node == "" {
		return 0
	}
	return 1
}

// change changes a stack of this node, for a request. One that has no runner yet has just
// been created. A stack that is being moved is not changed.
func (s *Supervisor) change(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error) {
	r := s.lookup(id)
	if r == nil {
		return s.changeRow(ctx, id, fn, options...)
	}
	if r.moving.Load() {
		return nil, errMoving
	}
	var asked accepted
	st, err := r.change(ctx, func(st *stack.Stack) (events []stack.Event, err error) {
		attempt := st.Attempt
		events, err = fn(st)
		asked = accepted{deploy: st.Attempt != attempt, startedAt: st.LastDeploy.StartedAt, restore: st.Restoring()}
		return events, err
	}, options...)
	if err != nil && stack.KindOf(err) == 0 {
		r.settleLater(asked)
	}
	return st, err
}

// changeRow is change, even while the stack moves.
func (s *Supervisor) changeRow(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error) {
	if r := s.lookup(id); r != nil {
		return r.change(ctx, fn, options...)
	}
	return s.cfg.Store.Update(ctx, id, fn, append(options, store.ByOwner(s.cfg.Node, s.firstEpoch()))...)
}

// handOver is handOver of a stack's runner. If the stack has been deleted since, the
// error is NotFound.
func (s *Supervisor) handOver(ctx context.Context, id string, do func(*loop)) error {
	if r := s.lookup(id); r != nil {
		return r.handOver(ctx, do)
	}
	return stack.NewNoStack(id)
}

// lookup returns the runner of a stack, or nil if it has none.
func (s *Supervisor) lookup(id string) *runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runners[id]
}

// everyRunner returns all the runners there are.
func (s *Supervisor) everyRunner() []*runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.runners))
}
