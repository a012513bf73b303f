package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func (on suite) TestPlacements_FollowWhatChanges(t *testing.T) {
	s, _ := on.open(t)
	k := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Node, k.Epoch = "n1", 1
	if err := s.Create(t.Context(), k, []stack.Event{{Type: stack.EventCreated}}); err != nil {
		t.Fatal(err)
	}
	all, mark, err := s.Placements(t.Context())
	if diff := cmp.Diff([]store.Placement{{Stack: k.ID, Node: "n1"}}, all); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if changed, next, err := s.PlacementsSince(t.Context(), mark); err != nil || len(changed) != 0 || next != mark {
		t.Errorf("%v %d %v", changed, next, err)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	changed, _, err := s.PlacementsSince(t.Context(), mark)
	if diff := cmp.Diff([]store.Placement{{Stack: k.ID}}, changed); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, id := range []string{k.ID, "stk_ffffffffffff"} {
		if p, err := s.Placement(t.Context(), id); err != nil || p != (store.Placement{Stack: id}) {
			t.Errorf("%v %v", p, err)
		}
	}
}
