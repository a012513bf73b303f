package store_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func (on suite) TestPlacements_FollowWhatChanges(t *testing.T) {
	s, _ := on.open(t)
	changes, stop := s.WatchIDs()
	k := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Node, k.Epoch = "n1", 1
	if err := s.Create(t.Context(), k, []stack.Event{{Type: stack.EventCreated}}); err != nil {
		t.Fatal(err)
	}
	all, err := s.Placements(t.Context())
	if diff := cmp.Diff([]store.Placement{{Stack: k.ID, Node: "n1"}}, all); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	changed := func(want string) {
		t.Helper()
		<-changes.Woken()
		ids, any := changes.Take()
		if any || !slices.Equal(ids, []string{k.ID}) {
			t.Errorf("the stacks %q changed, any: %v", ids, any)
		}
		found, err := s.PlacementsOf(t.Context(), append(ids, "stk_ffffffffffff"))
		if diff := cmp.Diff([]store.Placement{{Stack: k.ID, Node: want}}, found); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	changed("n1")
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { // as a move of a failed stack does
		k.Node, k.Epoch = "n2", 2
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	changed("n2")
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	changed("")
	for _, id := range []string{k.ID, "stk_ffffffffffff"} {
		if p, err := s.Placement(t.Context(), id); err != nil || p != (store.Placement{Stack: id}) {
			t.Errorf("%v %v", p, err)
		}
	}
	if none, err := s.PlacementsOf(t.Context(), nil); err != nil || len(none) != 0 {
		t.Errorf("%v %v", none, err)
	}
	stop()
	create(t, s)
	if ids, any := changes.Take(); any || len(ids) != 0 {
		t.Errorf("after stop: %q, any: %v", ids, any)
	}
}
