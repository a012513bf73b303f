package peer_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/peer"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// The move of a failed stack and the takeover of an expired one record no event.
func TestTable_HearsAtOnceOfAnOwnerThatNoEventNames(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	db, err := store.Open(ctx, store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{1}), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	k := stack.New("shop", nil, stack.Now())
	k.Node = "n2"
	if err := db.Create(ctx, k, nil); err != nil {
		t.Fatal(err)
	}
	see := sight{newWorld(t), "n1"}
	pool := peer.NewPool(peer.PoolConfig{Nodes: see, Certificates: see.world.authority.issue(t, "n1"), Protocol: peer.Protocol, Log: quiet})
	table := peer.NewTable(peer.TableConfig{Rows: db, Routes: &proxy.Routes{}, Self: "n1", Peer: pool.Peer, Domain: "apps.test", Log: quiet})
	if err := table.Load(ctx); err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	following.Go(func() { table.Follow(ctx) })
	defer following.Wait()
	defer cancel()
	for _, node := range []string{"n3", "n2", "n3"} {
		began := time.Now()
		if _, err := db.Update(ctx, k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			k.Node, k.Epoch = node, k.Epoch+1
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		for {
			now, err := table.Owner(ctx, k.ID)
			if now == node {
				break
			}
			if err != nil || time.Since(began) > 10*time.Second {
				t.Fatalf("the owner is %s, not %s: %v", now, node, err)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func TestTable_SaysWhetherAHostCouldBeLookedUp(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{1}), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	table := peer.NewTable(peer.TableConfig{Rows: db, Routes: &proxy.Routes{}, Self: "n1", Domain: "apps.test", Log: quiet})
	away, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		host string
		ctx  context.Context
		want bool
	}{
		{"web-0123456789ab.apps.test", t.Context(), true},
		{"web-0123456789ab.apps.test", away, false},
		{"web.apps.test", away, true},
	} {
		if got := table.RereadHost(c.ctx, c.host); got != c.want {
			t.Errorf("%s: %v", c.host, got)
		}
	}
}
