package server

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func TestMoving_MovesTwoStacksAtOnceAndEachOnce(t *testing.T) {
	m := newMoving()
	var now, most, all atomic.Int32
	release := make(chan struct{})
	move := func() {
		most.Store(max(most.Load(), now.Add(1)))
		all.Add(1)
		<-release
		now.Add(-1)
	}
	for range 2 {
		for _, id := range []string{"stk_1", "stk_2", "stk_3"} {
			m.begin(id, move)
		}
	}
	require.Eventually(t, func() bool { return now.Load() == movers }, 5*time.Second, time.Millisecond)
	close(release)
	m.running.Wait()
	require.EqualValues(t, 3, all.Load())
	require.EqualValues(t, movers, most.Load())
	m.begin("stk_1", move)
	m.running.Wait()
	require.EqualValues(t, 4, all.Load(), "it may move again")
}

func TestSettleMove_RecordsWhatBecameOfIt(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	s := &Server{store: db, log: slog.New(slog.DiscardHandler)} // the node ""
	for _, tt := range []struct {
		node string // that has the stack in the end
		why  error
		left bool
		text string
	}{
		{node: "n2"},
		{node: "n2", why: errors.New("the answer was lost")},
		{node: "", why: errors.New("no\nroom"), left: true, text: "no room"},
		{node: "n3", why: store.ErrNotOwner, left: true}, // which is to act now
	} {
		k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
		k.Node = tt.node
		require.NoError(t, db.Create(t.Context(), k, nil))
		m, err := db.AskMove(t.Context(), k.ID, "n2")
		require.NoError(t, err)
		s.settleMove(t.Context(), m, tt.why)
		got, left, err := db.MoveOf(t.Context(), k.ID)
		require.NoError(t, err)
		require.Equal(t, tt.left, left, tt)
		require.Equal(t, tt.text, got.Error, tt)
	}
}

func TestMoveOut_WaitsForTheStacksOfADrainedNodeUntilASecondSignal(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	self := store.Node{ID: "n1", Name: "w1", Holder: "a"}
	k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Node = "n1"
	require.NoError(t, db.Create(t.Context(), k, nil))
	stopping := func(ctx context.Context, drain bool) <-chan struct{} {
		_, err := db.RegisterNode(t.Context(), self, time.Hour)
		require.NoError(t, err)
		require.NoError(t, db.DrainNode(t.Context(), "n1", drain))
		joined, err := cluster.Join(t.Context(), cluster.Config{Store: db, Self: self, Lease: time.Hour, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		s := &Server{store: db, log: slog.New(slog.DiscardHandler), cluster: joined}
		done := make(chan struct{})
		go func() { s.moveOut(ctx); close(done) }()
		return done
	}
	<-stopping(t.Context(), false)
	second, signal := context.WithCancel(t.Context())
	done := stopping(second, true)
	select {
	case <-done:
		t.Fatal("it stops with a stack")
	case <-time.After(100 * time.Millisecond):
	}
	signal()
	<-done
	done = stopping(t.Context(), true)
	_, err = db.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { k.Node = "n2"; return nil, nil })
	require.NoError(t, err)
	<-done
}
