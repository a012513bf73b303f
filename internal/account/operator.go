package account

import (
	"context"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
)

// Add makes an account at an operator's wish and returns its API key. Without a
// password its owner cannot sign in until SetPassword gives it one.
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
	if _, err := a.Store.CreateAccount(ctx, email, hash, storedKey(key)); err != nil {
		return "", err
	}
	return key, nil
}

// SetPassword gives an account another password at an operator's wish, and ends
// all its sessions. An unknown email is NotFound.
func (a *Accounts) SetPassword(ctx context.Context, email, password string) error {
	account, _, ok, err := a.Store.AccountByEmail(ctx, email)
	if err != nil {
		return err
	}
	if !ok {
		return stack.NewError(stack.NotFound, email+" has no account; berthd account create makes one")
	}
	hash, err := a.hashNew(ctx, password)
	if err != nil {
		return err
	}
	return a.Store.SetPassword(ctx, account.ID, hash, 0)
}
