package account_test

import (
	"testing"

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
