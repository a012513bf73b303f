package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/stack"
)

func (a *app) loginCommand() *cobra.Command {
	return a.onAccount(&cobra.Command{
		Use:   "login",
		Short: "Log in with your API key, so that your account owns what you deploy",
		Long:  "Log in to a server with your API key and save the key on this machine. The key is read from the terminal without being shown, or from standard input if that is not a terminal.",
		Example: `berth login
berth login < key.txt`,
	}, a.login)
}

func (a *app) login(ctx context.Context) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	key, err := a.readKey(ctx, c.Server())
	if err != nil {
		return err
	}
	account, err := c.WithToken(key).Me(ctx)
	if err != nil {
		return err
	}
	if err := a.memory.update(c.Server(), func(s *onServer) { s.APIKey, s.Email = key, account.Email }); err != nil {
		return err
	}
	return a.report(map[string]string{"server": c.Server(), "email": account.Email}, "logged in to %s as %s", c.Server(), account.Email)
}

func (a *app) readKey(ctx context.Context, server string) (key string, err error) {
	if a.ui.asks {
		key, err = a.ui.askSecret(ctx, fmt.Sprintf("API key for %s (the dashboard shows it once): ", server))
	} else {
		key, err = interruptible(ctx, func() (string, error) { return readLine(a.ui.in) })
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", usagef("could not read an API key: %v", err)
	}
	if !strings.HasPrefix(key, "as_live_") {
		return "", usagef("this is not an API key; API keys begin with as_live_")
	}
	return key, nil
}

func (a *app) logoutCommand() *cobra.Command {
	return a.onAccount(&cobra.Command{
		Use:   "logout",
		Short: "Log out: forget your API key and keep the stacks running",
	}, a.logout)
}

func (a *app) logout(context.Context) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	if err := a.memory.update(c.Server(), func(s *onServer) { s.APIKey, s.Email = "", "" }); err != nil {
		return err
	}
	return a.report(map[string]string{"server": c.Server()}, "logged out of %s", c.Server())
}

func (a *app) whoamiCommand() *cobra.Command {
	return a.onAccount(&cobra.Command{
		Use:   "whoami",
		Short: "Show which account you are logged in to",
	}, a.whoami)
}

func (a *app) whoami(ctx context.Context) error {
	c, _, err := a.ownAccount()
	if err != nil {
		return err
	}
	account, err := c.Me(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.ui.printJSON(map[string]string{"server": c.Server(), "email": account.Email})
	}
	return a.ui.println(a.ui.clean(account.Email))
}

func (a *app) claimCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "claim [CODE | STACK]",
		Short: "Claim a stack for your account",
		Long:  "Claim a stack for your account by its claim code or link. Without CODE, claim STACK or this folder's stack with the code remembered from its deploy.",
		Example: `berth claim CLM-7K2M-Q9XD-4HTR
berth claim stk_3f2a9c1b7d4e`,
		GroupID: "account",
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "stop waiting for an expired stack to be restored after this time")
	return a.forStack(cmd, 1, func(ctx context.Context, args []string) error {
		code := argument(args, "")
		if code != "" && a.stack != "" {
			return usagef("a claim code already identifies its stack; pass either %s or the code, not both", a.stack)
		}
		return a.claim(ctx, code, timeout)
	})
}

func (a *app) claim(ctx context.Context, code string, timeout time.Duration) error {
	c, known, err := a.ownAccount()
	if err != nil {
		return err
	}
	if code, err = a.claimCode(known, code); err != nil {
		return err
	}
	s, err := c.Claim(ctx, code)
	if err != nil {
		return err
	}
	err = a.memory.update(c.Server(), func(on *onServer) {
		if k, mine := on.Stacks[s.ID]; mine {
			k.ClaimCode, k.ClaimURL = "", "" // they are used up
			on.Stacks[s.ID] = k
		}
	})
	if err != nil {
		return err
	}
	a.ui.sayf("%s (%s) is yours", s.Name, s.ID)
	return a.restored(ctx, &target{api: c, stack: s}, timeout)
}

// restored waits until a claimed stack is restored, and shows it. A redeploy that
// failed before does not make the claim fail.
func (a *app) restored(ctx context.Context, t *target, timeout time.Duration) error {
	if t.stack.Status == client.Building {
		since, err := lastEvent(ctx, t)
		if err != nil {
			return err
		}
		if err := a.settle(ctx, t, since, timeout); err != nil {
			return err
		}
	}
	if err := a.show(t.stack); err != nil {
		return err
	}
	if t.stack.Status == client.Failed {
		return verdict(t.stack, nil)
	}
	return nil
}

// claimCode extracts a code from a link; without either it returns the remembered code
// of the folder's stack.
func (a *app) claimCode(known *onServer, given string) (string, error) {
	if given == "" {
		id, err := a.stackID(known)
		if err != nil {
			return "", err
		}
		if known.Stacks[id].ClaimCode == "" {
			return "", usagef("no claim code is remembered for %s; pass it, as in berth claim CLM-7K2M-Q9XD-4HTR", cmp.Or(id, "this folder's stack"))
		}
		return known.Stacks[id].ClaimCode, nil
	}
	if u, err := url.Parse(given); err == nil && u.Host != "" {
		return path.Base(u.Path), nil
	}
	return given, nil
}

func (a *app) listCommand() *cobra.Command {
	return a.onAccount(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List your stacks and those deployed from this machine",
	}, a.list)
}

func (a *app) list(ctx context.Context) error {
	c, known, err := a.account()
	if err != nil {
		return err
	}
	stacks := []client.Stack{}
	if token := a.env("BERTH_TOKEN"); known.APIKey != "" || strings.HasPrefix(token, "as_live_") {
		me, err := c.Me(ctx)
		if err != nil {
			return err
		}
		stacks = append(stacks, me.Stacks...)
	}
	others, gone, err := a.rememberedStacks(ctx, c, known, stacks)
	if err != nil {
		return err
	}
	if err := a.forgetAll(c.Server(), gone); err != nil {
		return err
	}
	stacks = append(stacks, others...)
	slices.SortStableFunc(stacks, func(x, y client.Stack) int { return cmp.Compare(y.CreatedAt, x.CreatedAt) })
	if a.json {
		return a.ui.printJSON(map[string]any{"stacks": stacks})
	}
	return a.printList(stacks, known)
}

// rememberedStacks requests the stacks whose tokens are kept here and that are not
// among those of the account. It omits stacks that the server no longer has.
func (a *app) rememberedStacks(ctx context.Context, c *client.Client, known *onServer, listed []client.Stack) (there []client.Stack, gone []string, err error) {
	for id, k := range known.Stacks {
		if slices.ContainsFunc(listed, func(s client.Stack) bool { return s.ID == id }) {
			continue
		}
		s, err := c.WithToken(k.ManageToken).Stack(ctx, id, false)
		var refusal *client.Error
		switch {
		case err == nil:
			a.recall(known, s)
			there = append(there, *s)
		case client.IsNoStack(err, id):
			gone = append(gone, id)
		case errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError:
			a.ui.sayf("%s: %v", id, err)
		default:
			return nil, nil, err
		}
	}
	return there, gone, nil
}

func (a *app) forgetAll(server string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	for _, id := range ids {
		a.memory.forgetSeen(server, id)
	}
	return a.memory.update(server, func(s *onServer) {
		for _, id := range ids {
			s.forget(id)
		}
	})
}

func (a *app) printList(stacks []client.Stack, known *onServer) error {
	if len(stacks) == 0 {
		a.ui.sayf("no stacks; run berth deploy to create one")
		return nil
	}
	w := tabwriter.NewWriter(a.ui.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tSTATUS\tLEFT\tFOLDER")
	for _, s := range stacks {
		remaining := "-"
		if s.ExpiresAt != nil && s.Status != client.Expired {
			remaining = stack.RoughDuration(time.Until(unixTime(*s.ExpiresAt)))
		}
		folder := cmp.Or(strings.Join(known.foldersOf(s.ID), ", "), "-")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.ID, a.ui.clean(s.Name), s.Status, remaining, folder)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
