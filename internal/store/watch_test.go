package store_test

import (
	"context"
	"sync"
	"testing"

	"github.com/berth-host/berth/internal/stack"
)

func (on suite) TestWatch_WakesOnlyAfterTheCommit(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	woken, stop := s.Watch(k.ID)
	defer stop()
	all, stopAll := s.Watch("")
	defer stopAll()
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Name = "changed"
		if len(woken) != 0 || len(all) != 0 {
			t.Error("woken before the commit")
		}
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(woken) != 1 || len(all) != 1 {
		t.Fatalf("woken %d and %d times after the commit, want once", len(woken), len(all))
	}
	if got := get(t, s, k.ID); got.Name != "changed" {
		t.Errorf("a woken reader reads %q", got.Name)
	}
}

func (on suite) TestWatch_WakesForItsStackOnly(t *testing.T) {
	s, _ := on.open(t)
	k, other := create(t, s), create(t, s)
	woken, stop := s.Watch(k.ID)
	defer stop()
	setStatus(t, s, other.ID, stack.Live)
	create(t, s)
	if len(woken) != 0 {
		t.Error("woken by another stack")
	}
	setStatus(t, s, k.ID, stack.Deleted)
	if len(woken) != 1 {
		t.Error("not woken by the deletion")
	}
}

func (on suite) TestFollowOthers_WakesForTheCommitsOfOtherProcesses(t *testing.T) {
	s, db := on.open(t)
	k := create(t, s)
	woken, stop := s.Watch(k.ID)
	defer stop()
	other := db.open(t)
	setStatus(t, other, k.ID, stack.Live) // before it follows: since Open it counts
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { s.FollowOthers(ctx) })
	<-woken
	setStatus(t, other, k.ID, stack.Failed)
	<-woken
	if got := get(t, s, k.ID); got.Status != stack.Failed {
		t.Errorf("a woken reader reads %s", got.Status)
	}
	cancel()
	following.Wait()
}

func (on suite) TestWatch_OfAllWakesForANewStack(t *testing.T) {
	s, _ := on.open(t)
	woken, stop := s.Watch("")
	defer stop()
	create(t, s)
	if len(woken) != 1 {
		t.Error("not woken")
	}
}

func (on suite) TestWatch_MakesManyWakesOne(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	woken, stop := s.Watch(k.ID)
	defer stop()
	for range 5 {
		setStatus(t, s, k.ID, stack.Live)
	}
	<-woken
	if len(woken) != 0 {
		t.Error("woken again without a change")
	}
	setStatus(t, s, k.ID, stack.Failed)
	<-woken
}

func (on suite) TestWatch_IsSilentAfterStop(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	woken, stop := s.Watch(k.ID)
	still, stopStill := s.Watch(k.ID)
	defer stopStill()
	stop()
	stop()
	setStatus(t, s, k.ID, stack.Live)
	if len(woken) != 0 || len(still) != 1 {
		t.Errorf("woken %d times after stop, the other %d times", len(woken), len(still))
	}
}

// Readers that read again after each wake see the last state in the end, even if wakes
// coincide.
func (on suite) TestWatch_LosesNoChange(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	const changes = 50
	var readers sync.WaitGroup
	for range 4 {
		woken, stop := s.Watch(k.ID)
		readers.Go(func() {
			defer stop()
			for get(t, s, k.ID).Generation.Number < 1+changes {
				<-woken
			}
		})
	}
	for range changes {
		if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			k.Generation.Number++
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	readers.Wait()
}
