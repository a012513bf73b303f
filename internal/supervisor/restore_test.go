package supervisor

import (
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

// Removing them may take long, and the server serves once every stack is taken.
func TestTake_LeavesTheFilesOfALostBuildForLater(t *testing.T) {
	s, st := withStack(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	tell, release := sync.OnceFunc(func() { close(asked) }), sync.OnceFunc(func() { close(answer) })
	defer release()
	s.cfg.Engine = answeringEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if filepath.Base(r.URL.Path) == "json" {
			tell()
			<-answer
			_, _ = w.Write([]byte("[]"))
			return
		}
		_, _ = w.Write([]byte("{}"))
	})
	source := filepath.Join(s.cfg.Dir.Stack(st.ID), "sources", "lost")
	site := s.cfg.Dir.Site(st.ID, "web", st.Deploying)
	for _, dir := range []string{source, site} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}

	s.take(t.Context(), st, engine.Objects{Containers: []engine.Container{{ID: "c"}}})

	<-asked
	require.DirExists(t, source)
	require.DirExists(t, site)
	next := filepath.Join(s.cfg.Dir.Stack(st.ID), "sources", "next") // of a deploy that is accepted meanwhile
	require.NoError(t, os.Mkdir(next, 0o700))
	release()
	s.lookup(st.ID).settle()
	require.NoDirExists(t, source)
	require.NoDirExists(t, site)
	require.DirExists(t, next)
}
