package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/site"
	"github.com/berth-host/berth/internal/stack"
)

// withSite is a supervisor whose database has a live stack with a site of one
// page, the stack, and the site's folder.
func withSite(t *testing.T) (*Supervisor, *stack.Stack, string) {
	t.Helper()
	s, st := withStack(t)
	dir := s.cfg.Dir.Site(st.ID, "web", 1)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.html"), []byte("the page"), 0o600))
	opened, err := site.Open(dir, site.Options{})
	require.NoError(t, err)
	require.NoError(t, opened.Close())
	st, err = s.cfg.Store.Update(t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) {
		services := stack.Services([]stack.Spec{{Name: "web", Runtime: stack.Runtime{Name: stack.Static}}})
		services[0].Site, services[0].SiteFiles, services[0].SiteBytes = 1, opened.Extent().Files, opened.Extent().Bytes
		return st.Deployed(services, s.cfg.URLs, stack.Now())
	})
	require.NoError(t, err)
	s.cfg.Engine = fakeEngine(t, &atomic.Bool{})
	return s, st, dir
}

func askSite(s *Supervisor, st *stack.Stack) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.cfg.Routes.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), s.cfg.URLs.Hostname(st, "web"))
	return w
}

// A start does not wait for the trees of sites, and neither does who asks for one.
func TestTake_ServesASiteWhoseTurnToBeReadHasNotCome(t *testing.T) {
	s, st, _ := withSite(t)
	require.True(t, s.reading.TryAcquire(siteReaders))
	s.take(t.Context(), st, engine.Objects{})
	w := askSite(s, st)
	require.Equal(t, "the page", w.Body.String(), w.Code)
	s.reading.Release(siteReaders)
	awaitReading(s, st)
	require.Equal(t, "the page", askSite(s, st).Body.String())
}

// awaitReading waits until the sites of a stack that was taken over are read, and what
// follows from that is done.
func awaitReading(s *Supervisor, st *stack.Stack) {
	r := s.lookup(st.ID)
	r.settle()
	r.work.Wait()
	r.settle()
}

func TestTake_HoldsUpNoJobWhileASiteAwaitsItsTurn(t *testing.T) {
	s, st, _ := withSite(t)
	require.True(t, s.reading.TryAcquire(siteReaders))
	s.take(t.Context(), st, engine.Objects{})
	asked := make(chan struct{})
	s.lookup(st.ID).queue(func(context.Context) { close(asked) })
	<-asked
	s.reading.Release(siteReaders)
}

func TestTake_BlamesNoSiteThatIsClosedBeforeItsTurn(t *testing.T) {
	s, st, dir := withSite(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "index.html")))
	require.True(t, s.reading.TryAcquire(siteReaders))
	var told []string
	s.cfg.Log = slog.New(onLog(func(message string) { told = append(told, message) }))
	s.take(t.Context(), st, engine.Objects{})
	r := s.lookup(st.ID)
	r.settle()
	r.takeDown(t.Context(), st)
	s.reading.Release(siteReaders)
	awaitReading(s, st)
	require.Empty(t, told)
}

// A deploy replaces it, or it falls, while the job before the one that fails it ends.
func TestFailSite_FailsNoStackThatServesAnotherGeneration(t *testing.T) {
	s, st, _ := withSite(t)
	s.take(t.Context(), st, engine.Objects{})
	awaitReading(s, st)
	r := s.lookup(st.ID)
	g := r.serving()
	next := r.generation(st, 2, st.Services)
	r.swapServed(next)
	g.failSite(&g.services[0], errors.New("not what was published"))
	r.settle()
	require.Same(t, next, r.serving())
	st, err := s.cfg.Store.Get(t.Context(), st.ID)
	require.NoError(t, err)
	require.Equal(t, stack.Live, st.Status)
}

func TestTake_FailsAStackWhoseSiteIsNotWhatWasPublished(t *testing.T) {
	s, st, dir := withSite(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "index.html")))
	require.True(t, s.reading.TryAcquire(siteReaders))
	s.take(t.Context(), st, engine.Objects{})
	require.Equal(t, http.StatusInternalServerError, askSite(s, st).Code, "404 would say that there was no such page")
	s.reading.Release(siteReaders)
	awaitReading(s, st)
	st, err := s.cfg.Store.Get(t.Context(), st.ID)
	require.NoError(t, err)
	require.Equal(t, stack.Failed, st.Status)
	require.Equal(t, "service web: the files that it publishes are missing or broken on this host; upload the source again", st.Error)
	require.Equal(t, http.StatusServiceUnavailable, askSite(s, st).Code)
}

func TestIsOfHost_KnowsTheFaultsThatPass(t *testing.T) {
	for _, err := range []error{
		&os.PathError{Op: "open", Path: "p", Err: syscall.EMFILE}, &os.PathError{Op: "read", Path: "p", Err: syscall.EIO},
		&os.PathError{Op: "open", Path: "p", Err: syscall.EACCES}, &os.PathError{Op: "stat", Path: "p", Err: syscall.ESTALE},
		fmt.Errorf("start: %w", engine.ErrUnreachable), ofHost(errors.New("no bridge")), context.DeadlineExceeded,
		stack.NewError(stack.Unavailable, "no network is free"),
	} {
		require.True(t, isOfHost(err), "%v", err)
	}
	for _, err := range []error{
		&os.PathError{Op: "open", Path: "p", Err: syscall.ENOTDIR}, &os.PathError{Op: "open", Path: "p", Err: syscall.ENOENT},
		errors.New("no such layer"), stack.NewError(stack.Unprocessable, "it does not start"),
	} {
		require.False(t, isOfHost(err), "%v", err)
	}
	require.NoError(t, ofHost(nil))
}

func TestRefused_CountsWhatTheEngineRefusesInARow(t *testing.T) {
	s, st := withStack(t)
	r := s.runner(st.ID)
	g := r.generation(st, 1, st.Services)
	web, refusal := &g.services[0], errors.New("no such layer")
	works := func(context.Context) error { return nil }
	for _, between := range []error{nil, syscall.EMFILE, stack.NewError(stack.Unprocessable, "not healthy")} {
		for range maxRefusals - 1 {
			require.False(t, g.refused(t.Context(), web, refusal, works))
		}
		require.False(t, g.refused(t.Context(), web, between, works))
	}
	for range maxRefusals - 1 {
		require.False(t, g.refused(t.Context(), web, refusal, works))
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, g.refused(stopped, web, refusal, works))
	broken := func(context.Context) error { return errors.New("no runtime") }
	for range maxRefusals {
		require.False(t, g.refused(t.Context(), web, refusal, broken))
	}
	require.True(t, g.refused(t.Context(), web, refusal, works))
	require.False(t, g.refused(t.Context(), web, refusal, works), "the count begins again")
}
