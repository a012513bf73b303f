package operator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/usage"
)

// host notes what it is told.
type host struct {
	told []string
	err  error
	down string // id of a stack
}

func (h *host) Down(id string) bool { return id == h.down }

func (h *host) Stop(_ context.Context, id, reason string) error {
	h.told = append(h.told, "stop "+id+": "+reason)
	return h.err
}

func (h *host) Delete(_ context.Context, id string) error {
	h.told = append(h.told, "delete "+id)
	return h.err
}

type world struct {
	t      *testing.T
	store  *store.Store
	host   *host
	bans   *Bans
	used   map[string]map[string]usage.Use
	backUp func(context.Context, Backup, io.Writer) error
	server *Server
	client *Client
	dir    string
}

// newWorld starts a server in a folder whose path is longer than a socket's may be.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, host: &host{}, bans: &Bans{}, used: map[string]map[string]usage.Use{}, dir: filepath.Join(t.TempDir(), strings.Repeat("long", 30))}
	require.NoError(t, os.Mkdir(w.dir, 0o755))
	var err error
	w.store, err = store.Open(t.Context(), store.Options{Path: filepath.Join(w.dir, "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	w.server = New(Config{
		Store: w.store, Host: w.host, Bans: w.bans, Log: slog.New(slog.DiscardHandler),
		Accounts: account.New(account.Config{Store: w.store}),
		Usage:    func() map[string]map[string]usage.Use { return w.used },
		Builds:   func() (running, waiting int) { return 1, 2 },
		BackUp:   func(ctx context.Context, b Backup, to io.Writer) error { return w.backUp(ctx, b, to) },
		Node:     func(string) (name, state string) { return "two", "away" },
	})
	l, err := Listen(w.dir)
	require.NoError(t, err)
	go func() { _ = w.server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, w.server.Shutdown(context.Background()))
		_ = l.Close() // again where it was served
		_, err := os.Lstat(filepath.Join(w.dir, socketName))
		require.ErrorIs(t, err, os.ErrNotExist)
	})
	w.client = NewClient(w.dir)
	return w
}

func (w *world) account(address string) store.Account {
	w.t.Helper()
	a, err := w.store.CreateAccount(w.t.Context(), address, "", store.Key{Hash: []byte(address)})
	require.NoError(w.t, err)
	return a
}

func (w *world) stack(owner string) *stack.Stack {
	w.t.Helper()
	k := stack.New("shop", []stack.Spec{{Name: "web", Runtime: stack.Runtime{Name: "node", Version: "22"}}, {Name: "api"}}, stack.Now())
	k.Owner = owner
	require.NoError(w.t, w.store.Create(w.t.Context(), k, nil))
	return k
}

func TestSocket_IsItsOwnersAlone(t *testing.T) {
	w := newWorld(t)
	info, err := os.Stat(filepath.Join(w.dir, socketName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestSocket_OfADeadServerIsReplaced(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, socketName), nil, 0o600))
	_, err := NewClient(dir).Stacks(t.Context())
	require.ErrorIs(t, err, ErrNoServer)
	require.EqualError(t, err, "no berthd is running on "+dir)
	l, err := Listen(dir)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = NewClient(dir).Stacks(t.Context())
	require.ErrorIs(t, err, ErrNoServer)
}

func TestStacks_AreShownWithWhatTheyUse(t *testing.T) {
	w := newWorld(t)
	mine, free := w.stack(w.account("ana@example.com").ID), w.stack("")
	disk := stack.Disk{At: stack.Now(), Data: map[string]int64{"web": 30, "api": 4}, Images: 100}
	require.NoError(t, w.store.SetDisk(t.Context(), mine.ID, disk, ""))
	cores, memory, data := 0.5, int64(100), int64(30)
	w.used[mine.ID] = map[string]usage.Use{"web": {Cores: &cores, Memory: &memory}, "api": {Memory: &memory}}
	all, err := w.client.Stacks(t.Context())
	require.NoError(t, err)
	require.Len(t, all.Stacks, 2)
	require.Equal(t, Builds{1, 2}, all.Builds)
	for _, s := range all.Stacks {
		switch s.ID {
		case mine.ID:
			require.Equal(t, "ana@example.com", *s.Owner)
			require.Equal(t, int64(200), *s.Memory)
			require.InDelta(t, 0.5, *s.Cores, 0)
			require.Equal(t, int64(34), *s.Data)
			require.Equal(t, int64(134), *s.Disk)
			require.Equal(t, disk.At, *s.DiskAt)
		case free.ID:
			require.Nil(t, s.Data)
			require.Nil(t, s.Disk)
			require.Nil(t, s.Owner)
			require.Nil(t, s.Memory)
		}
		require.Equal(t, "building", s.Status)
		require.Equal(t, []string{"two", "away"}, []string{s.NodeName, s.NodeState})
	}
	one, err := w.client.Stack(t.Context(), mine.ID)
	require.NoError(t, err)
	require.Len(t, one.Services, 2)
	require.Equal(t, Service{"web", "node@22", "pending", &cores, &memory, &data}, one.Services[0])
	_, err = w.client.Stack(t.Context(), "stk_ffffffffffff")
	require.ErrorContains(t, err, "stk_ffffffffffff")
}

func TestStacks_ThatAreNotServedYetAreRestoring(t *testing.T) {
	w := newWorld(t)
	restoring := map[string]bool{}
	for _, down := range []bool{true, false} {
		k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
		k.Status, k.Deploying = stack.Live, 0
		require.NoError(t, w.store.Create(t.Context(), k, nil))
		restoring[k.ID] = down
		if down {
			w.host.down = k.ID
		}
	}
	all, err := w.client.Stacks(t.Context())
	require.NoError(t, err)
	found := map[string]bool{}
	for _, s := range all.Stacks {
		require.Equal(t, "live", s.Status)
		found[s.ID] = s.Restoring
	}
	require.Equal(t, restoring, found)
}

func TestStop_TellsTheOwnerWhy(t *testing.T) {
	w := newWorld(t)
	require.ErrorContains(t, w.client.StopStack(t.Context(), "stk_1", " "), "--reason")
	require.Empty(t, w.host.told)
	require.NoError(t, w.client.StopStack(t.Context(), "stk_1", "mines coins"))
	require.NoError(t, w.client.DeleteStack(t.Context(), "stk_2"))
	w.host.err = errors.New("the engine is away")
	require.EqualError(t, w.client.DeleteStack(t.Context(), "stk_3"), "the engine is away")
	require.Equal(t, []string{"stop stk_1: stopped by the operator of this host: mines coins", "delete stk_2", "delete stk_3"}, w.host.told)
}

func TestAccounts_DisablingSaysWhereStacksOfOtherNodesAreStopped(t *testing.T) {
	w := newWorld(t)
	mine := w.stack(w.account("ana@example.com").ID)
	w.host.err = store.ErrNotOwner
	_, err := w.client.DisableAccount(t.Context(), "ana@example.com", "it's spam", true)
	require.EqualError(t, err, "the account is disabled, but its stack "+mine.ID+" is on node two; run this there: "+
		"berthd stacks stop "+mine.ID+` --reason 'its account is disabled: it'\''s spam'`)
}

func TestAccounts_DisablingIsRefusedInOneLineForAllStacks(t *testing.T) {
	w := newWorld(t)
	owner := w.account("ana@example.com").ID
	one, other := w.stack(owner), w.stack(owner)
	w.host.err = errors.New("the engine is away")
	_, err := w.client.DisableAccount(t.Context(), "ana@example.com", "", true)
	require.ErrorContains(t, err, one.ID+" was not stopped: the engine is away")
	require.ErrorContains(t, err, other.ID+" was not stopped: the engine is away")
	require.NotContains(t, err.Error(), "\n")
	all, auditErr := w.client.Audit(t.Context(), 10)
	require.NoError(t, auditErr)
	require.Equal(t, err.Error(), all.Entries[0].Result)
}

func TestAccounts_AreDisabledAndEnabled(t *testing.T) {
	w := newWorld(t)
	ana := w.account("ana@example.com")
	mine := w.stack(ana.ID)
	w.stack("")
	stopped, err := w.client.DisableAccount(t.Context(), "ANA@example.com", "", true)
	require.NoError(t, err)
	require.Equal(t, []string{mine.ID}, stopped.Stacks)
	require.Equal(t, []string{"stop " + mine.ID + ": stopped by the operator of this host: its account is disabled: no reason was given"}, w.host.told)
	all, err := w.client.Accounts(t.Context())
	require.NoError(t, err)
	require.Len(t, all.Accounts, 1)
	require.True(t, all.Accounts[0].Disabled)
	require.Equal(t, 1, all.Accounts[0].Stacks)
	found, _, err := w.store.AccountByKey(t.Context(), []byte("ana@example.com"))
	require.NoError(t, err)
	require.Equal(t, stack.Forbidden, stack.KindOf(found.CheckEnabled()))
	require.NoError(t, w.client.EnableAccount(t.Context(), "ana@example.com"))
	found, _, err = w.store.AccountByKey(t.Context(), []byte("ana@example.com"))
	require.NoError(t, err)
	require.NoError(t, found.CheckEnabled())
	require.ErrorContains(t, w.client.EnableAccount(t.Context(), "bo@example.com"), "bo@example.com has no account")
}

func TestBans_HoldAtOnceAndInTheNextServer(t *testing.T) {
	w := newWorld(t)
	for given, network := range map[string]string{
		"203.0.113.9/24": "203.0.113.0/24", "198.51.100.7": "198.51.100.7/32", "2001:db8::1/32": "2001:db8::/32", "::ffff:192.0.2.1": "192.0.2.1/32",
		"::ffff:192.0.2.8/125": "192.0.2.8/29",
	} {
		ban, err := w.client.Ban(t.Context(), given, "1h")
		require.NoError(t, err)
		require.Equal(t, network, ban.Network)
		require.WithinDuration(t, time.Now().Add(time.Hour), *ban.EndsAt, time.Minute)
	}
	ban, err := w.client.Ban(t.Context(), "203.0.113.0/24", "")
	require.NoError(t, err)
	require.Nil(t, ban.EndsAt)
	for given, says := range map[string]string{
		"0.0.0.0/0": "every address", "::/0": "every address", "::ffff:0.0.0.0/96": "every address", "ana": "is not a network", "fe80::1%eth0": "is not a network",
	} {
		_, err := w.client.Ban(t.Context(), given, "")
		require.ErrorContains(t, err, says, given)
	}
	_, err = w.client.Ban(t.Context(), "192.0.2.0/24", "soon")
	require.ErrorContains(t, err, `--for "soon"`)
	banned := func(b *Bans) (all []string) {
		for _, ip := range []string{"203.0.113.200", "203.0.114.1", "198.51.100.7", "198.51.100.8", "2001:db8:5::1", "::ffff:192.0.2.1", "192.0.2.15"} {
			if b.Banned(netip.MustParseAddr(ip)) {
				all = append(all, ip)
			}
		}
		return all
	}
	want := []string{"203.0.113.200", "198.51.100.7", "2001:db8:5::1", "::ffff:192.0.2.1", "192.0.2.15"}
	require.Equal(t, want, banned(w.bans))
	var next Bans
	require.Empty(t, banned(&next))
	require.NoError(t, next.Read(t.Context(), w.store))
	require.Equal(t, want, banned(&next))
	require.NoError(t, w.client.Unban(t.Context(), "203.0.113.0/24"))
	require.ErrorContains(t, w.client.Unban(t.Context(), "203.0.113.0/24"), "is not banned")
	require.Equal(t, want[1:], banned(w.bans))
	list, err := w.client.Bans(t.Context())
	require.NoError(t, err)
	require.Len(t, list.Bans, 4)
}

func TestAudit_HasEveryCommandWithItsSenderAndResult(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.Stacks(t.Context())
	require.NoError(t, err)
	require.Error(t, w.client.EnableAccount(t.Context(), "bo@example.com"))
	w.account("ana@example.com")
	_, err = w.client.DisableAccount(t.Context(), "ana@example.com", `says "no"`, false)
	require.NoError(t, err)
	_, err = w.client.Ban(t.Context(), "203.0.113.0/24", "24h")
	require.NoError(t, err)
	all, err := w.client.Audit(t.Context(), 4)
	require.NoError(t, err)
	var lines []string
	for _, e := range all.Entries {
		require.Equal(t, os.Getuid(), e.UID)
		require.WithinDuration(t, time.Now(), e.At, time.Minute)
		lines = append(lines, e.Command+": "+e.Result)
	}
	require.Equal(t, []string{
		"accounts enable bo@example.com: bo@example.com has no account; berthd accounts list shows all",
		`accounts disable ana@example.com --reason "says \"no\"": ok`,
		"ban 203.0.113.0/24 --for 24h: ok",
		"audit: begun",
	}, lines)
	conn, err := dial(t.Context(), w.dir)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /stacks/stop HTTP/1.0\r\nContent-Length: 1\r\n\r\nx")
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "422")
	require.Empty(t, w.host.told)
}

func TestWord_IsOneLineAndNotAnotherArgument(t *testing.T) {
	for text, want := range map[string]string{
		"stk_3f2a9c1b7d4e": "stk_3f2a9c1b7d4e", "ana+x@example.com": "ana+x@example.com", "2001:db8::/48": "2001:db8::/48",
		"": `""`, "a\nb": `"a\nb"`, "a --stop": `"a --stop"`, "\u202eb": `"\u202eb"`,
	} {
		require.Equal(t, want, word(text))
	}
}

func TestBan_RefusesNoTimeAtAll(t *testing.T) {
	w := newWorld(t)
	for _, lasts := range []string{"0s", "-1h", "soon"} {
		_, err := w.client.Ban(t.Context(), "203.0.113.0/24", lasts)
		require.ErrorContains(t, err, "--for", lasts)
	}
	all, err := w.client.Bans(t.Context())
	require.NoError(t, err)
	require.Empty(t, all.Bans)
}

func TestFollow_ReadsBansThatOthersHaveSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer s.Close()
		var bans Bans
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			bans.Follow(ctx, s, slog.New(slog.DiscardHandler))
		}()
		address := netip.MustParseAddr("203.0.113.7")
		require.False(t, bans.Banned(address))
		require.NoError(t, s.SetBan(t.Context(), store.Ban{Network: netip.PrefixFrom(address, 32), CreatedAt: stack.Now(), EndsAt: stack.Now().Add(time.Minute)}))
		time.Sleep(2 * bansEvery)
		require.True(t, bans.Banned(address))
		time.Sleep(2 * time.Minute)
		require.False(t, bans.Banned(address), "the ban has ended")
		stop()
		<-done
	})
}

func TestClient_SaysThatAServerIsStarting(t *testing.T) {
	dir := t.TempDir()
	c := NewClient(dir)
	_, err := c.Stacks(t.Context())
	require.EqualError(t, err, "no berthd is running on "+dir)
	require.ErrorIs(t, err, ErrNoServer)
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	_, err = c.Stacks(t.Context())
	require.EqualError(t, err, "the berthd on "+dir+" is still starting; try again in a moment")
}
