// Package cluster knows the nodes of an installation that runs on several machines: which
// of them are there, which may be given new stacks, and which are lost.
//
// A Membership keeps the lease of its own node and a copy in memory of the rows of all,
// which it reads three times in the time of a lease. On a manager of Swarm it also writes
// what Swarm says about each node. Certificates are those by which nodes know each other.
//
// How long something has lasted is measured in two ways: by the clock of the database for
// other nodes, and by the monotonic clock of this machine for what this node may do. Code in
// this package touches the rows of nodes, no stack's row and no container.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/store"
)

const (
	// wordLife is how long Swarm's word about a node counts.
	wordLife = 10 * time.Second
	// wordEvery is how often a manager asks Swarm.
	wordEvery = 2 * time.Second
	// NoRoom is the room of a node that takes no new stacks, whatever Swarm says of it.
	NoRoom = -1
	// MaxSkew is how far the clocks of this machine and of the database may differ.
	MaxSkew = 2 * time.Second
)

// Store keeps the nodes; package store implements it.
type Store interface {
	Nodes(ctx context.Context) ([]store.Node, error)
	RegisterNode(ctx context.Context, n store.Node, lease time.Duration) (store.Lease, error)
	RenewLease(ctx context.Context, n store.Node, lease time.Duration) (store.Lease, error)
	TakeWord(ctx context.Context, w store.Word, every time.Duration) error
	SawNode(ctx context.Context, id string, ago time.Duration) error
	RemoveNode(ctx context.Context, id string) error
}

// Swarm says what is known of the nodes; package docker implements it.
type Swarm interface {
	// Words returns Swarm's word about every node of the swarm. It fails on a node that is
	// not a manager, and on a manager that reaches too few others.
	Words(ctx context.Context) ([]store.Word, error)
}

// Config is what a Membership needs.
type Config struct {
	Store  Store
	Swarm  Swarm
	Self   store.Node // ID, Name, Address, Version and Holder
	Lease  time.Duration
	Grace  time.Duration                   // BERTH_NODE_GRACE
	Load   func() (builds int, room int64) // of this node; room is the free bytes of its fullest disk, NoRoom while it takes no new stacks
	Floor  int64                           // BERTH_DISK_FLOOR, in bytes
	Failed func()                          // called after each failed renewal
	// Note keeps for the next server, before each renewal, of which stacks others may then read
	// that they have no data, and when the last lease was asked for. If it fails, they read none.
	Note   func(empty []string, renewed time.Time) error
	Ousted func(error) // called when another server has this node's lease, or the node is gone
	Log    *slog.Logger
}

// Membership is this node's part in the cluster. Its methods may be called by several
// goroutines at once, and answer from memory.
type Membership struct {
	cfg Config

	mu       sync.Mutex
	nodes    map[string]Node
	order    []string // of nodes, by name
	readAt   time.Time
	until    time.Time            // when the lease of this node ends, by the monotonic clock
	since    time.Time            // since when it has had the lease without a gap
	renewed  time.Time            // when it last asked for the lease and got it
	given    time.Time            // when the database gave it that one, by the database's clock
	contact  time.Time            // when it was last in contact with a manager
	speaks   time.Time            // when Swarm last answered this manager
	met      map[string]time.Time // contacts with other nodes that a manager has not written yet
	empty    map[string]time.Time // of this node, see SetEmpty
	said     []string             // stacks that the row of this node may name as empty
	skewed   bool
	had      bool // the lease, as the watchers know it
	isolated bool // as the watchers know it
	lapsed   bool // it was isolated or stood still, and what others may take has not been stopped since
	stopped  bool // it is isolated, and what others may take has been stopped
	watchers map[chan struct{}]bool
}

// Join registers the node with a lease and reads the others. It refuses if another server
// runs for the same node, or the clocks differ too much.
func Join(ctx context.Context, cfg Config) (*Membership, error) {
	m := &Membership{cfg: cfg, nodes: map[string]Node{}, met: map[string]time.Time{}, watchers: map[chan struct{}]bool{}}
	begun := time.Now()
	lease, err := cfg.Store.RegisterNode(ctx, cfg.Self, cfg.Lease)
	if errors.Is(err, store.ErrLeaseTaken) {
		return nil, fmt.Errorf("another berthd runs for node %s (%s), with another data directory; stop it, or wait %s if it has died", cfg.Self.Name, cfg.Self.ID, cfg.Lease)
	}
	if err != nil {
		return nil, err
	}
	if skew := skewOf(lease.At, begun, time.Now()); skew.Abs() > MaxSkew {
		return nil, fmt.Errorf("the clock of this machine differs by %s from the database's; set it, for example with chrony or systemd-timesyncd", skew.Round(time.Millisecond))
	}
	m.gotLease(lease, begun)
	return m, m.read(ctx)
}

// Run keeps the lease and the copy of the nodes until ctx ends.
func (m *Membership) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { m.every(ctx, m.Interval(), m.renew) })
	running.Go(func() { m.every(ctx, m.Interval(), m.reread) })
	running.Go(func() { m.every(ctx, wordEvery, m.speak) })
	running.Go(func() { m.every(ctx, m.Interval()/4, func(context.Context) { m.notice() }) })
	running.Wait()
}

// Interval is how often the lease is renewed. Nodes should be in contact with the managers
// as often.
func (m *Membership) Interval() time.Duration { return m.cfg.Lease / 3 }

// every calls do now and then until ctx ends. A call that takes longer than the interval is
// given up.
func (m *Membership) every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	for pause.For(ctx, interval) {
		limited, cancel := context.WithTimeout(ctx, max(interval, time.Second))
		do(limited)
		cancel()
	}
}

// renew renews the lease.
func (m *Membership) renew(ctx context.Context) {
	self := m.cfg.Self
	self.Load.Builds, self.Load.Room = m.load()
	self.Load.Empty = m.sayEmpty()
	if err := m.note(); err != nil {
		m.cfg.Log.Warn("others are not told which stacks have no data, since the next server would not know", "error", err)
		self.Load.Empty = nil
	}
	begun := time.Now()
	lease, err := m.cfg.Store.RenewLease(ctx, self, m.cfg.Lease)
	if errors.Is(err, store.ErrLeaseTaken) {
		m.cfg.Ousted(fmt.Errorf("node %s (%s) is not this server's any more: another berthd with another data directory has taken it, or it was removed from the cluster; run one berthd on each node", self.Name, self.ID))
		return
	}
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			m.cfg.Failed()
			m.cfg.Log.Warn("the lease of this node was not renewed", "error", err)
		}
		m.notice()
		return
	}
	m.gotLease(lease, begun)
	m.confirmEmpty(self.Load.Empty)
	m.checkClock(skewOf(lease.At, begun, time.Now()))
	m.notice()
}

// load is like Config.Load. While the clock of this machine is wrong there is no room.
func (m *Membership) load() (builds int, room int64) {
	builds, room = m.cfg.Load()
	if m.ClockWrong() {
		room = NoRoom
	}
	return builds, room
}

// ClockWrong reports whether the clock of this machine differed too much from the database's when
// the lease was last renewed.
func (m *Membership) ClockWrong() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.skewed
}

// emptyLife is how long before the end of a lease stacks were last seen without data, if that
// is to count.
const emptyLife = 10 * time.Second

// SetEmpty says which stacks of this node were last seen without data, and when. Others may take
// them if this node is lost soon.
func (m *Membership) SetEmpty(seen map[string]time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.empty = seen
}

// seenEmpty returns what SetEmpty said, without what was seen too long ago.
func (m *Membership) seenEmpty() (stacks []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, at := range m.empty {
		if time.Since(at)+m.cfg.Lease <= emptyLife {
			stacks = append(stacks, id)
		}
	}
	slices.Sort(stacks)
	return stacks
}

// sayEmpty is like seenEmpty, and notes that the row may name these stacks from now on.
func (m *Membership) sayEmpty() []string {
	empty := m.seenEmpty()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = slices.Compact(slices.Sorted(slices.Values(append(m.said, empty...))))
	return empty
}

// note calls Config.Note.
func (m *Membership) note() error {
	m.mu.Lock()
	said, renewed := slices.Clone(m.said), m.renewed
	m.mu.Unlock()
	return m.cfg.Note(said, renewed)
}

// confirmEmpty notes that the row names these stacks, and no others. What others may have taken
// before that counts until it has been stopped.
func (m *Membership) confirmEmpty(empty []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.lapsed {
		m.said = slices.Clone(empty)
	}
}

// SaidEmpty returns the stacks of this node of which others may have read that they have no
// data. Renewals of which nobody knows whether they came count.
func (m *Membership) SaidEmpty() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.said)
}

// gotLease takes a lease that was asked for at begun. One that was over meanwhile, for the
// database or for this node, begins anew.
func (m *Membership) gotLease(lease store.Lease, begun time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.noteIsolation()()
	if !lease.Over.IsZero() && !m.renewed.IsZero() {
		m.cfg.Log.Warn("the lease of this node was over", "since", lease.Over, "until", lease.At)
		m.lapsed = m.lapsed || m.stoodStill(lease, begun) && !m.stopped
	}
	if !lease.Over.IsZero() || !m.until.After(time.Now()) {
		m.since = begun
	}
	m.renewed, m.given, m.until = begun, lease.At, begun.Add(m.cfg.Lease)
}

// stoodStill reports whether a lease that was asked for at begun had been over for so long that
// others may have taken stacks, and this machine has stood still meanwhile, as one does that is
// suspended: its monotonic clock did not count that time. If the clock has lost less than the
// lease, isIsolated still comes first; a request that takes long looks like a loss of Interval.
// The caller has locked m.
func (m *Membership) stoodStill(lease store.Lease, begun time.Time) bool {
	lost := lease.At.Sub(m.given) - begun.Sub(m.renewed)
	return lost >= m.cfg.Lease-m.Interval() && lease.At.Sub(lease.Over) >= m.cfg.Grace
}

// skewOf returns how far the clock of this machine is ahead of the database's, which said at
// between two readings of this machine's. It is 0 if it may be.
func skewOf(at, before, after time.Time) time.Duration {
	at, before, after = at.Round(0), before.Round(0), after.Round(0)
	switch {
	case at.Before(before):
		return before.Sub(at)
	case at.After(after):
		return after.Sub(at)
	}
	return 0
}

// checkClock notes whether the clocks differ too much, and logs a change.
func (m *Membership) checkClock(skew time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	skewed := skew.Abs() > MaxSkew
	if skewed && !m.skewed {
		m.cfg.Log.Error("the clock of this machine differs from the database's, so this node takes no new stacks; set the clock", "ahead", skew)
	}
	if !skewed && m.skewed {
		m.cfg.Log.Info("the clock of this machine is right again")
	}
	m.skewed = skewed
}

// reread reads the nodes again, as far as the database can be reached.
func (m *Membership) reread(ctx context.Context) {
	if err := m.read(ctx); err != nil && ctx.Err() == nil {
		m.cfg.Log.Warn("nodes not read", "error", err)
	}
}

func (m *Membership) read(ctx context.Context) error {
	begun := time.Now()
	rows, err := m.cfg.Store.Nodes(ctx)
	if err != nil {
		return err
	}
	m.take(rows, begun)
	return nil
}

// take replaces the copy of the nodes, and wakes the watchers if something has changed that
// is not just the passing of time.
func (m *Membership) take(rows []store.Node, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.nodes
	m.nodes, m.order, m.readAt = map[string]Node{}, nil, at
	changed := len(before) != len(rows)
	for _, row := range rows {
		old, known := before[row.ID]
		n := nodeOf(row, m.cfg.Grace).after(old)
		changed = changed || !known || n.differs(old)
		if known && old.State != n.State {
			m.cfg.Log.Info("node is "+string(n.State), "node", n.Name, "id", n.ID, "before", old.State)
		}
		if n.ID == m.cfg.Self.ID && n.Gone && !old.Gone {
			m.cfg.Log.Error("the managers of this cluster do not know this node, so the other nodes do not believe it and give it no stacks; join the machine to their swarm, or stop berthd on it")
		}
		m.nodes[n.ID] = n
		m.order = append(m.order, n.ID)
	}
	if changed {
		m.wake()
	}
}

// Watch returns a channel that receives a value after each change: of a node, of whether
// this node has its lease, or of whether it is isolated. One unreceived value stands for all
// that follow. The caller calls stop when it no longer listens.
func (m *Membership) Watch() (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers[ch] = true
	return ch, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, ch)
	}
}

// wake wakes the watchers; the caller has locked m.
func (m *Membership) wake() {
	for ch := range m.watchers {
		select {
		case ch <- struct{}{}:
		default: // not received yet: it stands for this one too
		}
	}
}

// notice wakes the watchers if this node has got or lost its lease, or its isolation has
// begun or ended.
func (m *Membership) notice() {
	m.mu.Lock()
	defer m.mu.Unlock()
	has, isolated := m.hasLease(), m.lapsed || m.isIsolated()
	if has == m.had && isolated == m.isolated {
		return
	}
	if isolated && !m.isolated {
		m.cfg.Log.Error("this node has had neither its lease nor contact with a manager for too long, or stood still; others may take its stacks", "grace", m.cfg.Grace)
	}
	m.had, m.isolated = has, isolated
	m.wake()
}
