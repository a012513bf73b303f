package api

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// The roles that a response names.
const (
	roleAgent = "agent" // a manage token
	roleOwner = "owner" // the owner's API key
)

// caller is who a request comes from: an account, or whoever holds the manage
// token of a stack.
type caller struct {
	account string // "" for a manage token
	stack   string // "" for an account, and for a manage token that no stack has
}

// role is the caller's role on the stack; "" when it has none.
func (who caller) role(s *stack.Stack) string {
	switch {
	case who.account != "" && who.account == s.Owner:
		return roleOwner
	case who.stack != "" && who.stack == s.ID:
		return roleAgent
	}
	return ""
}

// open finds the stack of the path and the caller's role on it, checked in the
// order of docs/api.md, "Order of checks": 401, 404, 403.
func (a *API) open(c *fiber.Ctx) (*stack.Stack, string, error) {
	token, present := bearer(c)
	s, role, err := a.grant(token, present, c.Params("id"))
	if err == nil {
		noteStack(c, s.ID)
	}
	return s, role, err
}

// grant finds the stack of an id and the role on it of whoever holds the token.
func (a *API) grant(token string, present bool, id string) (*stack.Stack, string, error) {
	who, err := a.caller(token, present)
	if err != nil {
		return nil, "", err
	}
	s, err := a.find(id)
	if err != nil {
		return nil, "", err
	}
	if role := who.role(s); role != "" {
		return s, role, nil
	}
	instead := "; use the manage_token that its creation returned, or the API key of the account that owns it"
	if bytes.Equal(auth.Hash(token), s.RevokedTokenHash) {
		instead = ": the owner of the stack revoked its manage_token; ask them to deploy, or for the API key of their account"
	}
	return nil, "", stack.NewError(stack.Forbidden, fmt.Sprintf("this token does not grant access to %s%s", s.ID, instead))
}

// find reads a stack that is not deleted.
func (a *API) find(id string) (*stack.Stack, error) {
	if !stack.ValidID(id) {
		return nil, stack.NewNoStack(shorten(id))
	}
	s, err := a.Store.Get(a.base, id)
	if err != nil {
		return nil, fmt.Errorf("read stack %s: %w", id, err)
	}
	return s, nil
}

// caller looks up the token of a request.
func (a *API) caller(token string, present bool) (caller, error) {
	if !present {
		return caller{}, stack.NewError(stack.Unauthenticated,
			"this needs the header Authorization: Bearer <token>, with the stack's manage_token or the API key of the account that owns it")
	}
	if !strings.HasPrefix(token, auth.ManageTokenPrefix) {
		account, err := a.account(token)
		return caller{account: account.ID}, err
	}
	id, _, err := a.Store.FindManageToken(a.base, auth.Hash(token))
	if err != nil {
		return caller{}, fmt.Errorf("look up the manage token: %w", err)
	}
	return caller{stack: id}, nil
}

// account finds the account of an API key.
func (a *API) account(key string) (store.Account, error) {
	if key != "" {
		account, ok, err := a.Store.AccountByKey(a.base, auth.Hash(key))
		if err != nil {
			return store.Account{}, fmt.Errorf("look up the API key: %w", err)
		}
		if ok {
			return account, nil
		}
	}
	return store.Account{}, stack.NewError(stack.Unauthenticated,
		"the Authorization header holds no valid API key; send Authorization: Bearer as_live_…, with the account's current key from its dashboard; "+
			"a stack is also managed with its own ast_anon_… token, and an anonymous stack is created with no such header")
}

// bearer reads the Authorization header: whether there is one, and the token
// in it, "" when it is of another form or there are several.
func bearer(c *fiber.Ctx) (token string, present bool) {
	values := c.Request().Header.PeekAll(fiber.HeaderAuthorization)
	if len(values) != 1 {
		return "", len(values) > 0
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(string(values[0])), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", true
	}
	return strings.TrimSpace(token), true
}
