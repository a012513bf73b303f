package fair

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueue_HandsOutSlotsInOrderAndTellsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1)
		release, err := q.Acquire(t.Context(), "ana", func(int) { t.Error("the first had to wait") })
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		places := make([][]int, 3)
		for i := range 3 {
			go func() {
				free, err := q.Acquire(t.Context(), "ana", func(place int) { places[i] = append(places[i], place) })
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				free()
			}()
			synctest.Wait()
		}
		release()
		synctest.Wait()
		for i, got := range order {
			if got != i {
				t.Errorf("order %v, want 0 1 2", order)
			}
			if places[i][0] != i+1 {
				t.Errorf("waiter %d was first told place %d, want %d", i, places[i][0], i+1)
			}
		}
		if len(order) != 3 {
			t.Errorf("%d got a slot, want 3", len(order))
		}
	})
}

func TestQueue_WaiterThatLeavesFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1)
		release, err := q.Acquire(t.Context(), "ana", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := q.Acquire(ctx, "ana", func(int) {})
			left <- err
		}()
		synctest.Wait()
		next := make(chan []int, 1)
		go func() {
			var places []int
			free, err := q.Acquire(t.Context(), "ana", func(p int) { places = append(places, p) })
			if err != nil {
				t.Error(err)
				return
			}
			free()
			next <- places
		}()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire = %v, want canceled", err)
		}
		synctest.Wait()
		release()
		if places := <-next; len(places) != 2 || places[0] != 2 || places[1] != 1 {
			t.Errorf("places %v, want 2 then 1", places)
		}
		if q.free != 1 {
			t.Errorf("%d slots free at the end, want 1", q.free)
		}
	})
}

func TestQueue_AFreeSlotGoesToTheClientThatHasTheFewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(2)
		var mu sync.Mutex
		var got []string
		places := map[string][]int{}
		end := map[string]chan struct{}{}
		ask := func(client, name string) {
			done := make(chan struct{})
			end[name] = done
			go func() {
				release, err := q.Acquire(t.Context(), client, func(place int) {
					mu.Lock()
					defer mu.Unlock()
					places[name] = append(places[name], place)
				})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				got = append(got, name)
				mu.Unlock()
				<-done
				release()
			}()
			synctest.Wait()
		}
		for _, name := range []string{"ana 1", "ana 2", "ana 3", "ana 4", "ana 5"} {
			ask("ana", name) // takes all there are while nobody else asks
		}
		ask("bob", "bob 1")
		ask("bob", "bob 2")
		for _, name := range []string{"ana 1", "ana 2", "bob 1", "ana 3", "bob 2", "ana 4", "ana 5"} {
			close(end[name])
			synctest.Wait()
		}
		want := []string{"ana 1", "ana 2", "bob 1", "ana 3", "bob 2", "ana 4", "ana 5"}
		if !slices.Equal(got, want) {
			t.Errorf("slots went to %q, want %q", got, want)
		}
		for name, want := range map[string][]int{"ana 3": {1, 2, 3, 1}, "bob 1": {1}, "bob 2": {2}} {
			if !slices.Equal(places[name], want) {
				t.Errorf("%s was told places %v, want %v", name, places[name], want)
			}
		}
		if q.free != 2 || len(q.held) != 0 {
			t.Errorf("at the end %d slots are free and %v held, want 2 and none", q.free, q.held)
		}
	})
}

// line is a queue that a test asks for slots in the name of clients.
type line struct {
	t     *testing.T
	queue *Queue
}

// ask asks for a slot. A value in got says that it was granted; release returns it.
func (l line) ask(client string) (got <-chan struct{}, release func()) {
	granted, done := make(chan struct{}), make(chan struct{})
	go func() {
		free, err := l.queue.Acquire(l.t.Context(), client, func(int) {})
		if err != nil {
			return // the test has failed before
		}
		close(granted)
		<-done
		free()
	}()
	synctest.Wait()
	return granted, func() { close(done); synctest.Wait() }
}

// has fails the test unless a slot was granted or not, as wanted.
func (l line) has(got <-chan struct{}, want bool, when string) {
	l.t.Helper()
	synctest.Wait()
	select {
	case <-got:
		if !want {
			l.t.Errorf("%s: got a slot, want none yet", when)
		}
	default:
		if want {
			l.t.Errorf("%s: got no slot", when)
		}
	}
}

func TestQueue_KeepsTheLastFreeSlotForAMinuteAfterAnothersBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := line{t, NewKeepingQueue(3, time.Minute)}
		bob, endBob := q.ask("bob")
		q.has(bob, true, "the first")
		first, endFirst := q.ask("ana")
		second, endSecond := q.ask("ana")
		q.has(first, true, "ana's first")
		q.has(second, false, "while bob builds")
		endBob()
		q.has(second, true, "of two free ones")
		third, endThird := q.ask("ana")
		q.has(third, false, "just after bob's build")
		time.Sleep(time.Minute - 1)
		q.has(third, false, "within the minute")
		time.Sleep(time.Nanosecond)
		q.has(third, true, "a minute after bob's build")
		endFirst()
		endSecond()
		endThird()
		if len(q.queue.held) != 0 || q.queue.free != 3 {
			t.Errorf("at the end %d slots are free and %v held", q.queue.free, q.queue.held)
		}
	})
}

func TestQueue_GivesAllSlotsToTheOnlyClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := line{t, NewKeepingQueue(3, time.Minute)}
		var ends []func()
		for _, want := range []bool{true, true, true, false} {
			got, end := q.ask("ana")
			q.has(got, want, "alone")
			ends = append(ends, end)
		}
		for _, end := range ends {
			end()
		}
	})
}

func TestQueue_KeepsTheLastFreeSlotOnlyFromThoseThatHaveOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := line{t, NewKeepingQueue(3, time.Minute)}
		_, endAna := q.ask("ana")
		_, endBob := q.ask("bob")
		more, endMore := q.ask("ana")
		q.has(more, false, "while bob builds")
		eve, endEve := q.ask("eve")
		q.has(eve, true, "eve has none")
		endAna() // ana has none now
		q.has(more, true, "ana has none")
		endBob()
		endEve()
		again, endAgain := q.ask("ana")
		q.has(again, true, "of two free ones")
		last, endLast := q.ask("ana")
		q.has(last, false, "just after the others' builds")
		endMore()
		q.has(last, true, "of two free ones, again")
		endAgain()
		endLast()
	})
}

func TestQueue_OfOneSlotKeepsItFromNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := line{t, NewKeepingQueue(1, time.Minute)}
		_, endBob := q.ask("bob")
		first, endFirst := q.ask("ana")
		second, endSecond := q.ask("ana")
		endBob()
		q.has(first, true, "after bob's")
		endFirst()
		q.has(second, true, "after her own")
		endSecond()
	})
}

func TestQueue_AWaiterThatLeavesWhileASlotIsKeptLeavesItFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := line{t, NewKeepingQueue(2, time.Minute)}
		_, endBob := q.ask("bob")
		_, endAna := q.ask("ana")
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := q.queue.Acquire(ctx, "ana", func(int) {})
			left <- err
		}()
		synctest.Wait()
		endBob()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire = %v, want canceled", err)
		}
		time.Sleep(time.Hour)
		if q.queue.free != 1 {
			t.Errorf("%d slots are free, want 1", q.queue.free)
		}
		endAna()
	})
}
