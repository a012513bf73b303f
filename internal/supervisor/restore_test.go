package supervisor

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

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
