package build

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestQueue_HandsOutSlotsInOrderAndTellsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		release, err := q.acquire(t.Context(), func(int) { t.Error("the first had to wait") })
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		places := make([][]int, 3)
		for i := range 3 {
			go func() {
				free, err := q.acquire(t.Context(), func(place int) { places[i] = append(places[i], place) })
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
		q := newQueue(1)
		release, err := q.acquire(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := q.acquire(ctx, func(int) {})
			left <- err
		}()
		synctest.Wait()
		next := make(chan []int, 1)
		go func() {
			var places []int
			free, err := q.acquire(t.Context(), func(p int) { places = append(places, p) })
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
			t.Errorf("acquire = %v, want canceled", err)
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
