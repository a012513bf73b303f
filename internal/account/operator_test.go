package account_test

import (
	"context"
	"slices"
	"testing"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/stack"
)

func TestRemove_DeletesWhatWasConfirmedAndNothingElse(t *testing.T) {
	e := newEnv(t)
	ana := e.signUp(t, "ana@example.com").Account
	first, late := e.stackWith(t, ""), e.stackWith(t, "")
	claim := func(m made) {
		if _, err := e.accounts.Claim(t.Context(), visitor, ana, m.code); err != nil {
			t.Fatal(err)
		}
	}
	claim(first)
	_, err := e.accounts.Remove(t.Context(), ana.Email, func(string, []*stack.Stack) error { claim(late); return nil })
	wantKind(t, err, stack.Conflict, "nothing was deleted")
	if e.owner(t, first.id) != ana.ID || e.owner(t, late.id) != ana.ID {
		t.Error("a stack of the account is gone")
	}
	n, err := e.accounts.Remove(t.Context(), ana.Email, func(_ string, stacks []*stack.Stack) error {
		if len(stacks) != 2 {
			t.Errorf("%d stacks to confirm, want both", len(stacks))
		}
		return nil
	})
	if n != 2 || err != nil {
		t.Errorf("Remove = %d, %v, want both stacks deleted", n, err)
	}
}

// A stack is deleted with its account where and when DELETE would delete it.
func TestRemove_AsksWhichNodeTheStacksAreOfThen(t *testing.T) {
	e := newEnv(t)
	ana := e.signUp(t, "ana@example.com").Account
	made := e.stackWith(t, "")
	_, err := e.store.Update(t.Context(), made.id, func(k *stack.Stack) ([]stack.Event, error) {
		k.Node, k.Owner = "n1", ana.ID
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	var away error = stack.NewError(stack.Unavailable, "the node is away")
	e.cfg.Heirs = func(context.Context) (func(string) (string, error), error) {
		return func(node string) (string, error) { asked = append(asked, node); return "n2", away }, nil
	}
	accounts, yes := account.New(e.cfg), func(string, []*stack.Stack) error { return nil }
	_, err = accounts.Remove(t.Context(), ana.Email, yes)
	wantKind(t, err, stack.Unavailable, "the node is away")
	if e.owner(t, made.id) != ana.ID {
		t.Error("the stack is gone")
	}
	away = nil
	if n, err := accounts.Remove(t.Context(), ana.Email, yes); n != 1 || err != nil {
		t.Errorf("Remove = %d, %v", n, err)
	}
	if !slices.Equal(asked, []string{"n1", "n1"}) {
		t.Errorf("asked about %q", asked)
	}
}
