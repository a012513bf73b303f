package supervisor

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

func anySite(string, int) bool { return true }

// fetch answers a request for a path of a service that the host itself serves.
func (w *world) fetch(res http.ResponseWriter, st *stack.Stack, service, path string) {
	w.sup.cfg.Routes.Serve(res, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, path, nil), w.sup.cfg.URLs.Hostname(st, service))
}

// body is the answer to a request for a path of a service that the host itself serves.
func (w *world) body(st *stack.Stack, service, path string) string {
	w.t.Helper()
	synctest.Wait() // routes follow the row
	res := httptest.NewRecorder()
	w.fetch(res, st, service, path)
	require.Equal(w.t, http.StatusOK, res.Code)
	return res.Body.String()
}

// isServedFrom fails unless the site of the service web is a relative link into the kept
// source of the stack.
func (w *world) isServedFrom(st *stack.Stack) {
	w.t.Helper()
	st = w.get(st.ID)
	require.True(w.t, st.Service("web").Linked)
	to, err := os.Readlink(w.dir.Site(st.ID, "web", st.Service("web").Site))
	require.NoError(w.t, err)
	require.Equal(w.t, "../../sources/"+st.Generation.Source.Folder+"/tree", to)
}

func TestSite_IsServedFromTheSourceAcrossServersExpiryAndClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(pages("web"))
		w.isServedFrom(st)
		w.deployOf(st.ID, map[string]string{"index.html": "page", "stack.yaml": "services:", "docs/stack.yaml": "of the docs"}, pages("web"))
		st = w.serves(st.ID, 2)
		served := func() {
			t.Helper()
			w.isServedFrom(st)
			require.Equal(t, "page", w.body(st, "web", "/"))
			require.Equal(t, "of the docs", w.body(st, "web", "/docs/stack.yaml"))
			res := httptest.NewRecorder()
			w.fetch(res, st, "web", "/stack.yaml")
			require.Equal(t, http.StatusNotFound, res.Code)
		}
		served()
		w.stopServer()
		w.startServer()
		served()
		w.becomes(st.ID, stack.Expired)
		w.settle()
		require.NoError(t, w.claim(st.ID))
		w.becomes(st.ID, stack.Live)
		served()
	})
}

// slow is a client that reads no answer before it is told to.
type slow struct {
	*httptest.ResponseRecorder
	reads chan struct{}
}

func (s slow) Write(p []byte) (int, error) {
	<-s.reads
	return s.ResponseRecorder.Write(p)
}

func TestSite_KeepsItsSourceUntilItsRequestsAreDone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(pages("web"))
		w.deployOf(st.ID, map[string]string{"index.html": "first"}, pages("web"))
		st = w.serves(st.ID, 2)
		w.settle()
		before := w.dir.Source(st.ID, st.Generation.Source.Folder)
		client, done := slow{httptest.NewRecorder(), make(chan struct{})}, make(chan struct{})
		go func() {
			defer close(done)
			w.fetch(client, st, "web", "/")
		}()
		synctest.Wait()

		w.deployOf(st.ID, map[string]string{"index.html": "second"}, pages("web"))
		st = w.serves(st.ID, 3)
		time.Sleep(time.Second)
		require.Equal(t, "second", w.body(st, "web", "/"))
		require.FileExists(t, filepath.Join(source.Tree(before), "index.html"))
		close(client.reads)
		<-done
		synctest.Wait()
		require.Equal(t, "first", client.Body.String())
		require.NoDirExists(t, before)
		require.Equal(t, []string{w.dir.Source(st.ID, st.Generation.Source.Folder)}, w.dir.Sources(st.ID, ""))
		require.Equal(t, []string{w.dir.Site(st.ID, "web", 3)}, w.dir.Sites(st.ID, anySite))
	})
}

func TestSite_ThatIsBuiltAgainLeadsIntoTheSameSource(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(pages("web"))
		_, err := w.sup.Rebuild(w.t.Context(), st.ID)
		require.NoError(t, err)
		after := w.serves(st.ID, 2)
		w.settle()
		require.Equal(t, st.Generation.Source, after.Generation.Source)
		w.isServedFrom(after)
		require.Equal(t, http.StatusOK, w.ask(after, "web"))
		require.Equal(t, []string{w.dir.Site(st.ID, "web", 2)}, w.dir.Sites(st.ID, anySite))
	})
}

// Earlier versions published a separate folder.
func TestSite_OfAnEarlierVersionIsServedFromItsFolder(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(pages("web"))
		w.stopServer()
		folder := w.dir.Site(st.ID, "web", 1)
		require.NoError(t, os.CopyFS(folder+"-copy", os.DirFS(folder)))
		require.NoError(t, os.Remove(folder))
		require.NoError(t, os.Rename(folder+"-copy", folder))
		_, err := w.db.Update(w.t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) {
			st.Generation.Services[0].Linked = false
			return nil, nil
		})
		require.NoError(t, err)
		w.startServer()
		require.Equal(t, http.StatusOK, w.ask(st, "web"))
		w.damage(st, "index.html")
		w.becomes(st.ID, stack.Expired)
		require.NoError(t, w.claim(st.ID))
		w.becomes(st.ID, stack.Live)
		require.Equal(t, http.StatusOK, w.ask(st, "web"))

		w.deploy(st.ID, pages("web"))
		w.serves(st.ID, 2)
		w.settle()
		w.isServedFrom(st)
		require.NoDirExists(t, folder)
	})
}

func TestTake_FailsAStackWhoseSiteLeadsElsewhere(t *testing.T) {
	for name, change := range map[string]func(w *world, st *stack.Stack, site string){
		"a link into another source": func(w *world, st *stack.Stack, site string) {
			other := w.live(pages("web"))
			require.NoError(w.t, os.Remove(site))
			require.NoError(w.t, os.Symlink(source.Tree(w.dir.Source(other.ID, other.Generation.Source.Folder)), site))
		},
		"a source that is gone": func(w *world, st *stack.Stack, _ string) {
			require.NoError(w.t, os.RemoveAll(w.dir.Source(st.ID, st.Generation.Source.Folder)))
		},
		"no link": func(w *world, _ *stack.Stack, site string) { require.NoError(w.t, os.Remove(site)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				st := w.live(pages("web"))
				change(w, st, w.dir.Site(st.ID, "web", 1))
				w.stopServer()
				w.startServer()
				st = w.becomes(st.ID, stack.Failed)
				require.Equal(t, "service web: the files that it publishes are missing or broken on this host; upload the source again", st.Error)
				w.deploy(st.ID, pages("web"))
				require.Equal(t, http.StatusOK, w.ask(w.serves(st.ID, 2), "web"))
			})
		})
	}
}
