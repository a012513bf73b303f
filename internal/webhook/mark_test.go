package webhook

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func checkMark(t *testing.T, s *store.Store, want int64) {
	t.Helper()
	if got, err := s.WebhookMark(t.Context(), ""); err != nil || got != want {
		t.Errorf("the mark is %d, %v, want %d", got, err, want)
	}
}

// A killed server leaves behind what the database holds shortly after its last event.
func TestMark_IsWrittenWithoutAStopAndLiesBelowWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		hanging := &trips{hang: true}
		d := New(standardConfig(s))
		d.transport = hanging
		begin(t, d)
		without := hook(t, s, "")
		unheard := record(t, s, without, extended())[0]
		time.Sleep(2 * gatherMark)
		checkMark(t, s, unheard.ID)

		k := hook(t, s, "https://example.com/hook")
		var events []stack.Event
		for range standard.lane + 8 {
			events = append(events, extended())
		}
		events = record(t, s, k, events...)
		record(t, s, without, extended())
		time.Sleep(2 * gatherMark)
		if n := len(hanging.got()); n != standard.lane {
			t.Fatalf("%d attempts have begun, want %d", n, standard.lane)
		}
		checkMark(t, s, events[standard.lane].ID-1)

		time.Sleep(time.Hour)
		last, err := s.Events(t.Context(), without.ID, unheard.ID, 1)
		if err != nil {
			t.Fatal(err)
		}
		checkMark(t, s, last[0].ID)
	})
}

func TestMark_OfAStopIsWhatTheNextStartSends(t *testing.T) {
	s := openStore(t)
	c := config(s)
	first := New(c)
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	r := receive(t, func(http.ResponseWriter, arrival) { <-hold })
	k := hook(t, s, r.url)
	var events []stack.Event
	for range standard.lane + 8 {
		events = append(events, extended())
	}
	events = record(t, s, k, events...)
	r.await(t, standard.lane)
	closed := make(chan struct{})
	go func() { first.Close(); close(closed) }()
	<-first.ctx.Done()
	close(hold)
	<-closed

	begun := len(r.got())
	begin(t, New(config(s)))
	seen := map[string]bool{}
	for _, a := range r.await(t, len(events)) {
		seen[a.request.Header.Get("X-Service-Delivery")] = true
	}
	for _, e := range events {
		if !seen[strconv.FormatInt(e.ID, 10)] {
			t.Errorf("event %d is not delivered; %d of %d were before the stop", e.ID, begun, len(events))
		}
	}
	if n := len(r.got()); n != len(events) {
		t.Errorf("%d deliveries of %d events", n, len(events))
	}
}

// failing is a store whose reads of events and webhooks fail for a while.
type failing struct {
	Store
	left atomic.Int64
}

var errRead = errors.New("disk I/O error")

func (s *failing) Event(ctx context.Context, id int64) (stack.Event, bool, error) {
	if s.left.Add(-1) >= 0 {
		return stack.Event{}, false, errRead
	}
	return s.Store.Event(ctx, id)
}

func TestDispatcher_AFailedReadOfTheDatabaseDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		c := standardConfig(s)
		unreadable := &failing{Store: s}
		unreadable.left.Store(60)
		c.Store = unreadable
		d := New(c)
		r := &trips{status: 200}
		d.transport = r
		begin(t, d)
		k := hook(t, s, "https://example.com/hook")
		e := record(t, s, k, extended())[0]
		time.Sleep(30 * time.Second)
		if n := len(r.got()); n != 0 {
			t.Fatalf("%d attempts while the event cannot be read", n)
		}
		checkMark(t, s, e.ID-1)
		time.Sleep(time.Minute)
		got := r.got()
		if len(got) != 1 {
			t.Fatalf("%d attempts once the event can be read again, want 1", len(got))
		}
		checkSigned(t, got[0], e)
		checkMark(t, s, e.ID)
	})
}

func TestDispatcher_WhatCouldNotBeReadIsLeftToTheNextStart(t *testing.T) {
	s := openStore(t)
	c := config(s)
	unreadable := &failing{Store: s}
	unreadable.left.Store(1 << 40)
	c.Store = unreadable
	first := New(c)
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := receive(t, nil)
	k := hook(t, s, r.url)
	e := record(t, s, k, extended())[0]
	eventually(t, "the event is looked for", func() bool { return unreadable.left.Load() < 1<<40 })
	first.Close()
	begin(t, New(config(s)))
	checkSigned(t, r.await(t, 1)[0], e)
}
