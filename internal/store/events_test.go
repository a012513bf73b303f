package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func eventsOf(t testing.TB, s *store.Store, id string) []stack.Event {
	t.Helper()
	events, err := s.Events(t.Context(), id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func (on suite) TestEvents_ComeBackAsTheyWereRecorded(t *testing.T) {
	s, _ := on.open(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	sent := []stack.Event{
		{Type: stack.EventCreated, Data: map[string]any{"anonymous": true}},
		{Type: stack.EventFailed, CreatedAt: at, Data: map[string]any{"error": "it's <b>\x00 ü", "exit_code": nil}},
	}
	before := stack.Now()
	k := create(t, s, sent...)
	var late []stack.Event
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		late = []stack.Event{{Type: stack.EventDeleted}, {Type: stack.EventLive, Data: map[string]any{"urls": map[string]any{"web": "http://x"}}}}
		return late, nil
	}); err != nil {
		t.Fatal(err)
	}
	sent = append(sent, late...)
	got := eventsOf(t, s, k.ID)
	if diff := cmp.Diff(sent, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("events (-recorded +read):\n%s", diff)
	}
	for i, e := range got {
		if e.ID != int64(i+1) || e.StackID != k.ID {
			t.Errorf("event %d has id %d of %s", i, e.ID, e.StackID)
		}
		if i < 2 && !e.CreatedAt.Equal(at) || i >= 2 && (e.CreatedAt.Before(before) || e.CreatedAt.After(stack.Now())) {
			t.Errorf("event %d is of %v", i, e.CreatedAt)
		}
		recorded, _ := json.Marshal(sent[i])
		if read, err := json.Marshal(e); err != nil || string(read) != string(recorded) {
			t.Errorf("event %d reads %s, %v, was recorded as %s", i, read, err, recorded)
		}
	}
	if !got[2].CreatedAt.Equal(got[3].CreatedAt) {
		t.Error("events of one transaction have different times")
	}
}

func (on suite) TestEvents_GoOnAfterACursor(t *testing.T) {
	s, _ := on.open(t)
	k, other := create(t, s, stack.Event{Type: stack.EventCreated}), create(t, s, stack.Event{Type: stack.EventCreated})
	for range 5 {
		for _, id := range []string{k.ID, other.ID} {
			if _, err := s.Update(t.Context(), id, func(*stack.Stack) ([]stack.Event, error) {
				return []stack.Event{{Type: stack.EventLive}}, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, page := range []struct {
		after int64
		limit int
		want  []int64
	}{
		{0, 3, []int64{1, 3, 5}},
		{5, 3, []int64{7, 9, 11}},
		{6, 1, []int64{7}},
		{11, 3, nil},
		{-1, 200, []int64{1, 3, 5, 7, 9, 11}},
	} {
		events, err := s.Events(t.Context(), k.ID, page.after, page.limit)
		if err != nil || events == nil {
			t.Fatalf("Events = %v, %v", events, err)
		}
		var got []int64
		for _, e := range events {
			got = append(got, e.ID)
		}
		if diff := cmp.Diff(page.want, got); diff != "" {
			t.Errorf("after %d, at most %d (-want +got):\n%s", page.after, page.limit, diff)
		}
	}
}

func (on suite) TestEvents_OfADeletedStackStay(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s, stack.Event{Type: stack.EventCreated})
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	if events := eventsOf(t, s, k.ID); len(events) != 2 || events[1].Type != stack.EventDeleted {
		t.Errorf("events %v, want created and deleted", events)
	}
}

func (on suite) TestEvents_NeverUseAnIDTwice(t *testing.T) {
	s, db := on.open(t)
	k := create(t, s, make([]stack.Event, 5)...)
	last := int64(5)
	for range 3 {
		db.exec(t, "DELETE FROM events WHERE id > 2")
		again := db.open(t)
		if _, err := again.Update(t.Context(), k.ID, func(*stack.Stack) ([]stack.Event, error) {
			return make([]stack.Event, 2), nil
		}); err != nil {
			t.Fatal(err)
		}
		events, err := again.Events(t.Context(), k.ID, 2, 10)
		if err != nil || len(events) != 2 || events[0].ID != last+1 || events[1].ID != last+2 {
			t.Fatalf("events %v, %v, want the ids %d and %d", events, err, last+1, last+2)
		}
		last += 2
	}
}

func (on suite) TestEventsSince_AreOfTheTypesAndTheTime(t *testing.T) {
	s, _ := on.open(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	k := create(t, s,
		stack.Event{Type: stack.EventLive, CreatedAt: at.Add(-time.Second)}, stack.Event{Type: stack.EventCrashed, CreatedAt: at},
		stack.Event{Type: stack.EventExtended, CreatedAt: at}, stack.Event{Type: stack.EventLive, CreatedAt: at.Add(time.Second)})
	got, err := s.EventsSince(t.Context(), k.ID, at, stack.EventLive, stack.EventCrashed)
	if err != nil || len(got) != 2 || got[0].Type != stack.EventCrashed || got[1].Type != stack.EventLive {
		t.Errorf("the events are %v, %v", got, err)
	}
}
