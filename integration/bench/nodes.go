package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/peer"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/store/postgrestest"
)

// What is measured of many nodes on one PostgreSQL.
const (
	nodesInRow  = 50
	stacksInRow = 10_000
	nodeSamples = 1000
	nodeLoads   = 5
)

// Goals in milliseconds, from the issue that asks for them.
const (
	nodeGoal  = 2
	tableGoal = 300
)

// fleet is many nodes with one database, without engines.
type fleet struct {
	server *postgrestest.Server
	nodes  []*store.Store
	stacks []string
}

// measureNodes measures what nodes ask of the database while 50 of them share it, with
// 10,000 stacks.
func (b *bench) measureNodes(ctx context.Context) (err error) {
	f := &fleet{}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.open(ctx); err != nil {
		return err
	}
	for _, row := range []struct {
		what string
		ask  func(context.Context, *store.Store, string) (time.Duration, error)
	}{
		{"owner of a stack", placement},
		{"row of a stack whose time has come", timer},
		{"wake of a node after another's commit", f.wake},
	} {
		took, err := f.sample(ctx, row.ask)
		if err != nil {
			return fmt.Errorf("%s: %w", row.what, err)
		}
		b.table.worst(fmt.Sprintf("%d nodes, %d stacks: %s, p99", nodesInRow, stacksInRow, row.what), "%.2f ms", []float64{highest99(took)}, nodeGoal)
	}
	loads, err := f.loadTables(ctx)
	if err != nil {
		return err
	}
	b.table.worst(fmt.Sprintf("%d nodes, %d stacks: route table read", nodesInRow, stacksInRow), millis, loads, tableGoal)
	return nil
}

// open starts PostgreSQL and makes the stacks, each owned by one of the nodes.
func (f *fleet) open(ctx context.Context) (err error) {
	if f.server, err = postgrestest.Open(); err != nil {
		return err
	}
	address, err := f.server.Make(ctx)
	if err != nil {
		return err
	}
	for range nodesInRow {
		s, err := store.Open(ctx, store.Options{Postgres: address, Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		f.nodes = append(f.nodes, s)
		go s.FollowOthers(ctx)
	}
	for i := range stacksInRow {
		k := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
		k.Network, k.Node, k.Epoch, k.Status = k.ID, nodeName(i%nodesInRow), 1, stack.Live
		if err := f.nodes[0].Create(ctx, k, []stack.Event{k.Created()}); err != nil {
			return err
		}
		f.stacks = append(f.stacks, k.ID)
	}
	return nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%02d", i) }

func (f *fleet) close() error {
	var errs []error
	for _, s := range f.nodes {
		errs = append(errs, s.Close())
	}
	if f.server != nil {
		errs = append(errs, f.server.Close())
	}
	return errors.Join(errs...)
}

// sample asks about random stacks through random nodes, and returns how long each took in
// milliseconds.
func (f *fleet) sample(ctx context.Context, ask func(context.Context, *store.Store, string) (time.Duration, error)) ([]float64, error) {
	var took []float64
	for i := range nodeSamples + nodesInRow {
		s, id := f.nodes[i%nodesInRow], f.stacks[rand.IntN(len(f.stacks))]
		lasted, err := ask(ctx, s, id)
		if err != nil {
			return nil, err
		}
		if i >= nodesInRow { // the first of each node connects
			took = append(took, inMillis(lasted))
		}
	}
	return took, nil
}

// placement asks for the owner of a stack.
func placement(ctx context.Context, s *store.Store, id string) (time.Duration, error) {
	begun := time.Now()
	_, err := s.Placement(ctx, id)
	return time.Since(begun), err
}

// timer reads the row of a stack, as its owner does when a deadline has come.
func timer(ctx context.Context, s *store.Store, id string) (time.Duration, error) {
	begun := time.Now()
	_, err := s.Get(ctx, id)
	return time.Since(begun), err
}

// wake commits a change of a stack through a node, and returns how long after the end of the
// commit another one hears of it.
func (f *fleet) wake(ctx context.Context, s *store.Store, id string) (time.Duration, error) {
	other := s
	for other == s {
		other = f.nodes[rand.IntN(nodesInRow)]
	}
	woken, stop := other.Watch(id)
	defer stop()
	if _, err := s.Update(ctx, id, func(k *stack.Stack) ([]stack.Event, error) { return nil, nil }); err != nil {
		return 0, err
	}
	committed := time.Now()
	select {
	case <-woken:
		return time.Since(committed), nil
	case <-time.After(5 * time.Second):
		return 0, errors.New("no wake within 5 s")
	}
}

// loadTables makes the route tables of a few nodes, and returns how long each took in
// milliseconds.
func (f *fleet) loadTables(ctx context.Context) (took []float64, err error) {
	for i := range nodeLoads {
		t := peer.NewTable(peer.TableConfig{
			Rows: f.nodes[i], Routes: &proxy.Routes{}, Self: nodeName(i), Domain: "apps.example.com", Log: slog.New(slog.DiscardHandler),
			Peer: func(node string) *proxy.Peer { return proxy.NewPeer(proxy.PeerOptions{Node: node}) },
		})
		begun := time.Now()
		if err := t.Load(ctx); err != nil {
			return nil, err
		}
		took = append(took, inMillis(time.Since(begun)))
	}
	return took, nil
}

// highest99 returns the 99th percentile.
func highest99(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)*99/100]
}
