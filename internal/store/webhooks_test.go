package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// hooked stores a live stack with a webhook.
func hooked(t *testing.T, s *store.Store, events ...stack.Event) *stack.Stack {
	t.Helper()
	k := stack.New("hooked", nil, stack.Now())
	k.Status, k.Deploying = stack.Live, 0
	k.Webhook, k.WebhookSecret = "https://example.com/hooks", "whsec_one"
	if err := s.Create(t.Context(), k, events); err != nil {
		t.Fatal(err)
	}
	return k
}

func checkWebhook(t *testing.T, s *store.Store, id string, want store.Webhook, wantOK bool) {
	t.Helper()
	got, ok, err := s.Webhook(t.Context(), id)
	if err != nil || ok != wantOK || got != want {
		t.Errorf("Webhook(%s) = %+v, %v, %v, want %+v, %v", id, got, ok, err, want, wantOK)
	}
}

func (on suite) TestWebhook_IsTheLastOneAndOutlivesItsStackUntilItIsForgotten(t *testing.T) {
	s, _ := on.open(t)
	k := hooked(t, s)
	without := create(t, s)
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Notify("https://example.com/2", "whsec_two")
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	want := store.Webhook{URL: "https://example.com/2", Secret: "whsec_one"}
	checkWebhook(t, s, k.ID, want, true)
	checkWebhook(t, s, without.ID, store.Webhook{}, false)
	checkWebhook(t, s, "stk_000000000000", store.Webhook{}, false)

	if err := s.ForgetWebhook(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	checkWebhook(t, s, k.ID, want, true) // it is not deleted
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	checkWebhook(t, s, k.ID, want, true)
	if err := s.ForgetWebhook(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	checkWebhook(t, s, k.ID, store.Webhook{}, false)
}

func (on suite) TestForgetWebhooks_ForgetsDeletedStacksWhoseEventsWereAttempted(t *testing.T) {
	s, _ := on.open(t)
	kept, gone, pending := hooked(t, s), hooked(t, s), hooked(t, s)
	remove := func(id string) int64 {
		if _, err := s.Update(t.Context(), id, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
			t.Fatal(err)
		}
		events, err := s.Events(t.Context(), id, 0, 10)
		if err != nil || len(events) != 1 {
			t.Fatal(events, err)
		}
		return events[0].ID
	}
	if err := s.SetWebhookMark(t.Context(), "", remove(gone.ID)); err != nil {
		t.Fatal(err)
	}
	remove(pending.ID)
	if err := s.ForgetWebhooks(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	want := store.Webhook{URL: kept.Webhook, Secret: kept.WebhookSecret}
	checkWebhook(t, s, kept.ID, want, true)
	checkWebhook(t, s, pending.ID, want, true)
	checkWebhook(t, s, gone.ID, store.Webhook{}, false)
}

func (on suite) TestWebhookMark_IsKept(t *testing.T) {
	s, db := on.open(t)
	if got, err := s.WebhookMark(t.Context(), ""); err != nil || got != 0 {
		t.Errorf("the mark of a new database is %d, %v, want 0", got, err)
	}
	for _, want := range []int64{7, 9} {
		if err := s.SetWebhookMark(t.Context(), "", want); err != nil {
			t.Fatal(err)
		}
		if got, err := db.open(t).WebhookMark(t.Context(), ""); err != nil || got != want {
			t.Errorf("WebhookMark = %d, %v, want %d", got, err, want)
		}
	}
}

func (on suite) TestToDeliver_ReadsTheEventsOfStacksWithAWebhook(t *testing.T) {
	s, _ := on.open(t)
	one := hooked(t, s, stack.Event{Type: stack.EventCreated}) // 1
	without := stack.New("without", nil, stack.Now())          // 2
	err := s.Create(t.Context(), without, []stack.Event{{Type: stack.EventCreated}})
	if err != nil {
		t.Fatal(err)
	}
	two := hooked(t, s, stack.Event{Type: stack.EventCreated}, stack.Event{Type: stack.EventReady}) // 3, 4
	steps := []struct {
		after    int64
		limit    int
		want     []store.EventRef
		wantLast int64
		wantMore bool
	}{
		{0, 10, []store.EventRef{{ID: 1, StackID: one.ID}, {ID: 3, StackID: two.ID}, {ID: 4, StackID: two.ID}}, 4, false},
		{0, 2, []store.EventRef{{ID: 1, StackID: one.ID}}, 2, true},
		{1, 1, nil, 2, true},
		{3, 10, []store.EventRef{{ID: 4, StackID: two.ID}}, 4, false},
		{4, 10, nil, 4, false},
	}
	for _, step := range steps {
		refs, last, more, err := s.ToDeliver(t.Context(), "", step.after, step.limit)
		if diff := cmp.Diff(step.want, refs); err != nil || diff != "" || last != step.wantLast || more != step.wantMore {
			t.Errorf("ToDeliver(%d, %d): last %d, more %v, %v\n%s", step.after, step.limit, last, more, err, diff)
		}
	}
}

func (on suite) TestEvent_IsTheOneThatEventsReads(t *testing.T) {
	s, _ := on.open(t)
	k := hooked(t, s, stack.Event{Type: stack.EventLive, Data: map[string]any{"generation": 1, "urls": map[string]string{"a": "<&>"}}})
	page, err := s.Events(t.Context(), k.ID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	e, ok, err := s.Event(t.Context(), page[0].ID)
	if diff := cmp.Diff(page[0], e); !ok || err != nil || diff != "" {
		t.Errorf("Event: %v, %v\n%s", ok, err, diff)
	}
	if _, ok, err := s.Event(t.Context(), 99); ok || err != nil {
		t.Errorf("Event(99) = %v, %v, want none", ok, err)
	}
}

// delivery is one of a stack, told apart by its words.
func delivery(id, words string) store.Delivery {
	return store.Delivery{
		StackID: id, EventID: 7, Type: stack.EventLive, Attempt: 2, At: stack.Now(),
		Duration: 1234 * time.Microsecond, Status: 500, Error: "the receiver answered 500", Words: words,
	}
}

func (on suite) TestDeliveries_AreReadNewestFirstAndTheOldOnesGo(t *testing.T) {
	s, _ := on.open(t)
	one, two := hooked(t, s), hooked(t, s)
	const kept, extra = 100, 20
	for batch := range 4 { // the first holds more than are kept
		var all []store.Delivery
		for n := range (kept + extra) / (batch*10 + 1) {
			all = append(all, delivery(one.ID, fmt.Sprint(batch, n)))
		}
		if err := s.AddDeliveries(t.Context(), append(all, delivery(two.ID, "other"))); err != nil {
			t.Fatal(err)
		}
		got := deliveries(t, s, one.ID, 1000)
		if len(got) != kept {
			t.Fatalf("%d deliveries are kept, want %d", len(got), kept)
		}
		slices.Reverse(all)
		if diff := cmp.Diff(all[:min(kept, len(all))], got[:min(kept, len(all))]); diff != "" {
			t.Errorf("the newest deliveries:\n%s", diff)
		}
	}
	if got := deliveries(t, s, two.ID, 2); len(got) != 2 || got[0].Words != "other" {
		t.Errorf("the last two of the other stack are %+v", got)
	}
}

func deliveries(t *testing.T, s *store.Store, id string, limit int) []store.Delivery {
	t.Helper()
	all, err := s.Deliveries(t.Context(), id, limit)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (on suite) TestDeliveries_GoWithTheirStack(t *testing.T) {
	s, _ := on.open(t)
	k := hooked(t, s)
	add := func() {
		if err := s.AddDeliveries(t.Context(), []store.Delivery{delivery(k.ID, "private")}); err != nil {
			t.Fatal(err)
		}
	}
	add()
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	add() // that of stack.deleted
	if got := deliveries(t, s, k.ID, 10); len(got) != 0 {
		t.Errorf("a deleted stack has deliveries: %+v", got)
	}
}

func (on suite) TestWebhooks_FaultsNameTheFile(t *testing.T) {
	s, db := on.open(t)
	k := hooked(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	calls := map[string]func() error{
		"Webhook":        func() error { _, _, err := s.Webhook(ctx, k.ID); return err },
		"ForgetWebhook":  func() error { return s.ForgetWebhook(ctx, k.ID) },
		"ForgetWebhooks": func() error { return s.ForgetWebhooks(ctx, "") },
		"WebhookMark":    func() error { _, err := s.WebhookMark(ctx, ""); return err },
		"SetWebhookMark": func() error { return s.SetWebhookMark(ctx, "", 1) },
		"Event":          func() error { _, _, err := s.Event(ctx, 1); return err },
		"ToDeliver":      func() error { _, _, _, err := s.ToDeliver(ctx, "", 0, 1); return err },
		"AddDeliveries":  func() error { return s.AddDeliveries(ctx, nil) },
		"Deliveries":     func() error { _, err := s.Deliveries(ctx, k.ID, 1); return err },
	}
	for name, call := range calls {
		if err := call(); err == nil || !strings.Contains(err.Error(), db.name()) {
			t.Errorf("%s without a database = %v, want an error with the file", name, err)
		}
	}
}
