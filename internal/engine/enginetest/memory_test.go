package enginetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

var web = engine.Key{Stack: "stk_3f2a9c1b7d4e", Service: "web", Generation: 1}

// serve listens until it is asked to end.
func serve(p *Process) int {
	p.Listen(8080)
	select {
	case <-p.Terminated:
		return 0
	case <-p.Killed:
		return 137
	}
}

func TestEngine_RunsTheProgramOfAContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(map[string]Program{"serve": serve}, "base")
		defer e.Close()
		d := e.Driver("i")
		require.NoError(t, d.Place(t.Context(), web, 1))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended, _ := d.Ended(ctx)
		id, err := d.Run(t.Context(), engine.Spec{Name: web.Process(0), Key: web, Image: "base", Cmd: []string{"serve"}, Network: web.Network()})
		require.NoError(t, err)
		synctest.Wait()
		c, err := d.Look(t.Context(), id)
		require.NoError(t, err)
		require.True(t, c.Running)
		require.True(t, e.Connects(c.IP+":8080"))
		e.Kill(c.Name, 3)
		require.Equal(t, engine.End{ID: id, Key: web}, <-ended)
		c, err = d.Look(t.Context(), id)
		require.NoError(t, err)
		require.False(t, c.Running)
		require.Equal(t, 3, c.ExitCode)
	})
}

func TestEngine_KillsWhatIgnoresItsEndOnceItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stubborn := func(p *Process) int {
			<-p.Killed
			return 0
		}
		e := New(map[string]Program{"stubborn": stubborn}, "base")
		defer e.Close()
		d := e.Driver("i")
		id, err := d.Run(t.Context(), engine.Spec{Name: "c", Key: web, Image: "base", Cmd: []string{"stubborn"}, StopTimeout: 7 * time.Second})
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, d.Stop(t.Context(), id))
		require.Equal(t, 7*time.Second, time.Since(began))
		c, err := d.Look(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, 137, c.ExitCode)
	})
}
