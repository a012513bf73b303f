package webhook

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// dispatcherOf returns a dispatcher of a node, and what it sends.
func dispatcherOf(s *store.Store, node string, r *trips) *Dispatcher {
	c := standardConfig(s)
	c.Node = node
	d := New(c)
	d.transport = r
	return d
}

// giveTo makes a node the owner of a stack.
func giveTo(t *testing.T, s *store.Store, k *stack.Stack, node string) {
	t.Helper()
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Node, k.Epoch = node, k.Epoch+1
		return []stack.Event{{Type: stack.EventRestored}}, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// delivered returns the ids that were sent, the lowest first.
func delivered(r *trips) (ids []int64) {
	for _, a := range r.got() {
		id, _ := strconv.ParseInt(a.request.Header.Get("X-Service-Delivery"), 10, 64)
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func TestNodes_EachDeliversTheEventsOfItsOwnStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		k := hook(t, s, "https://example.com/hook")
		giveTo(t, s, k, "a")
		sent := map[string]*trips{"a": {status: 200}, "b": {status: 200}}
		begin(t, dispatcherOf(s, "a", sent["a"]))
		begin(t, dispatcherOf(s, "b", sent["b"]))
		first := record(t, s, k, extended())[0].ID
		time.Sleep(time.Minute)
		giveTo(t, s, k, "b")
		last := record(t, s, k, extended())[0].ID
		time.Sleep(time.Minute)
		if got := delivered(sent["a"]); got[len(got)-1] != first {
			t.Errorf("a sent %v, want the last to be %d", got, first)
		}
		if got := delivered(sent["b"]); len(got) != 2 || got[1] != last {
			t.Errorf("b sent %v, want the event of the handover, and %d", got, last)
		}
		checkMarkOf(t, s, "a", last)
		checkMarkOf(t, s, "b", last)
	})
}

// What the owner before had not begun to deliver is delivered by the next, even if that is
// killed before it has begun.
func TestNodes_TheNextOwnerDeliversWhatTheOneBeforeHadNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		k := hook(t, s, "https://example.com/hook")
		giveTo(t, s, k, "a")
		lost := dispatcherOf(s, "a", &trips{status: 200})
		if err := lost.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		lost.Close()
		want := []int64{record(t, s, k, extended())[0].ID, record(t, s, k, extended())[0].ID}
		killed := dispatcherOf(s, "b", &trips{status: 200})
		killed.lanes.close() // it begins nothing
		begin(t, killed)
		other := hook(t, s, "")
		giveTo(t, s, other, "b")
		record(t, s, other, extended())
		time.Sleep(time.Minute)
		giveTo(t, s, k, "b")
		time.Sleep(time.Minute)
		checkMarkOf(t, s, "b", want[0]-1)

		r := &trips{status: 200}
		begin(t, dispatcherOf(s, "b", r))
		time.Sleep(time.Minute)
		got := delivered(r)
		if len(got) != 3 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("sent are %v, want %v and the event of the handover", got, want)
		}
		if owed, err := s.OwedEvents(t.Context(), "b"); err != nil || len(owed) > 0 {
			t.Errorf("still owed are %v, %v", owed, err)
		}
	})
}

func checkMarkOf(t *testing.T, s *store.Store, node string, want int64) {
	t.Helper()
	if got, err := s.WebhookMark(t.Context(), node); err != nil || got != want {
		t.Errorf("the mark of %s is %d, %v, want %d", node, got, err, want)
	}
}
