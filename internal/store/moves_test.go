package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// wantMoves checks what a node is to act on.
func wantMoves(t *testing.T, s *store.Store, node string, want ...store.Move) {
	t.Helper()
	got, err := s.MovesFrom(t.Context(), node)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%s is to act on %v, %v\n%s", node, got, err, diff)
	}
}

func askMove(t *testing.T, s *store.Store, id, target string) store.Move {
	t.Helper()
	m, err := s.AskMove(t.Context(), id, target)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (on suite) TestMoves_SayWhyAStackIsStuckUntilItHasGone(t *testing.T) {
	s, _ := on.open(t)
	k, asked := hookedOn(t, s, "a"), hookedOn(t, s, "a")
	second := askMove(t, s, asked.ID, "b")
	for _, why := range []string{"no room", "no way"} {
		for _, id := range []string{k.ID, asked.ID} {
			if err := s.NoteStuck(t.Context(), id, "c", why); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantMoves(t, s, "a", second)
	stuck, err := s.Stuck(t.Context(), "a")
	if err != nil || len(stuck) != 1 || stuck[0].StackID != k.ID || stuck[0].Target != "c" || stuck[0].Error != "no way" {
		t.Errorf("stuck: %v, %v", stuck, err)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { k.Node = "c"; return nil, nil }); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"a", "c"} {
		if stuck, err := s.Stuck(t.Context(), node); err != nil || len(stuck) != 0 {
			t.Errorf("after it has gone, stuck on %s: %v, %v", node, stuck, err)
		}
	}
}

func (on suite) TestMoves_AreForTheOwnerUntilTheyEndOrFail(t *testing.T) {
	s, db := on.open(t)
	k := hookedOn(t, s, "a")
	first := askMove(t, s, k.ID, "b")
	wantMoves(t, db.open(t), "a", first)
	wantMoves(t, s, "b")
	if err := s.FailMove(t.Context(), first, "no room"); err != nil {
		t.Fatal(err)
	}
	wantMoves(t, s, "a")
	first.Error = "no room"
	got, ok, err := s.MoveOf(t.Context(), k.ID)
	if diff := cmp.Diff(first, got); !ok || err != nil || diff != "" {
		t.Errorf("%v, %v\n%s", ok, err, diff)
	}
	second := askMove(t, s, k.ID, "c")
	for _, outdated := range []error{s.FailMove(t.Context(), first, "late"), s.EndMove(t.Context(), first)} {
		if outdated != nil {
			t.Fatal(outdated)
		}
	}
	wantMoves(t, s, "a", second)
	if err := s.EndMove(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.MoveOf(t.Context(), k.ID); ok || err != nil {
		t.Errorf("after its end: %v, %v", ok, err)
	}
}

func (on suite) TestMoves_GoWithTheirStack(t *testing.T) {
	s, db := on.open(t)
	k := hookedOn(t, s, "a")
	askMove(t, s, k.ID, "b")
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	left := 0
	if err := db.row(t, "SELECT count(*) FROM moves").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d moves are left, %v", left, err)
	}
}

func (on suite) TestStanding_IsThatOfAStack(t *testing.T) {
	s, _ := on.open(t)
	k := hookedOn(t, s, "a")
	got, err := s.Standing(t.Context(), k.ID)
	if diff := cmp.Diff(store.Standing{ID: k.ID, Name: k.Name, Status: k.Status, Node: "a", Epoch: 1}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := s.Standing(t.Context(), "stk_ffffffffffff"); stack.KindOf(err) != stack.NotFound {
		t.Errorf("an unknown one: %v", err)
	}
}

func (on suite) TestDataLeft_IsWhatNodesHaveFound(t *testing.T) {
	s, _ := on.open(t)
	k := moveTo(t, s, hookedOn(t, s, "a"), "b")
	left := func(id string) []store.Remains {
		t.Helper()
		all, err := s.DataLeft(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := left(""); len(all) != 0 {
		t.Errorf("before the node has looked: %v", all)
	}
	if err := s.MarkRemains(t.Context(), k.ID, "a", []string{"web"}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int{"": 1, k.ID: 1, "stk_ffffffffffff": 0} {
		all := left(id)
		if len(all) != want || want == 1 && (all[0].Node != "a" || all[0].StackID != k.ID || all[0].Volumes[0] != "web") {
			t.Errorf("%q: %v", id, all)
		}
	}
}
