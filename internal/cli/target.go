package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
)

// isStackID matches the ids of stacks. A service's name has no underscore.
var isStackID = regexp.MustCompile(`^stk_[0-9a-fA-F]{12}$`)

// takeStack removes a stack's id from a command's arguments, as if it had been given
// with --stack, and returns the others.
func (a *app) takeStack(args []string) (others []string, err error) {
	for _, arg := range args {
		switch {
		case strings.HasPrefix(arg, "stk_") && !isStackID.MatchString(arg) && !exists(arg):
			return nil, usagef("%s is not the id of a stack: an id is stk_ followed by 12 hexadecimal digits; run berth list to see yours", arg)
		case !isStackID.MatchString(arg):
			others = append(others, arg)
		case a.stack != "" && !strings.EqualFold(a.stack, arg):
			return nil, usagef("%s and %s are two stacks, but a command works on one; pass only one of them", a.stack, arg)
		default:
			a.stack = arg
		}
	}
	return others, nil
}

// exists reports whether an argument is the path of a file or folder.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// knownStacks returns the ids of the stacks that are remembered for the server, for
// shell completion; none if they cannot be read.
func (a *app) knownStacks() []cobra.Completion {
	_, known, err := a.account()
	if err != nil {
		return nil
	}
	var ids []cobra.Completion
	for _, id := range slices.Sorted(maps.Keys(known.Stacks)) {
		ids = append(ids, cobra.CompletionWithDesc(id, strings.Join(strings.Fields(clean(known.Stacks[id].Name, false)), " ")))
	}
	return ids
}

// target is an existing stack, with a client whose token manages it.
type target struct {
	api   *client.Client
	stack *client.Stack
	began *client.Deploy // by the command; nil for none, or if the server does not show it
}

// target determines the stack that a command is for and requests it from the server.
func (a *app) target(ctx context.Context) (*target, error) {
	c, known, err := a.account()
	if err != nil {
		return nil, err
	}
	id, err := a.requireStack(c, known)
	if err != nil {
		return nil, err
	}
	t, err := a.reach(ctx, c, known, id)
	if client.IsStatus(err, http.StatusNotFound) {
		return nil, &failure{code: exitNotFound, detail: err.Error(), next: "run berth list to see your stacks"}
	}
	return t, err
}

// namedStack returns the id given by an argument, --stack or BERTH_STACK, "" for none,
// in lower case like the server's ids.
func (a *app) namedStack() string { return strings.ToLower(cmp.Or(a.stack, a.env("BERTH_STACK"))) }

// stackID returns the id that was given, or else the folder's; "" for none.
func (a *app) stackID(known *onServer) (string, error) {
	if id := a.namedStack(); id != "" {
		return id, nil
	}
	folder, err := folderKey(a.dir)
	if err != nil {
		return "", err
	}
	return known.nearest(folder), nil
}

// requireStack is like stackID, and fails if there is none.
func (a *app) requireStack(c *client.Client, known *onServer) (string, error) {
	id, err := a.stackID(known)
	if err == nil && id == "" {
		err = &failure{
			code: exitNotFound, detail: "no stack is remembered for this folder on " + c.Server(),
			next: "run berth deploy to create one, or pass a stack's id as an argument or in BERTH_STACK",
		}
	}
	return id, err
}

// reach requests a stack with each token that may manage it, until one does.
func (a *app) reach(ctx context.Context, c *client.Client, known *onServer, id string) (*target, error) {
	tokens := a.tokens(known, id)
	if len(tokens) == 0 {
		return nil, &failure{
			code: exitAccess, detail: fmt.Sprintf("there is no token for %s", id),
			next: "set BERTH_TOKEN to its manage token or to your API key, or run berth login",
		}
	}
	var err error
	for _, token := range tokens {
		t := &target{api: c.WithToken(token)}
		if t.stack, err = t.api.Stack(ctx, id, false); err == nil {
			a.recall(known, t.stack)
			return t, nil
		}
		if !client.IsStatus(err, http.StatusUnauthorized, http.StatusForbidden) {
			break
		}
	}
	return nil, err
}

// tokens returns the tokens that may manage a stack, the likeliest first.
func (a *app) tokens(known *onServer, id string) []string {
	if token := a.env("BERTH_TOKEN"); token != "" {
		return []string{token}
	}
	tokens := []string{known.Stacks[id].ManageToken, known.APIKey}
	return slices.DeleteFunc(tokens, func(token string) bool { return token == "" })
}

// hasManageToken reports whether BERTH_TOKEN is the token of one stack.
func (a *app) hasManageToken() bool { return strings.HasPrefix(a.env("BERTH_TOKEN"), "ast_anon_") }

// recall adds what only the creation returned and is still valid.
func (a *app) recall(known *onServer, s *client.Stack) {
	if k := known.Stacks[s.ID]; !s.Claimed {
		s.ClaimCode, s.ClaimURL = k.ClaimCode, k.ClaimURL
	}
}

// account returns a client with the API key, and what is remembered.
func (a *app) account() (*client.Client, *onServer, error) {
	c, err := a.connect()
	if err != nil {
		return nil, nil, err
	}
	known, err := a.memory.load(c.Server())
	if err != nil {
		return nil, nil, err
	}
	return c.WithToken(cmp.Or(a.env("BERTH_TOKEN"), known.APIKey)), known, nil
}

// ownAccount is account for what needs an API key.
func (a *app) ownAccount() (*client.Client, *onServer, error) {
	c, known, err := a.account()
	if err == nil && a.env("BERTH_TOKEN") == "" && known.APIKey == "" {
		err = &failure{
			code: exitAccess, detail: "this needs your API key for " + c.Server(),
			next: "run berth login, or set BERTH_TOKEN to the key",
		}
	}
	return c, known, err
}
