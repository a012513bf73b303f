package account

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Add creates an account for an operator and returns its API key. Its address counts as
// confirmed. Without a password its owner cannot sign in until SetPassword sets one.
func (a *Accounts) Add(ctx context.Context, email, password string) (apiKey string, err error) {
	if err := checkEmail(email); err != nil {
		return "", err
	}
	hash := ""
	if password != "" {
		if hash, err = a.hashNew(ctx, password); err != nil {
			return "", err
		}
	}
	key := auth.NewAPIKey()
	if _, err := a.cfg.Store.CreateConfirmed(ctx, email, hash, storedKey(key)); err != nil {
		return "", err
	}
	return key, nil
}

// SetPassword replaces the password of an account for an operator, and ends all its
// sessions. An unknown email is NotFound.
func (a *Accounts) SetPassword(ctx context.Context, email, password string) error {
	account, err := a.find(ctx, email, "create one with berthd account create")
	if err != nil {
		return err
	}
	hash, err := a.hashNew(ctx, password)
	if err != nil {
		return err
	}
	return a.cfg.Store.SetPassword(ctx, account.ID, hash, 0)
}

// Remove deletes an account with all its stacks for an operator, and returns how many
// there were. It first calls confirm with the account's address and its stacks, and
// deletes nothing if confirm fails. If a stack was added or removed in the meantime,
// that is a Conflict; if the node of one is away, Unavailable. An unknown email is NotFound.
func (a *Accounts) Remove(ctx context.Context, email string, confirm func(address string, stacks []*stack.Stack) error) (stacks int, err error) {
	account, err := a.find(ctx, email, "nothing was deleted")
	if err != nil {
		return 0, err
	}
	owned, err := a.cfg.Store.Owned(ctx, account.ID)
	if err != nil {
		return 0, err
	}
	if err := confirm(account.Email, owned); err != nil {
		return 0, err
	}
	return a.removeConfirmed(ctx, account.ID, Digest(owned), "run the command again to see them")
}

// Disable disables an account for an operator: its key, its sessions and its claims are
// Forbidden, for the reason, until Enable. It returns the account. An unknown email is NotFound.
func (a *Accounts) Disable(ctx context.Context, email, reason string) (store.Account, error) {
	account, err := a.find(ctx, email, "berthd accounts list shows all")
	if err == nil {
		account.DisabledFor = cmp.Or(strings.TrimSpace(reason), account.DisabledFor, "no reason was given")
		err = a.cfg.Store.DisableAccount(ctx, account.ID, account.DisabledFor)
	}
	return account, err
}

// Enable ends what Disable did.
func (a *Accounts) Enable(ctx context.Context, email string) error {
	account, err := a.find(ctx, email, "berthd accounts list shows all")
	if err == nil {
		err = a.cfg.Store.DisableAccount(ctx, account.ID, "")
	}
	return err
}

// removeConfirmed deletes an account with the stacks whose digest was confirmed, and no
// others; hint says what to do if it has others.
func (a *Accounts) removeConfirmed(ctx context.Context, accountID, confirmed, hint string) (stacks int, err error) {
	heir := func(node string) (string, error) { return node, nil }
	if a.cfg.Heirs != nil {
		if heir, err = a.cfg.Heirs(ctx); err != nil {
			return 0, err
		}
	}
	deleted, err := a.cfg.Store.DeleteAccount(ctx, accountID, func(now []*stack.Stack) error {
		if Digest(now) != confirmed {
			return stack.NewError(stack.Conflict, "nothing was deleted: the account's stacks changed in the meantime; "+hint)
		}
		for _, k := range now {
			if k.Node, err = heir(k.Node); err != nil {
				return err
			}
		}
		return nil
	})
	return len(deleted), err
}

// Digest returns a text of 64 characters that identifies a set of stacks, in any order.
func Digest(stacks []*stack.Stack) string {
	var ids []string
	for _, s := range stacks {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, " ")))
	return hex.EncodeToString(sum[:])
}

// find returns the account with an email; hint ends the error if there is none.
func (a *Accounts) find(ctx context.Context, email, hint string) (store.Account, error) {
	account, _, ok, err := a.cfg.Store.AccountByEmail(ctx, email)
	if err == nil && !ok {
		err = stack.NewError(stack.NotFound, email+" has no account; "+hint)
	}
	return account, err
}
