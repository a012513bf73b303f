package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	move := func() bool {
		for seen, is := most.Load(), now.Add(1); is > seen && !most.CompareAndSwap(seen, is); seen = most.Load() {
		}
		all.Add(1)
		<-release
		now.Add(-1)
		return false
	}
	for range 2 {
		for _, id := range []string{"stk_1", "stk_2", "stk_3"} {
			m.begin(id, move)
		}
	}
	require.Eventually(t, func() bool { return now.Load() == movers }, time.Minute, time.Millisecond)
	close(release)
	m.running.Wait()
	require.EqualValues(t, 3, all.Load())
	require.EqualValues(t, movers, most.Load())
	m.begin("stk_1", move)
	m.running.Wait()
	require.EqualValues(t, 4, all.Load(), "it may move again")
}

func TestMoving_WaitsLongerAfterEachFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, began := newMoving(), time.Now()
		var at []time.Duration
		for time.Since(began) < 5*time.Minute {
			m.begin("stk_1", func() bool {
				at = append(at, time.Since(began))
				return true
			})
			m.running.Wait()
			time.Sleep(time.Second)
		}
		want := []time.Duration{0, 2, 6, 14, 30, 62, 122, 182, 242}
		for i := range want {
			want[i] *= time.Second
		}
		require.Equal(t, want, at)
		m.forget()
		m.begin("stk_1", func() bool { at = nil; return false })
		m.running.Wait()
		require.Empty(t, at)
		m.begin("stk_1", func() bool { at = append(at, 0); return true })
		m.running.Wait()
		require.Len(t, at, 1, "after one that worked it begins at once")
	})
}

func TestNoteStuck_SaysTheSameOnce(t *testing.T) {
	var log bytes.Buffer
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	require.NoError(t, db.Create(t.Context(), k, nil))
	s := &Server{store: db, log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, why := range []string{"no room", "no room", "no way", "no way"} {
		s.noteStuck(t.Context(), k.ID, "n2", why)
	}
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	stuck, err := db.Stuck(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, "no way", stuck[0].Error)
}

func TestNoteBuild_SaysWhatAMoveWaitsFor(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	s := &Server{store: db, log: slog.New(slog.DiscardHandler)}
	for _, builds := range []bool{true, false} {
		k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
		if !builds {
			_, err := k.DeployFailed("it is broken", stack.Now())
			require.NoError(t, err)
		}
		require.NoError(t, db.Create(t.Context(), k, nil))
		s.noteBuild(t.Context(), k.ID, "n2")
		got, known, err := db.MoveOf(t.Context(), k.ID)
		require.NoError(t, err)
		require.Equal(t, builds, known)
		if builds {
			require.Equal(t, "a build of the stack comes first", got.Error)
		}
	}
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
	moveAll(t, db, k.ID)
	select {
	case <-done:
		t.Fatal("it stops before it has removed what moved away")
	case <-time.After(2 * drainLook):
	}
	require.NoError(t, db.ForgetRemains(t.Context(), k.ID, "n1"))
	<-done
}

// moveAll moves a stack to the node n2, as the supervisor does before it removes what it has.
func moveAll(t *testing.T, db *store.Store, id string) {
	t.Helper()
	require.NoError(t, db.Expect(t.Context(), id, "n2"))
	_, err := db.Update(t.Context(), id, func(k *stack.Stack) ([]stack.Event, error) { k.Node = "n2"; return nil, nil }, store.Leaving())
	require.NoError(t, err)
}

func TestDrain_WaitsUntilTheNodeHasRemovedWhatMovedAway(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	_, err = db.RegisterNode(t.Context(), store.Node{ID: "n1", Name: "w1"}, time.Hour)
	require.NoError(t, err)
	k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Node = "n1"
	require.NoError(t, db.Create(t.Context(), k, nil))
	coming := stack.New("blog", []stack.Spec{{Name: "web"}}, stack.Now())
	coming.Node = "n2"
	require.NoError(t, db.Create(t.Context(), coming, nil))
	require.NoError(t, db.Expect(t.Context(), coming.ID, "n1")) // which has nothing to do with the drain
	moveAll(t, db, k.ID)

	drained := make(chan error, 1)
	go func() { drained <- Nodes{store: db}.Drain(t.Context(), "w1") }()
	select {
	case err := <-drained:
		t.Fatalf("it returns before the node has removed what moved away: %v", err)
	case <-time.After(drainSettle + 2*drainLook):
	}
	require.NoError(t, db.ForgetRemains(t.Context(), k.ID, "n1"))
	require.NoError(t, <-drained)
}

func TestMove_RefusesWhatWouldNotStay(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	for _, id := range []string{"n1", "n2"} {
		_, err := db.RegisterNode(t.Context(), store.Node{ID: id, Name: id}, time.Minute)
		require.NoError(t, err)
	}
	require.NoError(t, db.DrainNode(t.Context(), "n2", true))
	k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Node = "n1"
	require.NoError(t, db.Create(t.Context(), k, nil))
	err = Nodes{store: db}.Move(t.Context(), k.ID, "n2")
	require.EqualError(t, err, "node n2 is being drained, so the stack would move away again; run berthd nodes activate n2 first, or choose another node")
	_, asked, err := db.MoveOf(t.Context(), k.ID)
	require.NoError(t, err)
	require.False(t, asked)
}

func TestCannotMove_SaysWhatHelps(t *testing.T) {
	require.ErrorContains(t, cannotMove(NodeView{Name: "n1", State: "away"}), "berthd nodes lost n1")
	require.ErrorContains(t, cannotMove(NodeView{Name: "n1", State: "lost"}), "BERTH_NODE_LOST")
}
