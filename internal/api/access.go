package api

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/stackid"
	"github.com/berth-host/berth/internal/store"
)

// The roles that a response names.
const (
	roleAgent = "agent" // a manage token
	roleOwner = "owner" // the owner's API key
)

// gate finds out who calls and what they may do.
type gate struct {
	store Store
	base  context.Context // of every read from the store
}

// caller is the sender of a request: an account, or the holder of a stack's manage
// token.
type caller struct {
	account string // "" for a manage token
	stack   string // "" for an account, and for an unknown manage token
}

// role returns the caller's role on the stack, or "" for none.
func (who caller) role(s *stack.Stack) string {
	switch {
	case who.account != "" && who.account == s.Owner:
		return roleOwner
	case who.stack != "" && who.stack == s.ID:
		return roleAgent
	}
	return ""
}

// open returns the stack of the path and the caller's role on it, checked in the
// order of docs/api.md, "Order of checks": 401, 404, 403.
func (g gate) open(c *fiber.Ctx) (*stack.Stack, string, error) {
	token, present := bearer(c)
	s, role, err := g.grant(token, present, c.Params("id"))
	if err != nil {
		return nil, "", err
	}
	noteStack(c, s.ID)
	if role == roleAgent && s.Claimed() && c.Method() != fiber.MethodGet && c.Method() != fiber.MethodHead {
		err = g.checkOwner(s)
	}
	return s, role, err
}

// checkOwner refuses what an agent would change for an account that is disabled.
func (g gate) checkOwner(s *stack.Stack) error {
	if err := g.store.CheckAccount(g.base, s.Owner); err != nil {
		return fmt.Errorf("check the owner of stack %s: %w", s.ID, err)
	}
	return nil
}

// grant returns the stack with an id and the role on it of the token's holder.
func (g gate) grant(token string, present bool, id string) (*stack.Stack, string, error) {
	who, err := g.caller(token, present)
	if err != nil {
		return nil, "", err
	}
	s, err := g.find(id)
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

// requireOwner refuses the manage token of a claimed stack for something that only the
// owner of such a stack may do; what completes "the manage_token cannot …".
func (g gate) requireOwner(s *stack.Stack, role, what string) error {
	if role == roleOwner || !s.Claimed() {
		return nil
	}
	email, err := g.store.AccountEmail(g.base, s.Owner)
	if err != nil {
		return fmt.Errorf("read the owner of stack %s: %w", s.ID, err)
	}
	return stack.NewError(stack.Forbidden, fmt.Sprintf(
		"the stack is claimed, so its manage_token cannot %s: only its owner can; ask %s to do it, or for the API key of their account", what, email))
}

// find returns a stack that is not deleted, or NotFound.
func (g gate) find(id string) (*stack.Stack, error) {
	if !stackid.Valid(id) {
		return nil, stack.NewNoStack(shorten(id))
	}
	s, err := g.store.Get(g.base, id)
	if err != nil {
		return nil, fmt.Errorf("read stack %s: %w", id, err)
	}
	return s, nil
}

// caller looks up the token of a request.
func (g gate) caller(token string, present bool) (caller, error) {
	if !present {
		return caller{}, stack.NewError(stack.Unauthenticated,
			"this needs the header Authorization: Bearer <token>, with the stack's manage_token or the API key of the account that owns it")
	}
	if !strings.HasPrefix(token, auth.ManageTokenPrefix) {
		account, err := g.account(token)
		return caller{account: account.ID}, err
	}
	id, _, err := g.store.FindManageToken(g.base, auth.Hash(token))
	if err != nil {
		return caller{}, fmt.Errorf("look up the manage token: %w", err)
	}
	return caller{stack: id}, nil
}

// creator returns the id of the account that a create is for, "" for an anonymous
// create.
func (g gate) creator(c *fiber.Ctx) (string, error) {
	token, present := bearer(c)
	if !present {
		return "", nil
	}
	account, err := g.account(token)
	return account.ID, err
}

// owner returns the account whose API key the request brings.
func (g gate) owner(c *fiber.Ctx) (store.Account, error) {
	token, present := bearer(c)
	if !present {
		return store.Account{}, stack.NewError(stack.Unauthenticated,
			"this needs the header Authorization: Bearer as_live_…, with the API key of an account")
	}
	return g.account(token)
}

// account returns the account of an API key.
func (g gate) account(key string) (store.Account, error) {
	if key != "" {
		account, ok, err := g.store.AccountByKey(g.base, auth.Hash(key))
		if err != nil {
			return store.Account{}, fmt.Errorf("look up the API key: %w", err)
		}
		if ok {
			return account, account.CheckEnabled()
		}
	}
	return store.Account{}, stack.NewError(stack.Unauthenticated,
		"the Authorization header does not hold a valid API key; send Authorization: Bearer as_live_…, with the account's current key from its dashboard; "+
			"you can also manage one stack with its own ast_anon_… token, and create an anonymous stack without this header")
}

// bearer reads the Authorization header: it reports whether there is one, and returns
// the token in it, "" for a header of another form and for several.
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
