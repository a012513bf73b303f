package fair

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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
