package admission

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// walls is a firewall that calls a function instead of changing rules.
type walls func(mail []string) error

func (f walls) Apply(_ context.Context, mail []string) error { return f(mail) }

// newTestGate is a gate of a host with no stacks, whose disk and firewall the test
// controls.
func newTestGate(free *disk.Space, fault *error) Config {
	return Config{
		Stacks:    func(context.Context) ([]*stack.Stack, error) { return nil, nil },
		Firewall:  walls(func([]string) error { return *fault }),
		Disks:     []Disk{{Free: func() (disk.Space, error) { return *free, nil }}},
		DiskFloor: 1 << 20,
		Log:       slog.New(slog.DiscardHandler),
	}
}

func TestAdmit_RefusesWhileADiskIsShort(t *testing.T) {
	enough := disk.Space{Bytes: 1 << 20, Inodes: 1 << 20 / bytesPerInode}
	var free disk.Space
	g := New(newTestGate(&free, new(error)))
	for _, short := range []disk.Space{{Bytes: enough.Bytes - 1, Inodes: enough.Inodes}, {Bytes: enough.Bytes, Inodes: enough.Inodes - 1}} {
		free = short
		var fault *stack.Error
		require.ErrorAs(t, g.Admit(false), &fault)
		require.Equal(t, stack.Unavailable, fault.Kind)
		require.Equal(t, time.Minute, fault.RetryAfter)
		require.Contains(t, fault.Detail, "short of disk space")
	}
	free = enough
	require.NoError(t, g.Admit(false))
}

func TestAdmit_MakesRoomBeforeItRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := disk.Space{Bytes: 1<<20 - 1, Inodes: disk.Endless}
		cfg := newTestGate(&free, new(error))
		var asked int
		reclaims := int64(1)
		cfg.Disks[0].Reclaim = func(enough func() bool) {
			asked++
			require.False(t, enough())
			free.Bytes += reclaims
			require.Equal(t, reclaims > 0, enough())
		}
		g := New(cfg)
		require.NoError(t, g.Admit(false))
		require.NoError(t, g.Admit(false))
		require.Equal(t, 1, asked, "only while the disk is short")

		free.Bytes--
		require.NoError(t, g.Admit(false))
		require.Equal(t, 2, asked, "each time that it becomes short")

		reclaims = 0
		free.Bytes--
		for range 3 {
			require.Error(t, g.Admit(false))
		}
		require.Equal(t, 3, asked, "not for each refusal")
		time.Sleep(reclaimAgain)
		require.Error(t, g.Admit(false))
		require.Equal(t, 4, asked)
	})
}

func TestAdmit_TakesNoAnonymousStacksWhileTheyAreNotWalledOff(t *testing.T) {
	free, fault := disk.Space{Bytes: disk.Endless, Inodes: disk.Endless}, errors.New("no iptables")
	cfg := newTestGate(&free, &fault)
	g := New(cfg)
	g.Guard(t.Context())
	var refused *stack.Error
	require.ErrorAs(t, g.Admit(true), &refused)
	require.Contains(t, refused.Detail, "firewall rules are not in place")
	require.NoError(t, g.Admit(false), "of a claimed stack")

	fault = nil
	g.Guard(t.Context())
	require.NoError(t, g.Admit(true))

	fault = errors.New("no iptables")
	cfg.AllowUnguarded = true
	g = New(cfg)
	g.Guard(t.Context())
	require.NoError(t, g.Admit(true))
}

func TestGuard_LetsTheNetworksOfClaimedStacksSendMail(t *testing.T) {
	claimed := &stack.Stack{ID: "stk_3f2a9c1b7d4e", Seq: 7, Owner: "acc_1", Generation: stack.Generation{Number: 2}, Deploying: 3}
	var free disk.Space
	cfg := newTestGate(&free, new(error))
	cfg.Instance = "i"
	cfg.Stacks = func(context.Context) ([]*stack.Stack, error) {
		return []*stack.Stack{claimed, {ID: "stk_4e7d1b9c2a3f", Seq: 8, Generation: stack.Generation{Number: 1}}}, nil
	}
	var mail []string
	cfg.Firewall = walls(func(bridges []string) error {
		mail = bridges
		return nil
	})
	New(cfg).Guard(t.Context())
	key := engine.Key{Stack: claimed.ID}
	require.Equal(t, []string{
		engine.Key{Stack: claimed.ID, Generation: 2}.Bridge("i", 7), engine.Key{Stack: claimed.ID, Generation: 2}.Builds().Bridge("i", 7),
		engine.Key{Stack: claimed.ID, Generation: 3}.Bridge("i", 7), engine.Key{Stack: claimed.ID, Generation: 3}.Builds().Bridge("i", 7),
		key.FormerBridge(),
	}, mail)
}

func TestWatch_LooksAtTheRulesWhenPoked(t *testing.T) {
	var free disk.Space
	cfg := newTestGate(&free, new(error))
	looked := make(chan struct{})
	cfg.Firewall = walls(func([]string) error {
		looked <- struct{}{}
		return nil
	})
	g := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.Watch(ctx)
	}()
	g.Poke()
	<-looked
	cancel()
	<-ended
}
