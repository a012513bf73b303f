package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// createOn stores a small stack of a node.
func createOn(t testing.TB, s *store.Store, node string) *stack.Stack {
	t.Helper()
	k := newStack("192.0.2.1")
	k.Node, k.Epoch = node, 1
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	return k
}

func (on suite) TestByOwner_LetsNobodyElseChangeTheStack(t *testing.T) {
	s, _ := on.open(t)
	k := createOn(t, s, "a")
	k = moveTo(t, s, k, "b")
	for _, c := range []struct {
		node  string
		epoch int64
		owns  bool
	}{{"a", 1, false}, {"a", 2, false}, {"b", 1, false}, {"b", 3, false}, {"", 0, false}, {"b", 2, true}} {
		before := len(eventsOf(t, s, k.ID))
		called := false
		_, err := s.Update(t.Context(), k.ID, func(*stack.Stack) ([]stack.Event, error) {
			called = true
			return []stack.Event{{Type: stack.EventRestored}}, nil
		}, store.ByOwner(c.node, c.epoch))
		if errors.Is(err, store.ErrNotOwner) == c.owns || called != c.owns || (len(eventsOf(t, s, k.ID)) > before) != c.owns {
			t.Errorf("a change by %q in epoch %d: called %t, %v", c.node, c.epoch, called, err)
		}
		measured := s.SetDisk(t.Context(), k.ID, stack.Disk{At: stack.Now()}, "", store.ByOwner(c.node, c.epoch))
		if errors.Is(measured, store.ErrNotOwner) == c.owns {
			t.Errorf("a measurement by %q in epoch %d: %v", c.node, c.epoch, measured)
		}
		if !c.owns {
			wantKind(t, err, stack.Unavailable)
		}
	}
}

func (on suite) TestKept_HasTheStacksOfANodeAlone(t *testing.T) {
	s, _ := on.open(t)
	alone, first, other, second := create(t, s), createOn(t, s, "a"), createOn(t, s, "b"), createOn(t, s, "a")
	gone := createOn(t, s, "a")
	setStatus(t, s, gone.ID, stack.Deleted)
	for node, want := range map[string][]string{"": {alone.ID}, "a": {first.ID, second.ID}, "b": {other.ID}, "c": {}} {
		kept, err := s.Kept(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		ids := []string{}
		for _, k := range kept {
			ids = append(ids, k.ID)
		}
		if diff := cmp.Diff(want, ids); diff != "" {
			t.Errorf("kept by %q (-want +got):\n%s", node, diff)
		}
	}
}

// moveTo makes another node the owner of a stack.
func moveTo(t testing.TB, s *store.Store, k *stack.Stack, node string, options ...store.Option) *stack.Stack {
	t.Helper()
	moved, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Node, k.Epoch = node, k.Epoch+1
		return nil, nil
	}, append(options, store.ByOwner(k.Node, k.Epoch))...)
	if err != nil {
		t.Fatal(err)
	}
	return moved
}

func (on suite) TestAddCommand_OfTheOwnerAlone(t *testing.T) {
	s, _ := on.open(t)
	k := createOn(t, s, "a")
	c := stack.Command{ID: "cmd_1", StackID: k.ID, Service: "web", Line: "true", StartedAt: stack.Now()}
	for _, by := range []store.Option{store.ByOwner("b", k.Epoch), store.ByOwner("a", k.Epoch+1)} {
		if err := s.AddCommand(t.Context(), c, by); !errors.Is(err, store.ErrNotOwner) {
			t.Errorf("another owner's is taken: %v", err)
		}
	}
	if err := s.AddCommand(t.Context(), c, store.ByOwner("a", k.Epoch)); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Commands(t.Context(), k.ID, 10); err != nil || len(all) != 1 {
		t.Errorf("there are %v, %v", all, err)
	}
}

func (on suite) TestEndCommands_EndsThoseOfANodeAlone(t *testing.T) {
	s, _ := on.open(t)
	mine, other := createOn(t, s, "a"), createOn(t, s, "b")
	for _, k := range []*stack.Stack{mine, other} {
		c := stack.Command{ID: "cmd_" + k.Hex(), StackID: k.ID, Service: "web", Line: "true", StartedAt: stack.Now()}
		if err := s.AddCommand(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.EndCommands(t.Context(), "a", stack.Now(), "died"); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[*stack.Stack]string{mine: "died", other: ""} {
		commands, err := s.Commands(t.Context(), k.ID, 1)
		if err != nil || len(commands) != 1 || commands[0].Error != want {
			t.Errorf("of the node %s: %v, %v, want the error %q", k.Node, commands, err, want)
		}
	}
}
