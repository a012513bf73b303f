package store_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

var nodeOne = store.Node{ID: "n1", Name: "w1", Address: "192.0.2.1:8443", Version: "v1", Holder: "a"}

// register makes a node known that has its lease for long.
func register(t *testing.T, s *store.Store, n store.Node, lease time.Duration) store.Lease {
	t.Helper()
	got, err := s.RegisterNode(t.Context(), n, lease)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// endLease takes the lease of a node for no time, so that it is over at once.
func endLease(t *testing.T, s *store.Store, n store.Node) {
	t.Helper()
	if _, err := s.RenewLease(t.Context(), n, 0); err != nil {
		t.Fatal(err)
	}
}

// nodeRow returns the row of a node.
func nodeRow(t *testing.T, s *store.Store, id string) store.Node {
	t.Helper()
	all, err := s.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if n.ID == id {
			return n
		}
	}
	t.Fatalf("no node %s in %+v", id, all)
	return store.Node{}
}

func (on suite) TestRegisterNode_MakesItKnownWithALease(t *testing.T) {
	s, _ := on.open(t)
	lease := register(t, s, nodeOne, time.Minute)
	if !lease.Over.IsZero() || time.Since(lease.At).Abs() > time.Minute {
		t.Errorf("lease %+v", lease)
	}
	got := nodeRow(t, s, "n1")
	if left := got.LeaseUntil.Sub(got.Now); left <= 50*time.Second || left > time.Minute {
		t.Errorf("the lease holds for %s", left)
	}
	want := nodeOne
	want.Word = store.Word{ID: "n1", Labels: map[string]string{}}
	got.LeaseUntil, got.Now = time.Time{}, time.Time{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func (on suite) TestRegisterNode_RefusesASecondHolderWhileTheLeaseHolds(t *testing.T) {
	s, db := on.open(t)
	other := nodeOne
	other.Holder = "b"
	register(t, s, nodeOne, time.Minute)
	if _, err := s.RegisterNode(t.Context(), other, time.Minute); !errors.Is(err, store.ErrLeaseTaken) {
		t.Errorf("a second holder: %v", err)
	}
	if again := register(t, db.open(t), nodeOne, time.Minute); !again.Over.IsZero() {
		t.Errorf("the same one again: %+v", again)
	}
	endLease(t, s, nodeOne)
	if after := register(t, s, other, time.Minute); after.Over.IsZero() {
		t.Errorf("a lease after one that was over: %+v", after)
	}
	if _, err := s.RenewLease(t.Context(), nodeOne, time.Minute); !errors.Is(err, store.ErrLeaseTaken) {
		t.Errorf("the one that lost its lease renews it: %v", err)
	}
}

func (on suite) TestRenewLease_SaysWhenItHadBeenOver(t *testing.T) {
	s, _ := on.open(t)
	register(t, s, nodeOne, time.Minute)
	renew := func(n store.Node) store.Lease {
		lease, err := s.RenewLease(t.Context(), n, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	if lease := renew(nodeOne); !lease.Over.IsZero() {
		t.Errorf("renewed in time: %+v", lease)
	}
	endLease(t, s, nodeOne)
	time.Sleep(5 * time.Millisecond)
	if lease := renew(nodeOne); lease.Over.IsZero() || !lease.Over.Before(lease.At) {
		t.Errorf("renewed too late: %+v", lease)
	}
	time.Sleep(5 * time.Millisecond)
	if lease := renew(nodeOne); !lease.Over.IsZero() {
		t.Errorf("renewed in time again: %+v", lease)
	}
}

func (on suite) TestRenewLease_KeepsWhatTheNodeSaysAndCountsItsStacks(t *testing.T) {
	s, _ := on.open(t)
	register(t, s, nodeOne, time.Minute)
	k := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Node = "n1"
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	create(t, s)
	busy := nodeOne
	busy.Load = store.Load{Builds: 3, Room: 1 << 40, Empty: []string{"stk_1"}}
	if _, err := s.RenewLease(t.Context(), busy, time.Minute); err != nil {
		t.Fatal(err)
	}
	want := store.Load{Stacks: 1, Builds: 3, Room: 1 << 40, Empty: []string{"stk_1"}}
	if diff := cmp.Diff(want, nodeRow(t, s, "n1").Load); diff != "" {
		t.Error(diff)
	}
	counts, err := s.CountByNode(t.Context())
	if diff := cmp.Diff(map[string]int{"": 1, "n1": 1}, counts); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// Others would take a stack as one without data, on the word of a server that ended long before.
func (on suite) TestRegisterNode_ForgetsWhatAnEarlierServerSaw(t *testing.T) {
	s, _ := on.open(t)
	register(t, s, nodeOne, time.Minute)
	seen := nodeOne
	seen.Load = store.Load{Builds: 1, Room: -1, Empty: []string{"stk_1"}}
	if _, err := s.RenewLease(t.Context(), seen, time.Minute); err != nil {
		t.Fatal(err)
	}
	other := nodeOne
	other.Holder = "b"
	if _, err := s.RegisterNode(t.Context(), other, time.Minute); !errors.Is(err, store.ErrLeaseTaken) {
		t.Fatal(err)
	}
	if got := nodeRow(t, s, "n1").Load; len(got.Empty) != 1 || got.Room != -1 {
		t.Errorf("after a server that was refused: %+v", got)
	}
	register(t, s, nodeOne, time.Minute)
	if got := nodeRow(t, s, "n1").Load; len(got.Empty) != 0 || got.Room != 0 {
		t.Errorf("after the next server: %+v", got)
	}
}

func (on suite) TestTakeWord_KeepsTheLatest(t *testing.T) {
	s, _ := on.open(t)
	register(t, s, nodeOne, time.Minute)
	ready := store.Word{ID: "n1", State: "ready", Availability: "active", Labels: map[string]string{"berth.place": "no"}, Manager: true}
	take := func(w store.Word, every time.Duration) store.Node {
		if err := s.TakeWord(t.Context(), w, every); err != nil {
			t.Fatal(err)
		}
		return nodeRow(t, s, "n1")
	}
	first := take(ready, time.Hour)
	if diff := cmp.Diff(ready, first.Word); diff != "" || first.Now.Sub(first.WordAt) > time.Minute {
		t.Errorf("at %s\n%s", first.WordAt, diff)
	}
	time.Sleep(5 * time.Millisecond)
	if again := take(ready, time.Hour); !again.WordAt.Equal(first.WordAt) {
		t.Error("the same word is written again at once")
	}
	if again := take(ready, time.Millisecond); !again.WordAt.After(first.WordAt) {
		t.Error("the same word is not written again later")
	}
	down := ready
	down.State = "down"
	if got := take(down, time.Hour); got.Word.State != "down" {
		t.Errorf("another word is not taken: %+v", got.Word)
	}
	if err := s.TakeWord(t.Context(), store.Word{ID: "n9"}, 0); err != nil {
		t.Errorf("about a node that has not registered: %v", err)
	}
}

func (on suite) TestSawNode_KeepsTheLatest(t *testing.T) {
	s, _ := on.open(t)
	register(t, s, nodeOne, time.Minute)
	for _, ago := range []time.Duration{time.Minute, time.Second, time.Hour} {
		if err := s.SawNode(t.Context(), "n1", ago); err != nil {
			t.Fatal(err)
		}
	}
	if n := nodeRow(t, s, "n1"); n.Now.Sub(n.SeenAt) < time.Second || n.Now.Sub(n.SeenAt) > 10*time.Second {
		t.Errorf("seen %s ago", n.Now.Sub(n.SeenAt))
	}
}

func (on suite) TestLoseNode_RefusesOneWithALeaseAndIsForgottenWhenItIsBack(t *testing.T) {
	s, _ := on.open(t)
	register(t, s, nodeOne, time.Minute)
	if err := s.LoseNode(t.Context(), "n1"); !errors.Is(err, store.ErrNodeReady) {
		t.Errorf("a ready node: %v", err)
	}
	for name, back := range map[string]func() error{
		"renews":    func() error { _, err := s.RenewLease(t.Context(), nodeOne, time.Minute); return err },
		"registers": func() error { _, err := s.RegisterNode(t.Context(), nodeOne, time.Minute); return err },
	} {
		endLease(t, s, nodeOne)
		if err := s.LoseNode(t.Context(), "n1"); err != nil {
			t.Fatal(err)
		}
		if nodeRow(t, s, "n1").LostAt.IsZero() {
			t.Error("it is not lost")
		}
		if err := back(); err != nil || !nodeRow(t, s, "n1").LostAt.IsZero() {
			t.Errorf("lost after it %s, %v", name, err)
		}
	}
}

func (on suite) TestDrainNode_IsKeptUntilItIsTakenBack(t *testing.T) {
	s, _ := on.open(t)
	register(t, s, nodeOne, time.Minute)
	for _, drain := range []bool{true, false} {
		if err := s.DrainNode(t.Context(), "n1", drain); err != nil {
			t.Fatal(err)
		}
		register(t, s, nodeOne, time.Minute)
		if got := nodeRow(t, s, "n1").Draining; got != drain {
			t.Errorf("draining %v, want %v", got, drain)
		}
	}
	if err := s.DrainNode(t.Context(), "n9", true); !errors.Is(err, store.ErrNoNode) {
		t.Errorf("an unknown node: %v", err)
	}
}

func (on suite) TestRemoveNode_RefusesOneWithALeaseOrStacks(t *testing.T) {
	s, _ := on.open(t)
	register(t, s, nodeOne, time.Minute)
	k := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Node, k.Status = "n1", stack.Live
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveNode(t.Context(), "n1"); !errors.Is(err, store.ErrNodeReady) {
		t.Errorf("with a lease: %v", err)
	}
	endLease(t, s, nodeOne)
	if err := s.RemoveNode(t.Context(), "n1"); !errors.Is(err, store.ErrNodeReady) {
		t.Errorf("with a stack: %v", err)
	}
	setStatus(t, s, k.ID, stack.Deleted)
	if err := s.RemoveNode(t.Context(), "n1"); err != nil {
		t.Error(err)
	}
	if all, err := s.Nodes(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left %+v, %v", all, err)
	}
}

func (on suite) TestInstall_IsMadeOnceByWhoeverIsFirst(t *testing.T) {
	s, db := on.open(t)
	if got, known, err := s.Installation(t.Context()); known || err != nil {
		t.Errorf("a new database belongs to %+v, %v", got, err)
	}
	stores := []*store.Store{s, db.open(t), db.open(t)}
	found := make([]store.Installation, len(stores))
	var starting sync.WaitGroup
	for i, s := range stores {
		starting.Go(func() {
			var err error
			want := store.Installation{ID: string(rune('a' + i)), KeyPrint: "print", BaseURL: "https://berth.example", AppsDomain: "berth.example", Cluster: "swarm"}
			if found[i], err = s.Install(t.Context(), want); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	for _, got := range found {
		if got != found[0] || got.KeyPrint != "print" {
			t.Errorf("installations %+v and %+v", found[0], got)
		}
	}
	for _, swarm := range []string{"one", "two"} {
		if err := s.SetSwarm(t.Context(), swarm); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Install(t.Context(), store.Installation{}); err != nil || got.Swarm != "one" || got.ID != found[0].ID {
		t.Errorf("after it: %+v, %v", got, err)
	}
}

func (on suite) TestNow_IsTheTimeOfTheDatabase(t *testing.T) {
	s, _ := on.open(t)
	now, err := s.Now(t.Context())
	if err != nil || time.Since(now).Abs() > time.Minute {
		t.Errorf("%s, %v", now, err)
	}
}
