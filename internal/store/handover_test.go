package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// wantRemains checks what nodes have of stacks of others, times apart.
func wantRemains(t *testing.T, s *store.Store, want ...store.Remains) {
	t.Helper()
	got, err := s.RemainsOn(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(store.Remains{}, "Since", "SeenAt")); diff != "" {
		t.Errorf("nodes have (-want +got):\n%s", diff)
	}
}

func (on suite) TestHandOver_RecordsWhatTheNodeBeforeMayHave(t *testing.T) {
	s, _ := on.open(t)
	k := createOn(t, s, "a")
	wantRemains(t, s)
	k = moveTo(t, s, k, "b")
	wantRemains(t, s, store.Remains{StackID: k.ID, Node: "a"})
	woken, stop := s.Watch(k.ID)
	defer stop()
	if err := s.MarkRemains(t.Context(), k.ID, "a", []string{"web"}); err != nil {
		t.Fatal(err)
	}
	<-woken
	wantRemains(t, s, store.Remains{StackID: k.ID, Node: "a", Volumes: []string{"web"}})
	if r, ok, err := s.Remains(t.Context(), k.ID, "a"); err != nil || !ok || r.Since.IsZero() || time.Since(r.SeenAt) > time.Minute {
		t.Errorf("Remains = %+v, %t, %v", r, ok, err)
	}
	if _, ok, err := s.Remains(t.Context(), k.ID, "b"); ok || err != nil {
		t.Errorf("something remains on the owner, %v", err)
	}

	expect(t, s, k, "a")
	k = moveTo(t, s, k, "a", store.Leaving())
	wantRemains(t, s, store.Remains{StackID: k.ID, Node: "b", AllGo: true})
	expect(t, s, k, "c")
	wantRemains(t, s, store.Remains{StackID: k.ID, Node: "b", AllGo: true}, store.Remains{StackID: k.ID, Node: "c", AllGo: true, Expected: true})
	if err := s.ForgetRemains(t.Context(), k.ID, "b"); err != nil {
		t.Fatal(err)
	}
	k = moveTo(t, s, k, "c", store.Leaving())
	wantRemains(t, s, store.Remains{StackID: k.ID, Node: "a", AllGo: true})
	if one, err := s.RemainsOn(t.Context(), "c"); err != nil || len(one) != 0 {
		t.Errorf("on the owner remain %v, %v", one, err)
	}
	setStatus(t, s, k.ID, stack.Deleted)
	wantRemains(t, s)
}

func expect(t *testing.T, s *store.Store, k *stack.Stack, node string) {
	t.Helper()
	if err := s.Expect(t.Context(), k.ID, node); err != nil {
		t.Fatal(err)
	}
}

func (on suite) TestHandOver_LeavesNothingForANodeThatDoesNotExpectTheStack(t *testing.T) {
	s, _ := on.open(t)
	k := createOn(t, s, "a")
	leave := func() error {
		_, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			k.Node, k.Epoch = "b", 2
			return nil, nil
		}, store.Leaving())
		return err
	}
	for range 2 {
		if err := leave(); !errors.Is(err, store.ErrNotExpected) || get(t, s, k.ID).Node != "a" {
			t.Errorf("the error is %v, and %s owns the stack", err, get(t, s, k.ID).Node)
		}
		expect(t, s, k, "b")
		if err := s.Renounce(t.Context(), k.ID, "b"); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, s, k, "b")
	if err := leave(); err != nil || get(t, s, k.ID).Node != "b" {
		t.Errorf("the error is %v, and %s owns the stack", err, get(t, s, k.ID).Node)
	}
}

func (on suite) TestHandOver_EndsTheCommands(t *testing.T) {
	s, _ := on.open(t)
	k, other := createOn(t, s, "a"), createOn(t, s, "a")
	addCommand(t, s, k.ID, "sleep 1h")
	addCommand(t, s, other.ID, "sleep 1h")
	moveTo(t, s, k, "b")
	for _, c := range []struct {
		id    string
		ended bool
	}{{k.ID, true}, {other.ID, false}} {
		if got := commands(t, s, c.id, 1)[0]; got.EndedAt.IsZero() == c.ended || (got.Error != "") != c.ended {
			t.Errorf("the command is %+v, ended: %t", got, c.ended)
		}
	}
}

// The new owner delivers what the one before may not have begun to, and nothing twice that
// it finds above its mark.
func (on suite) TestHandOver_OwesTheEventsAboveTheMarkOfTheNodeBefore(t *testing.T) {
	s, _ := on.open(t)
	record := func(k *stack.Stack) int64 {
		t.Helper()
		events := []stack.Event{{Type: stack.EventRestored}}
		if _, err := s.Update(t.Context(), k.ID, func(*stack.Stack) ([]stack.Event, error) { return events, nil }); err != nil {
			t.Fatal(err)
		}
		return events[0].ID
	}
	k := hookedOn(t, s, "a")
	begun := record(k)
	if err := s.SetWebhookMark(t.Context(), "a", begun); err != nil {
		t.Fatal(err)
	}
	first, last := record(k), record(k)
	k = moveTo(t, s, k, "b")
	after := record(k)
	wantOwed(t, s, "b", store.Owed{StackID: k.ID, After: begun, To: last})
	refs, err := s.EventsOwed(t.Context(), store.Owed{StackID: k.ID, After: begun, To: last})
	if diff := cmp.Diff([]store.EventRef{{ID: first, StackID: k.ID}, {ID: last, StackID: k.ID}}, refs); err != nil || diff != "" {
		t.Errorf("owed are %v, %v", refs, err)
	}
	for node, want := range map[string][]store.EventRef{"a": nil, "b": {{ID: after, StackID: k.ID}}} {
		refs, at, _, err := s.ToDeliver(t.Context(), node, last, 10)
		if diff := cmp.Diff(want, refs); err != nil || diff != "" || at != after {
			t.Errorf("%s delivers %v up to %d, %v", node, refs, at, err)
		}
	}

	k = moveTo(t, s, k, "c") // before it has begun
	wantOwed(t, s, "c", store.Owed{StackID: k.ID, After: begun, To: after})
	wantOwed(t, s, "b")
	if err := s.EndOwed(t.Context(), "c", k.ID); err != nil {
		t.Fatal(err)
	}
	wantOwed(t, s, "c")
}

func wantOwed(t *testing.T, s *store.Store, node string, want ...store.Owed) {
	t.Helper()
	got, err := s.OwedEvents(t.Context(), node)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%s owes %v, %v, want %v", node, got, err, want)
	}
}

func (on suite) TestWebhookMark_IsOfANode(t *testing.T) {
	s, _ := on.open(t)
	create(t, s, stack.Event{Type: stack.EventCreated}, stack.Event{Type: stack.EventBuilding})
	if mark, err := s.WebhookMark(t.Context(), "a"); err != nil || mark != 2 {
		t.Errorf("the mark of a new node is %d, %v, want the last event", mark, err)
	}
	for node, mark := range map[string]int64{"a": 1, "b": 2, "": 0} {
		if err := s.SetWebhookMark(t.Context(), node, mark); err != nil {
			t.Fatal(err)
		}
	}
	for node, want := range map[string]int64{"a": 1, "b": 2, "": 0} {
		if mark, err := s.WebhookMark(t.Context(), node); err != nil || mark != want {
			t.Errorf("the mark of %q is %d, %v, want %d", node, mark, err, want)
		}
	}
}

// hookedOn stores a stack of a node with a webhook.
func hookedOn(t *testing.T, s *store.Store, node string) *stack.Stack {
	t.Helper()
	k := hooked(t, s)
	k, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Node, k.Epoch = node, 1
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EndOwed(t.Context(), node, k.ID); err != nil {
		t.Fatal(err)
	}
	return k
}

// A node that is back keeps its stacks, even if another one has been about to take them.
func (on suite) TestLeaseEnded_RefusesOnceTheNodeBeforeHasRenewedItsLease(t *testing.T) {
	s, _ := on.open(t)
	register(t, s, nodeOne, time.Microsecond)
	k := createOn(t, s, nodeOne.ID)
	nodes, err := s.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := nodes[0].LeaseUntil
	k = moveTo(t, s, k, "b", store.LeaseEnded(ended))
	k = moveTo(t, s, k, nodeOne.ID)

	if _, err := s.RenewLease(t.Context(), nodeOne, time.Microsecond); err != nil {
		t.Fatal(err)
	}
	_, err = s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Node, k.Epoch = "b", k.Epoch+1
		return nil, nil
	}, store.LeaseEnded(ended))
	if !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("the error is %v, want ErrNotOwner", err)
	}
	if now, err := s.Get(t.Context(), k.ID); err != nil || now.Node != nodeOne.ID {
		t.Errorf("the stack is on %s, %v", now.Node, err)
	}
}
