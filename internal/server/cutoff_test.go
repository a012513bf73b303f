package server

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
)

// running returns the stacks whose containers run.
func running(t *testing.T, driver engine.Driver) (stacks []string) {
	t.Helper()
	there, err := driver.Containers(t.Context(), engine.Key{})
	require.NoError(t, err)
	for _, c := range there {
		if c.Running {
			stacks = append(stacks, c.Key.Stack)
		}
	}
	slices.Sort(stacks)
	return stacks
}

// A server that starts while its node is cut off stops what others may take: once the node
// has had neither its lease nor Swarm's answer for long enough, and before it has the
// database.
func TestCutOff_StopsWhatOthersMayTakeWithoutTheDatabase(t *testing.T) {
	const grace, within = time.Minute, 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.New(map[string]enginetest.Program{"serve": func(p *enginetest.Process) int {
			<-p.Killed // it does not end by itself
			return 0
		}}, images.Debian)
		defer e.Close()
		driver := e.Driver(enginetest.Options{})
		for _, id := range []string{"stk_000000000001", "stk_000000000002"} {
			key := engine.Key{Stack: id, Service: "web", Generation: 1}
			require.NoError(t, driver.Place(t.Context(), key, 1))
			_, err := driver.Run(t.Context(), engine.Spec{Key: key, Name: key.Stack, Image: images.Debian, Cmd: []string{"serve"}, Network: key.Network(), StopTimeout: time.Minute})
			require.NoError(t, err)
		}
		dir := datadir.Dir(t.TempDir())
		want := takeable{time.Now().Add(-grace / 2).UTC().Round(0), []string{"stk_000000000002"}, map[string]string{"id1": "192.0.2.1:7900", "id2": "[2001:db8::1]:7900"}}
		require.NoError(t, want.note(dir))
		noted, err := readTakeable(dir)
		require.NoError(t, err)
		require.Equal(t, want, noted)
		var manager atomic.Bool
		c := &cutOff{
			driver: driver, grace: grace, within: within, last: noted.renewed, log: slog.New(slog.DiscardHandler),
			manager: func(ctx context.Context) bool {
				if !manager.Load() {
					<-ctx.Done() // who is cut off gets no answer
					return false
				}
				return true
			},
			takes: func(stack string) bool { return slices.Contains(noted.stacks, stack) },
		}
		ended := make(chan struct{})
		go func() {
			c.watch(t.Context())
			close(ended)
		}()
		time.Sleep(grace/2 - 2*(databaseRetry+contactAnswer))
		manager.Store(true)
		time.Sleep(grace)
		manager.Store(false)
		time.Sleep(grace - 2*time.Second)
		require.Len(t, running(t, driver), 2, "it is not cut off for long enough")
		<-ended
		require.Less(t, time.Since(c.last), grace+within+2*databaseRetry)
		require.Equal(t, []string{"stk_000000000001"}, running(t, driver))
	})
}
