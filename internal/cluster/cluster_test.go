package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/store"
)

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

// One of several managers may be cut off and not know it yet.
func TestMayTakeOver_WaitsLongerWithSeveralManagers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, says := newRows(), &swarm{}
		managers := []store.Word{word("n1", "ready"), word("n2", "ready"), word("n3", "down")}
		managers[0].Manager, managers[1].Manager = true, true
		says.say(managers...)
		m := join(t, r, "n1", says)
		join(t, r, "n2", nil)
		join(t, r, "n3", nil)
		time.Sleep(2 * grace)
		m.Contact("n3", false, time.Now())
		r.cut("n3", true)
		time.Sleep(grace + 2*lease)
		wantState(t, m, "n3", cluster.Lost)
		if m.MayTakeOver("n3") {
			t.Error("it may be taken while a manager that is cut off as well may have been in contact with it")
		}
		time.Sleep(20 * time.Second)
		if !m.MayTakeOver("n3") {
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

// seenNow are stacks that were seen without data just now.
func seenNow(stacks ...string) map[string]time.Time {
	seen := map[string]time.Time{}
	for _, id := range stacks {
		seen[id] = time.Now()
	}
	return seen
}

// A lease says of no stack that it has no data if that was seen more than 10 s before its end.
func TestSetEmpty_CountsFromWhenEachStackWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		seen := seenNow("lately")
		seen["long ago"] = time.Now().Add(-time.Second) // 9 s before the end of the next lease
		m.SetEmpty(seen)
		time.Sleep(lease/3 + time.Second/2)
		if got := r.empty("n1"); !slices.Equal(got, []string{"lately", "long ago"}) {
			t.Errorf("the row says %q", got)
		}
		time.Sleep(lease/3 + time.Second)
		if got := r.empty("n1"); slices.Contains(got, "long ago") {
			t.Errorf("the row says %q", got)
		}
	})
}

// What others may have read stays so for a node that is cut off, whatever it sees meanwhile.
func TestSaidEmpty_IsWhatTheRowMaySay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		say := func(stacks ...string) {
			m.SetEmpty(seenNow(stacks...))
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
		m.SetEmpty(seenNow("a"))
		full.Store(true)
		time.Sleep(lease/3 + time.Second)
		if said := r.empty("n1"); len(said) > 0 {
			t.Errorf("the row says %q although that was not kept", said)
		}
		m.SetEmpty(seenNow("a"))
		full.Store(false)
		time.Sleep(lease / 3)
		stop()
		synctest.Wait()
		if said := r.empty("n1"); !slices.Equal(said, []string{"a"}) {
			t.Errorf("the row says %q", said)
		}
	})
}

// A server does not know what the one before it saw, so nobody else may go by that from the moment
// on at which it has the lease. Until then the next server has to know what that one noted.
func TestJoin_ForgetsWhatTheServerBeforeSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		before, err := cluster.Join(t.Context(), config(r, "n1", nil))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		go before.Run(ctx)
		before.SetEmpty(seenNow("a"))
		time.Sleep(lease / 2)
		stop()
		synctest.Wait()
		if got := r.empty("n1"); !slices.Equal(got, []string{"a"}) {
			t.Fatalf("the row says %q", got)
		}

		cfg := config(r, "n1", nil)
		cfg.Note = func(empty []string, _ time.Time) error {
			if row := r.empty("n1"); len(row) > 0 {
				t.Errorf("noted %q while the row says %q", empty, row)
			}
			return nil
		}
		r.cut("n1", true)
		if _, err := cluster.Join(t.Context(), cfg); err == nil {
			t.Error("it joins without the database")
		}
		r.cut("n1", false)
		m, err := cluster.Join(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.cut("n1", true)
		go m.Run(t.Context())
		time.Sleep(lease + grace)
		if !m.Isolated() {
			t.Error("it is not isolated")
		}
		if row, stops := r.empty("n1"), m.SaidEmpty(); !slices.Equal(row, stops) {
			t.Errorf("it stops %q, and others may take %q", stops, row)
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

// A machine that is suspended does not count that time, and serves nothing that others may have
// taken meanwhile.
func TestMayServe_NotAfterTheMachineStoodStillForLong(t *testing.T) {
	for still, long := range map[time.Duration]bool{grace - lease: false, grace + lease: true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRows()
			m := join(t, r, "n1", nil)
			m.SetEmpty(seenNow("a"))
			time.Sleep(lease / 2)
			r.pass(still)
			m.SetEmpty(nil)
			m.Contact("m1", true, time.Now()) // it may be back for others first
			time.Sleep(lease / 2)
			if m.MayServe() == long || m.Isolated() != long || !m.HasLease() {
				t.Errorf("after %s: may serve %v, isolated %v", still, m.MayServe(), m.Isolated())
			}
			if said := m.SaidEmpty(); slices.Contains(said, "a") != long {
				t.Errorf("after %s: others may have taken %q", still, said)
			}
			m.Stopped()
			time.Sleep(lease)
			if !m.MayServe() || m.Isolated() || len(m.SaidEmpty()) > 0 {
				t.Errorf("after %s: it may not serve although all was stopped", still)
			}
		})
	}
}

// A database that was away for long has taken no time from this node's clock.
func TestMayServe_AfterAnOutageOfTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		m := join(t, r, "n1", nil)
		time.Sleep(lease)
		r.cut("n1", true)
		for range 60 {
			time.Sleep(2 * time.Second)
			m.Contact("m1", true, time.Now())
		}
		r.cut("n1", false)
		time.Sleep(lease)
		if !m.MayServe() || m.Isolated() || !m.HasLease() {
			t.Error("isolated although it was in contact with a manager")
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

// A worker with certificates of its own may be in another swarm and not know its id.
func TestGone_IsSaidInTheNodesOwnLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, says := newRows(), &swarm{}
		says.say(word("n1", "ready"))
		join(t, r, "n1", says)
		var log bytes.Buffer // no two goroutines write at a time
		cfg := config(r, "n2", nil)
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		m, err := cluster.Join(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		go m.Run(t.Context())
		time.Sleep(4 * lease)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "managers of this cluster do not know this node") != 1 {
			t.Error(got)
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
