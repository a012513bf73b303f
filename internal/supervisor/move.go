package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// A move is a job of the stack's loop on the node that owns it. All that is built is at the
// target before anything stops. Then the stack stops, its data goes across, the target starts
// it, and one change of the row makes the target its owner. Until that, whatever fails, the
// stack serves again here; after it, this node removes all that it has. A target that gives a
// move up says so in the database before it removes anything, which that change looks at.

// moveAgain is how long to wait before a move is begun again.
const moveAgain = 500 * time.Millisecond

// Why a move has to begin again.
var (
	errBuildFirst = stack.NewError(stack.Conflict, "a build of the stack comes first")
	errJustCome   = stack.NewError(stack.Conflict, "the stack has only just come to this node; try again in a moment")
)

// Move gives a stack of this node to another, and returns once that one serves it. It waits
// for the end of a build that is under way. If it fails, the stack serves here as before.
func (s *Supervisor) Move(ctx context.Context, id, target string) error {
	if target == s.cfg.Node {
		return nil
	}
	for {
		err := s.tryMove(ctx, id, target)
		later := errors.Is(err, errBuildFirst) || errors.Is(err, errJustCome)
		if !later || !pause.For(ctx, moveAgain) {
			return err
		}
	}
}

// tryMove moves a stack, unless it has to begin again later.
func (s *Supervisor) tryMove(ctx context.Context, id, target string) error {
	r := s.lookup(id)
	if r == nil {
		return s.whyNotHere(ctx, id)
	}
	moved := make(chan error, 1)
	r.tell(func(l *loop) {
		l.queue(func(ctx context.Context) { moved <- r.move(ctx, target) })
	})
	return r.awaitMove(ctx, moved)
}

// whyNotHere returns why a stack has no runner: it is not known, another node owns it, or it
// has only just come here.
func (s *Supervisor) whyNotHere(ctx context.Context, id string) error {
	st, err := s.cfg.Store.Get(ctx, id)
	switch {
	case err != nil:
		return err
	case st.Node == s.cfg.Node:
		return errJustCome
	}
	return store.ErrNotOwner
}

// awaitMove returns the end of the job, or why it never runs.
func (r *runner) awaitMove(ctx context.Context, moved <-chan error) error {
	select {
	case err := <-moved:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ended:
	}
	select {
	case err := <-moved: // the last that the loop did
		return err
	default:
		return r.gone()
	}
}

// move is the job that gives the stack to another node.
func (r *runner) move(ctx context.Context, target string) error {
	st, err := r.get(ctx)
	if err != nil {
		return err
	}
	if st.Deploying != 0 || st.Restoring() {
		return errBuildFirst
	}
	peer, err := r.cfg.Peers.Peer(target)
	if err != nil {
		return err
	}
	m := &move{runner: r, peer: peer, target: target, st: st}
	err = m.carry(ctx)
	if err == nil {
		return nil
	}
	if !errors.Is(err, errBuildFirst) {
		r.log.Warn("stack not moved", "target", target, "error", err)
	}
	m.giveUp(ctx)
	r.forgetDeleted()
	return err
}

// move is a stack on its way to another node.
type move struct {
	runner  *runner
	peer    Peer
	target  string
	st      *stack.Stack // as the target gets it
	stopped bool
}

// carry takes all steps of a move.
func (m *move) carry(ctx context.Context) error {
	if err := m.prepare(ctx); err != nil {
		return err
	}
	failpoint.Here("move-prepared")
	m.runner.moving.Store(true) // requests that change the stack are refused from now on
	defer m.runner.moving.Store(false)
	if err := m.checkSame(ctx); err != nil {
		return err
	}
	if err := m.stop(ctx); err != nil {
		return err
	}
	failpoint.Here("move-stopped")
	if err := m.copyData(ctx); err != nil {
		return err
	}
	failpoint.Here("move-copied")
	logs := func(_ context.Context, w io.Writer) error { return m.runner.cfg.Dir.Pack(m.st.ID, true, w) }
	if err := streaming(ctx, logs, func(r io.Reader) error { return m.peer.Start(ctx, m.st.ID, r) }); err != nil {
		return err
	}
	failpoint.Here("move-started")
	if err := m.hand(ctx); err != nil {
		return err
	}
	failpoint.Here("move-switched")
	m.finish()
	return nil
}

// prepare brings to the target all that is built.
func (m *move) prepare(ctx context.Context) error {
	if err := m.runner.sup.pushImages(ctx, m.st); err != nil {
		return err
	}
	offer := Offer{ID: m.st.ID, Epoch: m.runner.epoch, Attempt: m.st.Attempt}
	files := func(_ context.Context, w io.Writer) error { return m.runner.cfg.Dir.Pack(m.st.ID, false, w) }
	return streaming(ctx, files, func(r io.Reader) error { return m.peer.Prepare(ctx, offer, r) })
}

// checkSame returns errBuildFirst if the stack is another by now than the target has.
func (m *move) checkSame(ctx context.Context) error {
	now, err := m.runner.get(ctx)
	if err == nil && !m.isSame(now) {
		err = errBuildFirst
	}
	return err
}

func (m *move) isSame(now *stack.Stack) bool {
	return now.Deploying == 0 && now.Attempt == m.st.Attempt && now.Status == m.st.Status && now.CachesDropped == m.st.CachesDropped
}

// moveDrain is how long open requests may go on when a stack stops to be moved. Others wait
// meanwhile.
const moveDrain = 2 * time.Second

// stop ends what the stack runs. Requests wait from now on.
func (m *move) stop(ctx context.Context) error {
	r := m.runner
	m.stopped = true
	old := r.swapServed(nil)
	if r.cfg.Hold != nil && old != nil {
		r.cfg.Hold(r.id)
	} else {
		r.route(m.st, nil)
	}
	if old != nil {
		r.drainFor(moveDrain, old.allTargets())
		if err := old.endAll(ctx); err != nil {
			return err
		}
	}
	return r.sup.stopContainers(ctx, engine.Key{Stack: r.id})
}

// allTargets returns where the requests of the generation go.
func (g *generation) allTargets() []*proxy.Target {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(g.targets)), func(t *proxy.Target) bool { return t == nil })
}

// copyData brings the data of every service to the target, also of those that are not served
// any more.
func (m *move) copyData(ctx context.Context) error {
	there, err := m.runner.inventory(ctx)
	if err != nil {
		return err
	}
	for _, service := range servicesWithData(m.st, there) {
		if m.isFetched(ctx, service) {
			continue
		}
		if err := m.sendData(ctx, service); err != nil {
			return fmt.Errorf("data of service %s: %w", service, err)
		}
	}
	return nil
}

// isFetched reports whether the target has got the data of a service from the archive, which
// has that of an expired stack. If not, for whatever reason, this node sends it.
func (m *move) isFetched(ctx context.Context, service string) bool {
	if m.runner.cfg.Archive == nil || m.st.Status != stack.Expired || m.st.Service(service) == nil {
		return false
	}
	err := m.peer.Fetch(ctx, m.st.ID, service)
	if err != nil {
		m.runner.log.Info("data of an expired stack is sent, since the registry does not give it", "service", service, "error", err)
	}
	return err == nil
}

// sendData streams the data of a service to the target.
func (m *move) sendData(ctx context.Context, service string) error {
	image, err := m.runner.sup.helperImage(ctx, m.st)
	if err != nil {
		return err
	}
	key := dataKey(m.st, service)
	read := func(ctx context.Context, w io.Writer) error {
		return m.runner.cfg.Engine.ReadData(ctx, key, "", image, w)
	}
	return streaming(ctx, read, func(r io.Reader) error { return m.peer.Fill(ctx, m.st.ID, service, r) })
}

// servicesWithData returns the services that have a data volume or a snapshot.
func servicesWithData(st *stack.Stack, there engine.Objects) []string {
	services := map[string]bool{}
	for _, v := range there.Volumes {
		if v.Name == dataKey(st, v.Key.Service).Data() {
			services[v.Key.Service] = true
		}
	}
	for _, image := range there.Images {
		if slices.Contains(image.Tags, image.Key.Snapshot()) {
			services[image.Key.Service] = true
		}
	}
	return slices.Sorted(maps.Keys(services))
}

// streaming is engine.Stream for a reader that may close what it is given, as an HTTP client
// does, or leave what follows the end of a tar.
func streaming(ctx context.Context, write func(context.Context, io.Writer) error, read func(io.Reader) error) error {
	return engine.Stream(ctx, write, func(r io.Reader) error {
		err := read(struct{ io.Reader }{r})
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		return err
	})
}

// hand makes the target the owner. It tries until the database works and it is known which
// node the owner is.
func (m *move) hand(ctx context.Context) error {
	r := m.runner
	var tries store.Tries
	try := func() error {
		_, err := r.cfg.Store.Update(context.WithoutCancel(ctx), r.id, m.change, store.ByOwner(r.cfg.Node, r.epoch), store.Leaving(), store.OneOf(&tries))
		return err
	}
	err := r.retryStore(ctx, try)
	if tries.InDoubt != "" { // ctx has ended, perhaps since the row says that the target is the owner
		err = try()
		if tries.InDoubt != "" {
			r.doubtful.Store(true)
		}
	}
	return err
}

// change is the change of the row.
func (m *move) change(st *stack.Stack) (events []stack.Event, err error) {
	if !m.isSame(st) {
		return nil, errBuildFirst
	}
	if st.Status == stack.Live {
		events, err = st.Restored(m.runner.cfg.URLs)
	}
	st.Node, st.Epoch = m.target, m.runner.epoch+1
	return events, err
}

// takeWait is how long the target may take to serve what it owns. If it takes longer, requests
// are led to it all the same: it does so as soon as it can.
const takeWait = 10 * time.Second

// finish lets the target serve, and this node let go of the stack. Nothing ends it.
func (m *move) finish() {
	r := m.runner
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), takeWait)
	defer cancel()
	if err := m.peer.Take(ctx, m.st.ID); err != nil {
		r.log.Warn("the new owner of a stack does not answer; it serves the stack once it reads the database", "target", m.target, "error", err)
	}
	r.log.Info("stack moved", "target", m.target)
	r.disown()
}

// giveUp ends a move that failed before the target became the owner: the target removes what
// it has, and the stack serves again, unless whoever ended ctx sees to that.
func (m *move) giveUp(ctx context.Context) {
	r := m.runner
	r.sup.jobs.Go(func() {
		ctx, cancel := context.WithTimeout(r.sup.ctx, takeWait)
		defer cancel()
		if err := m.peer.Drop(ctx, m.st.ID); err != nil {
			r.log.Warn("the target of a move that failed does not answer; it removes its copies by itself", "target", m.target, "error", err)
		}
	})
	switch {
	case !m.stopped || ctx.Err() != nil:
	case m.st.Status == stack.Live:
		r.recoverStack(ctx)
	default:
		r.route(m.st, nil)
	}
}

// moveHold is how long a request that changes a stack waits while that moves, and moveLook how
// often it looks.
const (
	moveHold = 10 * time.Second
	moveLook = 50 * time.Millisecond
)

// AwaitMove waits while a stack of this node is stopped for a move to another one, for ten
// seconds at most, and reports whether it had to.
func (s *Supervisor) AwaitMove(ctx context.Context, id string) (waited bool) {
	ctx, cancel := context.WithTimeout(ctx, moveHold)
	defer cancel()
	for {
		if r := s.lookup(id); r == nil || !r.moving.Load() {
			return waited
		}
		waited = true
		if !pause.For(ctx, moveLook) {
			return waited
		}
	}
}

// errMoving is why a stack cannot be changed for a moment.
var errMoving = &stack.Error{
	Kind: stack.Unavailable, RetryAfter: 5 * time.Second,
	Detail: "the stack is moving to another node, which takes a few seconds; try again in a moment",
}
