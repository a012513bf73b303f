package store

import "testing"

func TestTooOld_RefusesWhatIsOlderThanFifteen(t *testing.T) {
	for number, want := range map[int]bool{140_020: true, 150_000: false, 170_011: false} {
		if err := tooOld("x", number); (err != nil) != want {
			t.Errorf("%d: %v, want it refused: %v", number, err, want)
		}
	}
}
