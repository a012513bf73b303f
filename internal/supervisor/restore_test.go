package supervisor

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
)

// Removing them may take long, and the server serves once every stack is taken.
func TestTake_LeavesTheFilesOfALostBuildForLater(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.program("", 1, silent)
		st := w.create(service("web"))
		w.runs(st, "web-g1")
		w.stopServer()
		source := func(name string) string { return filepath.Join(w.dir.Stack(st.ID), "sources", name) }
		lost := []string{source("lost"), w.dir.Site(st.ID, "web", 1)} // a server that was killed leaves them
		for _, dir := range lost {
			require.NoError(t, os.MkdirAll(dir, 0o700))
		}
		w.newServer()
		w.hold("Remove", "")
		require.NoError(t, w.sup.Start(w.t.Context()))
		synctest.Wait()
		for _, dir := range lost {
			require.DirExists(t, dir)
		}
		next := source("next") // of a deploy that is accepted meanwhile
		require.NoError(t, os.Mkdir(next, 0o700))
		w.release()
		w.settle()
		for _, dir := range lost {
			require.NoDirExists(t, dir)
		}
		require.DirExists(t, next)
		require.Equal(t, stack.Failed, w.get(st.ID).Status)
	})
}

// buildLog is the log of the builds of a stack's service web.
func (w *world) buildLog(st *stack.Stack) string {
	w.t.Helper()
	var text bytes.Buffer
	require.NoError(w.t, w.dir.Logs(w.t.Context(), st, "web", datadir.BuildLog, logfile.View{Tail: 1000}, &text))
	return text.String()
}

// A build in place of an image that is gone waits for room, and adds to the log.
func TestRestore_BuildsAnImageAgainOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(built("web"))
		before := w.buildLog(st)
		w.stopServer()
		require.NoError(t, w.driver.Discard(t.Context(), engine.Objects{Containers: w.there(st).Containers, Images: w.there(st).Images}))
		w.engine.Fill(0)
		w.startServer()
		w.settle()
		require.False(t, w.answers(st, "web"))
		require.Equal(t, stack.Live, w.get(st.ID).Status)
		require.Equal(t, before, w.buildLog(st))

		w.engine.Fill(1 << 30)
		w.settle()
		require.True(t, w.answers(st, "web"))
		after := w.buildLog(st)
		require.Contains(t, after, before+"== the image of web is gone; it is built again from the kept source\n== attempt 1\n")
		require.Contains(t, after[len(before):], "== build ok")
	}, func(c *Config) {
		long(c)
		floored(c)
	})
}
