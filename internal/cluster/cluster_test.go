package cluster_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/stack"
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
	ahead time.Duration   // of its clock
	away  map[string]bool // nodes that do not reach it
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

func (l *link) RegisterNode(ctx context.Context, n store.Node, hold time.Duration) (got store.Lease, err error) {
	taken := false
	err = l.with(func(nodes map[string]store.Node) {
		old, known := nodes[n.ID]
		if taken = known && old.Holder != n.Holder && old.LeaseUntil.After(l.rows.now()); !taken {
			if !known {
				old = n
			}
			old.Holder = n.Holder
			nodes[n.ID] = old
		}
	})
	if taken {
		return got, store.ErrLeaseTaken
	}
	if err != nil {
		return got, err
	}
	return l.RenewLease(ctx, n, hold)
}

func (l *link) RenewLease(_ context.Context, n store.Node, hold time.Duration) (got store.Lease, err error) {
	taken := false
	err = l.with(func(nodes map[string]store.Node) {
		row := nodes[n.ID]
		if taken = row.Holder != n.Holder; taken {
			return
		}
		got.At = l.rows.now()
		if !row.LeaseUntil.IsZero() && !row.LeaseUntil.After(got.At) {
			got.Over = row.LeaseUntil
		}
		row.Load, row.LeaseUntil, row.LostAt, row.Holder = n.Load, got.At.Add(hold), time.Time{}, n.Holder
		nodes[n.ID] = row
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

func newRows() *rows { return &rows{nodes: map[string]store.Node{}, away: map[string]bool{}} }

func wantState(t *testing.T, m *cluster.Membership, id string, want cluster.State) {
	t.Helper()
	if n, _ := m.Node(id); n.State != want {
		t.Errorf("after %+v, node %s is %q, want %q", n, id, n.State, want)
	}
}

func TestJoin_RefusesASecondServerOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		join(t, r, "n1", nil)
		second := config(r, "n1", nil)
		second.Self.Holder = "b"
		if _, err := cluster.Join(t.Context(), second); err == nil {
			t.Error("it joins")
		}
	})
}

// A server that stood still for longer than its lease may find another one in its place.
func TestRun_EndsTheServerWhoseNodeAnotherHasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ousted := newRows(), make(chan error, 100)
		first := config(r, "n1", nil)
		first.Ousted = func(why error) { ousted <- why }
		m, err := cluster.Join(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		go m.Run(t.Context())
		time.Sleep(lease)
		if len(ousted) > 0 {
			t.Fatal(<-ousted)
		}
		r.cut("n1", true)
		time.Sleep(lease + time.Second)
		r.cut("n1", false)
		second := config(r, "n1", nil)
		second.Self.Holder = "b"
		if _, err := cluster.Join(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		if why := <-ousted; !strings.Contains(why.Error(), "another berthd") || strings.Contains(why.Error(), "\n") {
			t.Error(why)
		}
		if time.Sleep(lease); m.HasLease() {
			t.Error("the first one has a lease")
		}
	})
}

func TestJoin_RefusesAClockThatDiffers(t *testing.T) {
	for ahead, refused := range map[time.Duration]bool{0: false, time.Second: false, 3 * time.Second: true, -3 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRows()
			r.ahead = ahead
			if _, err := cluster.Join(t.Context(), config(r, "n1", nil)); (err != nil) != refused {
				t.Errorf("ahead by %s: %v", ahead, err)
			}
		})
	}
}

func TestStates_FollowTheLeaseAndSwarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, says := newRows(), &swarm{}
		says.say(word("n1", "ready"), word("n2", "ready"))
		m := join(t, r, "n1", says)
		join(t, r, "n2", nil)
		time.Sleep(lease)
		wantState(t, m, "n2", cluster.Ready)
		r.cut("n2", true)
		time.Sleep(2 * lease)
		wantState(t, m, "n2", cluster.Away)
		time.Sleep(2 * grace)
		wantState(t, m, "n2", cluster.Away)
		says.say(word("n1", "ready"), word("n2", "down"))
		time.Sleep(lease)
		wantState(t, m, "n2", cluster.Lost)
		if !m.MayTakeOver("n2") {
			t.Error("its stacks may not be taken")
		}
		r.cut("n2", false)
		time.Sleep(lease)
		wantState(t, m, "n2", cluster.Ready)
	})
}

func TestLost_NeedsAWordThatIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		r.change("n2", func(n *store.Node) {
			n.ID, n.LeaseUntil = "n2", time.Now()
			n.Word, n.WordAt = word("n2", "down"), time.Now().Add(grace-time.Second)
		})
		time.Sleep(grace + lease/2)
		wantState(t, m, "n2", cluster.Lost)
		time.Sleep(2 * lease)
		wantState(t, m, "n2", cluster.Away)
	})
}

func TestMayTakeOver_NeedsALeaseThatNothingInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, says := newRows(), &swarm{}
		says.say(word("n1", "ready"), word("n2", "down"))
		m := join(t, r, "n1", says)
		join(t, r, "n2", nil)
		time.Sleep(2 * grace)
		r.cut("n1", true)
		r.cut("n2", true) // the database is away
		time.Sleep(2 * grace)
		r.cut("n1", false)
		time.Sleep(lease)
		wantState(t, m, "n2", cluster.Lost)
		if m.MayTakeOver("n2") {
			t.Error("an outage of the database lets it take over")
		}
		time.Sleep(grace)
		if !m.MayTakeOver("n2") {
			t.Error("it may not take over although the other had all the time to come back")
		}
	})
}

func TestMayTakeOver_WaitsWhileAManagerWasInContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, says := newRows(), &swarm{}
		says.say(word("n1", "ready"), word("n2", "down"))
		m := join(t, r, "n1", says)
		join(t, r, "n2", nil)
		r.cut("n2", true)
		for range 60 {
			time.Sleep(2 * time.Second)
			m.Contact("n2", false, time.Now())
		}
		time.Sleep(2 * time.Second)
		if m.MayTakeOver("n2") {
			t.Error("a node that has just been in contact may be taken")
		}
		time.Sleep(grace + 2*lease)
		if !m.MayTakeOver("n2") {
			t.Error("it may not be taken later")
		}
	})
}

func TestMayTakeOver_AnOperatorsWordStandsForSwarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		join(t, r, "n2", nil)
		time.Sleep(2 * grace)
		r.cut("n2", true)
		time.Sleep(2 * lease)
		r.change("n2", func(n *store.Node) { n.LostAt = time.Now() })
		time.Sleep(lease)
		wantState(t, m, "n2", cluster.Lost)
		if m.MayTakeOver("n2") {
			t.Error("it may be taken while it may still run its stacks")
		}
		time.Sleep(grace)
		if !m.MayTakeOver("n2") {
			t.Error("it may not be taken")
		}
	})
}

func TestIsolated_OnlyWithoutLeaseAndManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		changed, stop := m.Watch()
		defer stop()
		time.Sleep(2 * grace)
		if m.Isolated() || !m.HasLease() {
			t.Fatal("isolated with a lease")
		}
		r.cut("n1", true)
		for range 60 {
			time.Sleep(2 * time.Second)
			m.Contact("m1", true, time.Now())
			m.Contact("w1", false, time.Now())
		}
		if m.Isolated() || m.HasLease() {
			t.Error("isolated although it reaches a manager, or it still has its lease")
		}
		for range 29 {
			time.Sleep(2 * time.Second)
			m.Contact("w1", false, time.Now())
		}
		if m.Isolated() {
			t.Error("isolated too early")
		}
		for len(changed) > 0 {
			<-changed
		}
		time.Sleep(3 * time.Second)
		if !m.Isolated() || len(changed) != 1 {
			t.Errorf("isolated %v, told %d times", m.Isolated(), len(changed))
		}
		m.Stopped()
		r.cut("n1", false)
		time.Sleep(lease)
		if m.Isolated() || !m.HasLease() {
			t.Error("isolated although it is back")
		}
	})
}

// What others may have read stays so for a node that is cut off, whatever it sees meanwhile.
func TestSaidEmpty_IsWhatTheRowMaySay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		say := func(stacks ...string) {
			m.SetEmpty(stacks)
			time.Sleep(lease / 2)
		}
		say("a", "b")
		say("b")
		if got := m.SaidEmpty(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("the row says %v", got)
		}
		r.cut("n1", true)
		say("c")
		say()
		got := m.SaidEmpty()
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("the row may say %v", got)
		}
		r.cut("n1", false)
		say("d")
		if got := m.SaidEmpty(); !slices.Equal(got, []string{"d"}) {
			t.Errorf("the row says %v once the node is back", got)
		}
	})
}

// What the next server has to know is kept before others can read it, or they cannot.
func TestNote_ComesBeforeTheRowSaysWhatIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, cfg := newRows(), config(newRows(), "n1", nil)
		cfg.Store = r.from("n1")
		var full atomic.Bool
		cfg.Note = func(empty []string, renewed time.Time) error {
			if since := time.Since(renewed); since > lease/3 {
				t.Errorf("the last lease is from %s ago", since)
			}
			if row := r.empty("n1"); !slices.Equal(empty, []string{"a"}) || len(row) > 0 {
				t.Errorf("noted %q when the row says %q", empty, row)
			}
			if full.Load() {
				return errors.New("disk full")
			}
			return nil
		}
		m, err := cluster.Join(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		go m.Run(ctx)
		m.SetEmpty([]string{"a"})
		full.Store(true)
		time.Sleep(lease/3 + time.Second)
		if said := r.empty("n1"); len(said) > 0 {
			t.Errorf("the row says %q although that was not kept", said)
		}
		m.SetEmpty([]string{"a"})
		full.Store(false)
		time.Sleep(lease / 3)
		stop()
		synctest.Wait()
		if said := r.empty("n1"); !slices.Equal(said, []string{"a"}) {
			t.Errorf("the row says %q", said)
		}
	})
}

// A node that stood still may be back before it has noticed: it serves nothing until it has
// stopped what others may have taken.
func TestMayServe_NotUntilWhatOthersMayTakeIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		if !m.MayServe() {
			t.Error("it may not serve with its lease")
		}
		r.cut("n1", true)
		time.Sleep(lease + grace)
		if m.MayServe() || !m.Isolated() {
			t.Error("it may serve while it is isolated")
		}
		r.cut("n1", false)
		m.Contact("m1", true, time.Now())
		time.Sleep(lease)
		if m.MayServe() || !m.Isolated() || !m.HasLease() {
			t.Error("it may serve although nothing was stopped")
		}
		m.Stopped()
		if !m.MayServe() || m.Isolated() {
			t.Error("it may not serve with its lease again")
		}

		r.cut("n1", true)
		time.Sleep(lease + grace)
		m.Stopped()
		if !m.MayServe() || !m.Isolated() {
			t.Error("it may not serve the rest")
		}
		r.cut("n1", false)
		time.Sleep(lease)
		if !m.MayServe() || m.Isolated() {
			t.Error("isolated although it is back and all was stopped")
		}
	})
}

func TestIsolated_NeverAManagerThatSwarmAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, says := newRows(), &swarm{}
		m := join(t, r, "n1", says)
		r.cut("n1", true)
		time.Sleep(3 * grace)
		if m.Isolated() || !m.Manager() {
			t.Error("isolated")
		}
	})
}

// Swarm's word that is old counts as none, but a drain that has begun goes on, and an operator's
// does whatever Swarm says.
func TestDraining_GoesOnWhileSwarmSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		want := func(when, availability string, draining bool) {
			t.Helper()
			time.Sleep(lease / 2)
			n, _ := m.Node("n1")
			if n.Availability != availability || n.Draining != draining {
				t.Errorf("%s: %q, draining %v", when, n.Availability, n.Draining)
			}
		}
		says := func(availability string, ago time.Duration) {
			r.change("n1", func(n *store.Node) {
				n.Word, n.WordAt = store.Word{State: "ready", Availability: availability}, time.Now().Add(-ago)
			})
		}
		operator := func(drains bool) { r.change("n1", func(n *store.Node) { n.Draining = drains }) }
		says("drain", 2*grace)
		want("an old word", "", false)
		operator(true)
		want("an operator's", "", true)
		operator(false)
		want("no longer", "", false)
		says("drain", 0)
		want("Swarm's", "drain", true)
		time.Sleep(2 * grace)
		want("managers away", "", true)
		says("pause", 0)
		want("another word", "pause", false)
		time.Sleep(2 * grace)
		want("managers away again", "", false)
	})
}

// A node that Swarm had closed to new stacks takes none of its own while the managers restart.
func TestPlace_NotHereWhileSwarmSaysNothingAfterItClosedTheNode(t *testing.T) {
	for name, says := range map[string]store.Word{
		"pause": {State: "ready", Availability: "pause"},
		"label": {State: "ready", Availability: "active", Labels: map[string]string{"berth.place": "no"}},
		"":      {State: "ready", Availability: "active"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRows()
			m := join(t, r, "n1", nil)
			r.change("n1", func(n *store.Node) { n.Word, n.WordAt = says, time.Now() })
			for range 2 {
				time.Sleep(lease)
				if got, err := m.Place(t.Context(), nil); (err == nil) != (name == "") {
					t.Errorf("%q: placed on %q, %v", name, got, err)
				}
				time.Sleep(grace)
			}
		})
	}
}

func TestHeardAfter_OnceAManagerHasSaidSomethingSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		time.Sleep(lease)
		if m.HeardAfter(time.Now().Add(-time.Hour)) {
			t.Error("it has heard of Swarm without a manager")
		}
		asked := time.Now()
		join(t, r, "n2", &swarm{words: []store.Word{word("n1", "ready"), word("n2", "ready")}})
		if m.HeardAfter(asked) {
			t.Error("it has heard of Swarm before a manager said anything")
		}
		time.Sleep(lease)
		if !m.HeardAfter(asked) || m.HeardAfter(time.Now()) {
			t.Error("it has not heard what the manager said")
		}
	})
}

func TestGone_IsNoMemberAndItsRowGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, says := newRows(), &swarm{}
		says.say(word("n1", "ready"), word("n2", "ready"))
		m := join(t, r, "n1", says)
		join(t, r, "n2", nil)
		time.Sleep(lease)
		if !m.Member("n2") || m.Member("n9") {
			t.Error("who is a member is wrong")
		}
		r.cut("n2", true)
		says.say(word("n1", "ready"))
		time.Sleep(lease)
		if m.Member("n2") {
			t.Error("a node that left the swarm is a member")
		}
		time.Sleep(grace + lease)
		if n, ok := m.Node("n2"); ok {
			t.Errorf("its row stays: %+v", n)
		}
	})
}

func TestPlace_ChoosesTheNodeWithTheLeastToDo(t *testing.T) {
	ready := func(do func(*store.Node)) store.Node {
		n := store.Node{LeaseUntil: time.Now().Add(time.Hour), Word: word("", "ready"), WordAt: time.Now(), Load: store.Load{Room: 10 << 30}}
		do(&n)
		return n
	}
	for name, tt := range map[string]struct {
		self, other func(*store.Node)
		without     []string
		want        string
	}{
		"this one of equals":       {want: "n1"},
		"fewer builds":             {self: func(n *store.Node) { n.Load.Builds = 1 }, want: "n2"},
		"more room":                {other: func(n *store.Node) { n.Load.Room = 90 << 30 }, want: "n2"},
		"fewer builds first":       {other: func(n *store.Node) { n.Load.Room, n.Load.Builds = 90<<30, 1 }, want: "n1"},
		"not in pause":             {self: func(n *store.Node) { n.Word.Availability = "pause" }, want: "n2"},
		"not with drain":           {self: func(n *store.Node) { n.Word.Availability = "drain" }, want: "n2"},
		"not while draining":       {self: func(n *store.Node) { n.Draining = true }, want: "n2"},
		"not with the label":       {self: func(n *store.Node) { n.Word.Labels = map[string]string{"berth.place": "no"} }, want: "n2"},
		"not without Swarm's word": {self: func(n *store.Node) { n.Load.Builds = 1 }, other: func(n *store.Node) { n.WordAt = time.Now().Add(-11 * time.Second) }, want: "n1"},
		"here without it":          {self: func(n *store.Node) { n.WordAt, n.Word.Availability = time.Time{}, "pause" }, without: []string{"n2"}, want: "n1"},
		"not without its lease":    {other: func(n *store.Node) { n.Load.Room, n.LeaseUntil = 90<<30, time.Now() }, want: "n1"},
		"none that has been tried": {without: []string{"n1"}, want: "n2"},
		"nowhere":                  {without: []string{"n1", "n2"}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRows()
				for id, do := range map[string]func(*store.Node){"n1": tt.self, "n2": tt.other} {
					if do == nil {
						do = func(*store.Node) {}
					}
					r.nodes[id] = ready(do)
					r.change(id, func(n *store.Node) { n.ID, n.Holder = id, "a" })
				}
				cfg := config(r, "n1", nil)
				load := r.nodes["n1"].Load
				cfg.Self.Load, cfg.Load = load, func() (int, int64) { return load.Builds, load.Room }
				m, err := cluster.Join(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				got, err := m.Place(t.Context(), tt.without)
				failure, _ := errors.AsType[*stack.Error](err)
				if got != tt.want || (err != nil) != (tt.want == "") || err != nil && (failure == nil || failure.Kind != stack.Unavailable || failure.RetryAfter == 0) {
					t.Errorf("placed on %q, %v, want %q", got, err, tt.want)
				}
			})
		})
	}
}

func TestPlace_NotHereWhileTheClockIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		r.mu.Lock()
		r.ahead = time.Minute
		r.mu.Unlock()
		time.Sleep(lease)
		if got, err := m.Place(t.Context(), nil); err == nil {
			t.Errorf("placed on %s", got)
		}
	})
}

func TestCounts_NamesEveryState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, newRows(), "n1", nil)
		if diff := cmp.Diff(map[string]int{"ready": 1, "away": 0, "lost": 0}, m.Counts()); diff != "" {
			t.Error(diff)
		}
	})
}
