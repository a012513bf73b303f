package cluster_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/store"
)

const (
	lease = 6 * time.Second
	grace = time.Minute
)

// rows is a database of nodes in memory.
type rows struct {
	mu    sync.Mutex
	nodes map[string]store.Node
	ahead time.Duration            // of its clock
	slow  map[string]time.Duration // how far it is ahead of a node's clock besides
	away  map[string]bool          // nodes that do not reach it
}

var errAway = errors.New("away")

func (r *rows) now() time.Time { return time.Now().Add(r.ahead) }

// from returns the database as a node reaches it.
func (r *rows) from(node string) *link { return &link{r, node} }

// change changes the row of a node.
func (r *rows) change(id string, do func(*store.Node)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[id]
	do(&n)
	r.nodes[id] = n
}

// empty returns what the row of a node says.
func (r *rows) empty(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[id].Load.Empty
}

// slowClock makes the clock of a node slow.
func (r *rows) slowClock(node string, by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow[node] = by
}

// pass makes time pass that no node counts, as while all of their machines stand still.
func (r *rows) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead += d
}

func (r *rows) cut(node string, away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away[node] = away
}

type link struct {
	rows *rows
	node string
}

// with calls do with the database, if the node reaches it.
func (l *link) with(do func(nodes map[string]store.Node)) error {
	l.rows.mu.Lock()
	defer l.rows.mu.Unlock()
	if l.rows.away[l.node] {
		return errAway
	}
	do(l.rows.nodes)
	return nil
}

func (l *link) Nodes(context.Context) (all []store.Node, err error) {
	err = l.with(func(nodes map[string]store.Node) {
		for _, n := range nodes {
			n.Now = l.rows.now()
			all = append(all, n)
		}
	})
	return all, err
}

func (l *link) RegisterNode(_ context.Context, n store.Node, hold time.Duration) (got store.Lease, err error) {
	taken := false
	err = l.with(func(nodes map[string]store.Node) {
		row, known := nodes[n.ID]
		if taken = known && row.Holder != n.Holder && row.LeaseUntil.After(l.rows.now()); taken {
			return
		}
		row.ID, row.Name, row.Address, row.Version, row.Holder = n.ID, n.Name, n.Address, n.Version, n.Holder
		row.Load.Room, row.Load.Empty = 0, nil
		nodes[n.ID], got = l.extend(row, hold)
	})
	if taken {
		err = store.ErrLeaseTaken
	}
	return got, err
}

// extend makes the lease of a row hold from now on.
func (l *link) extend(row store.Node, hold time.Duration) (store.Node, store.Lease) {
	now, over := l.rows.now(), time.Time{}
	if !row.LeaseUntil.IsZero() && !row.LeaseUntil.After(now) {
		over = row.LeaseUntil
	}
	row.LeaseUntil, row.LostAt = now.Add(hold), time.Time{}
	return row, store.Lease{At: now.Add(l.rows.slow[l.node]), Over: over}
}

func (l *link) RenewLease(_ context.Context, n store.Node, hold time.Duration) (got store.Lease, err error) {
	taken := false
	err = l.with(func(nodes map[string]store.Node) {
		row := nodes[n.ID]
		if taken = row.Holder != n.Holder; taken {
			return
		}
		row.Load = n.Load
		nodes[n.ID], got = l.extend(row, hold)
	})
	if taken {
		err = store.ErrLeaseTaken
	}
	return got, err
}

func (l *link) TakeWord(_ context.Context, w store.Word, _ time.Duration) error {
	return l.with(func(nodes map[string]store.Node) {
		if n, ok := nodes[w.ID]; ok {
			n.Word, n.WordAt = w, l.rows.now()
			nodes[w.ID] = n
		}
	})
}

func (l *link) SawNode(_ context.Context, id string, ago time.Duration) error {
	return l.with(func(nodes map[string]store.Node) {
		if n, ok := nodes[id]; ok {
			n.SeenAt = l.rows.now().Add(-ago)
			nodes[id] = n
		}
	})
}

func (l *link) RemoveNode(_ context.Context, id string) error {
	return l.with(func(nodes map[string]store.Node) { delete(nodes, id) })
}

// swarm is a swarm as its managers see it; a nil one answers nobody.
type swarm struct {
	mu    sync.Mutex
	words []store.Word
}

func (s *swarm) Words(context.Context) ([]store.Word, error) {
	if s == nil {
		return nil, errors.New("this node is not a manager")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.words, nil
}

func (s *swarm) say(words ...store.Word) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words = words
}

func word(id, state string) store.Word {
	return store.Word{ID: id, State: state, Availability: "active", Labels: map[string]string{}}
}

func config(r *rows, id string, says *swarm) cluster.Config {
	return cluster.Config{
		Store: r.from(id), Swarm: says,
		Self:  store.Node{ID: id, Name: "host-" + id, Address: id + ":8443", Holder: "a"},
		Lease: lease, Grace: grace, Load: func() (int, int64) { return 0, 10 << 30 },
		Failed: func() {}, Note: func([]string, time.Time) error { return nil }, Ousted: func(error) {}, Log: slog.New(slog.DiscardHandler),
	}
}

// join runs the membership of a node until the test ends.
func join(t *testing.T, r *rows, id string, says *swarm) *cluster.Membership {
	t.Helper()
	m, err := cluster.Join(t.Context(), config(r, id, says))
	if err != nil {
		t.Fatal(err)
	}
	go m.Run(t.Context())
	return m
}

func newRows() *rows {
	return &rows{nodes: map[string]store.Node{}, slow: map[string]time.Duration{}, away: map[string]bool{}}
}

func wantState(t *testing.T, m *cluster.Membership, id string, want cluster.State) {
	t.Helper()
	if n, _ := m.Node(id); n.State != want {
		t.Errorf("after %+v, node %s is %q, want %q", n, id, n.State, want)
	}
}
