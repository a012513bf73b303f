package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// withSite tests the server that follows the one that published a site. The new server
// reads nothing of the site before release; change works on the site's folder while no
// server runs.
func withSite(t *testing.T, change func(dir string), test func(w *world, st *stack.Stack, release func())) {
	t.Helper()
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(pages("web"))
		w.stopServer()
		change(w.dir.Site(st.ID, "web", 1))
		w.newServer()
		require.True(t, w.sup.reading.TryAcquire(siteReaders))
		require.NoError(t, w.sup.Start(w.t.Context()))
		test(w, st, func() {
			w.sup.reading.Release(siteReaders)
			synctest.Wait()
		})
	})
}

func unchanged(string) {}

// withoutPage removes the one page of a site.
func withoutPage(dir string) {
	if err := os.Remove(filepath.Join(dir, "index.html")); err != nil {
		panic(err)
	}
}

// A start does not wait for the trees of sites, and neither does who asks for one.
func TestTake_ServesASiteWhoseTurnToBeReadHasNotCome(t *testing.T) {
	withSite(t, unchanged, func(w *world, st *stack.Stack, release func()) {
		require.Equal(w.t, http.StatusOK, w.ask(st, "web"))
		w.deploy(st.ID, pages("web")) // no job is held up either
		w.serves(st.ID, 2)
		release()
		require.Equal(w.t, http.StatusOK, w.ask(st, "web"))
	})
}

func TestTake_BlamesNoSiteThatIsClosedBeforeItsTurn(t *testing.T) {
	withSite(t, withoutPage, func(w *world, st *stack.Stack, release func()) {
		w.deploy(st.ID, pages("web"))
		w.serves(st.ID, 2)
		release()
		require.False(w.t, w.logged("missing or broken"))
		require.Equal(w.t, http.StatusOK, w.ask(st, "web"))
	})
}

// A deploy replaces it, or it falls, while the job before the one that fails it ends.
func TestFailSite_FailsNoStackThatServesAnotherGeneration(t *testing.T) {
	withSite(t, unchanged, func(w *world, st *stack.Stack, release func()) {
		release()
		g := w.served(st)
		w.deploy(st.ID, pages("web"))
		w.serves(st.ID, 2)
		g.failSite(&g.made.Services[0], errors.New("not what was published"))
		w.settle()
		require.Equal(w.t, stack.Live, w.get(st.ID).Status)
		require.Equal(w.t, http.StatusOK, w.ask(st, "web"))
	})
}

func TestTake_FailsAStackWhoseSiteIsNotWhatWasPublished(t *testing.T) {
	withSite(t, withoutPage, func(w *world, st *stack.Stack, release func()) {
		require.Equal(w.t, http.StatusInternalServerError, w.ask(st, "web"), "404 would say that there was no such page")
		release()
		st = w.becomes(st.ID, stack.Failed)
		require.Equal(w.t, "service web: the files that it publishes are missing or broken on this host; upload the source again", st.Error)
		w.settle()
		require.Equal(w.t, http.StatusServiceUnavailable, w.ask(st, "web"))
	})
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
	s := New(Config{Store: newMemstore(), Log: slog.New(slog.DiscardHandler)})
	defer s.Close()
	st := stack.New("shop", []stack.Spec{service("web")}, stack.Now())
	g := s.runner(st.ID, 0).generation(st, st.Generation)
	web, refusal := &g.made.Services[0], errors.New("no such layer")
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

// The owner learns that the host is to blame, and the operator why.
func TestDeploy_WithoutABaseImageBlamesTheHost(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.engine.Before("MakeImage", func(string) error { return errors.New("mirror.internal does not answer") })
		web := service("web")
		web.Runtime = stack.Runtime{Name: "python", Version: "3.13"}
		st := w.becomes(w.create(web).ID, stack.Failed)
		require.Contains(t, st.Error, "the host could not prepare the runtime; this is not the fault of your source")
		text, err := os.ReadFile(w.dir.Log(st.ID, "web", datadir.BuildLog))
		require.NoError(t, err)
		require.Contains(t, string(text), "== build failed: the host could not prepare the runtime\n")
		require.NotContains(t, string(text)+st.Error, "mirror.internal")
		require.True(t, w.logged("no base image of python@3.13: mirror.internal does not answer"))
	})
}

// After docker system prune -a there is no image of the stack and none to build it from.
func TestStart_WaitsForABaseImageThatCannotBeMadeYet(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.stopServer()
		there, err := w.driver.Inventory(t.Context(), st.ID)
		require.NoError(t, err)
		base, err := images.Lookup(node.Name, node.Version)
		require.NoError(t, err)
		require.NoError(t, w.driver.Discard(t.Context(), engine.Objects{
			Containers: there[st.ID].Containers,
			Images:     append(there[st.ID].Images, engine.Image{Tags: []string{base.Ref()}}),
		}))
		tries := 0
		w.engine.Before("MakeImage", func(string) error {
			if tries++; tries < 3 {
				return errors.New("mirror.internal does not answer")
			}
			return nil
		})

		w.startServer()
		synctest.Wait()
		require.Equal(t, stack.Live, w.get(st.ID).Status)
		require.True(t, w.sup.Down(st.ID))
		w.awaitEvent(st.ID, "stack.restored", 1)
		w.served(st)
		require.False(t, w.sup.Down(st.ID))
		require.Zero(t, count(w.events(st.ID), "stack.failed"))
		require.True(t, w.answers(st, "web"))
	})
}
