package store

import "testing"

func TestChanges_SayWhenThereAreTooManyToName(t *testing.T) {
	c := &Changes{woken: make(chan struct{}, 1), ids: map[string]bool{}}
	take := func(want int, wantAny bool) {
		t.Helper()
		if ids, any := c.Take(); len(ids) != want || any != wantAny {
			t.Errorf("%d ids, any: %v, want %d and %v", len(ids), any, want, wantAny)
		}
	}
	for i := range mostChanges {
		c.add(string(rune(i + 1)))
	}
	take(mostChanges, false)
	for i := range mostChanges + 1 {
		c.add(string(rune(i + 1)))
	}
	take(0, true)
	c.add("")
	c.add("stk_1")
	take(0, true)
	take(0, false)
}
