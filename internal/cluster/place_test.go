package cluster_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

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

// joinPair joins n1, beside n2, both ready but for what the functions change; nil changes
// nothing. A node needs a room of 1 GiB.
func joinPair(t *testing.T, self, other func(*store.Node)) *cluster.Membership {
	t.Helper()
	r := newRows()
	for id, do := range map[string]func(*store.Node){"n1": self, "n2": other} {
		n := store.Node{LeaseUntil: time.Now().Add(time.Hour), Word: word("", "ready"), WordAt: time.Now(), Load: store.Load{Room: 10 << 30}}
		if do != nil {
			do(&n)
		}
		n.ID, n.Holder = id, "a"
		r.nodes[id] = n
	}
	cfg := config(r, "n1", nil)
	cfg.Floor = 1 << 30
	load := r.nodes["n1"].Load
	cfg.Self.Load, cfg.Load = load, func() (int, int64) { return load.Builds, load.Room }
	m, err := cluster.Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPlace_ChoosesTheNodeWithTheLeastToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		self, other func(*store.Node)
		without     []string
		want        string
	}{
		"this one of equals":       {want: "n1"},
		"fewer builds":             {self: func(n *store.Node) { n.Load.Builds = 1 }, want: "n2"},
		"more room":                {other: func(n *store.Node) { n.Load.Room = 90 << 30 }, want: "n2"},
		"fewer builds first":       {other: func(n *store.Node) { n.Load.Room, n.Load.Builds = 90<<30, 1 }, want: "n1"},
		"not on a full disk":       {self: func(n *store.Node) { n.Load.Room = 1<<30 - 1 }, other: func(n *store.Node) { n.Load.Builds = 5 }, want: "n2"},
		"nowhere else":             {self: func(n *store.Node) { n.Load.Room = 0 }, other: func(n *store.Node) { n.Load.Room = 0 }, want: "n1"},
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
				m := joinPair(t, tt.self, tt.other)
				got, err := m.Place(t.Context(), tt.without)
				failure, _ := errors.AsType[*stack.Error](err)
				if got != tt.want || (err != nil) != (tt.want == "") || err != nil && (failure == nil || failure.Kind != stack.Unavailable || failure.RetryAfter == 0) {
					t.Errorf("placed on %q, %v, want %q", got, err, tt.want)
				}
			})
		})
	}
}

func TestTakesLost_LikeNewStacks(t *testing.T) {
	for name, tt := range map[string]struct {
		self, other func(*store.Node)
		want        bool
	}{
		"as it is":            {want: true},
		"in pause":            {self: func(n *store.Node) { n.Word.Availability = "pause" }},
		"while it is drained": {self: func(n *store.Node) { n.Draining = true }},
		"with the label":      {self: func(n *store.Node) { n.Word.Labels = map[string]string{"berth.place": "no"} }},
		"without room":        {self: func(n *store.Node) { n.Load.Room = 1<<30 - 1 }},
		"if none has room":    {self: func(n *store.Node) { n.Load.Room = 0 }, other: func(n *store.Node) { n.Load.Room = 0 }, want: true},
		"if others take none": {self: func(n *store.Node) { n.Load.Room = 0 }, other: func(n *store.Node) { n.Word.Availability = "pause" }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := joinPair(t, tt.self, tt.other)
				if got := m.TakesLost(); got != tt.want {
					t.Errorf("it takes some: %t", got)
				}
			})
		})
	}
}

// A node whose clock is wrong gets no new stacks, neither by itself nor from the others, and takes
// none that were lost.
func TestPlace_NotWhereTheClockIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, says := newRows(), &swarm{}
		says.say(word("n1", "ready"), word("n2", "ready"))
		nodes := map[string]*cluster.Membership{"n1": join(t, r, "n1", says), "n2": join(t, r, "n2", nil)}
		want := func(without []string, node string) {
			t.Helper()
			time.Sleep(2 * lease)
			for asked, m := range nodes {
				got, err := m.Place(t.Context(), without)
				if got != node || (err != nil) != (node == "") {
					t.Errorf("%s places on %q without %q, %v; want %q", asked, got, without, err, node)
				}
			}
		}
		want([]string{"n1"}, "n2")
		r.slowClock("n2", time.Minute)
		want(nil, "n1")
		want([]string{"n1"}, "")
		if m := nodes["n2"]; !m.ClockWrong() || m.TakesLost() || !nodes["n1"].TakesLost() {
			t.Error("a node whose clock is wrong takes lost stacks, or one whose clock is right does not")
		}
		r.slowClock("n2", 0)
		want([]string{"n1"}, "n2")
		if m := nodes["n2"]; m.ClockWrong() || !m.TakesLost() {
			t.Error("it takes no lost stacks although its clock is right again")
		}
	})
}

// The builds of new stacks would be cut off.
func TestPlace_NotOnANodeThatIsAboutToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := joinPair(t, nil, func(n *store.Node) { n.Load.Room = cluster.NoRoom })
		if got, err := m.Place(t.Context(), []string{"n1"}); err == nil {
			t.Errorf("placed on %s", got)
		}
	})
}
