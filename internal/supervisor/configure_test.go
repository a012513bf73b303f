package supervisor

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// setting is a change that sets a variable of a service, "" for all.
func setting(service, name, value string) stack.EnvChange {
	return stack.EnvChange{Values: map[string]map[string]*string{service: {name: &value}}}
}

// set changes variables of a stack.
func (w *world) set(id string, change stack.EnvChange) {
	w.t.Helper()
	_, err := w.sup.Configure(w.t.Context(), id, change, nil)
	require.NoError(w.t, err)
}

// seen is a program that serves and sends what its variable is first.
func seen(name string, to chan<- string) enginetest.Program {
	return func(p *enginetest.Process) int {
		to <- variable(p, name)
		return listen(p)
	}
}

// made is a service with a build command.
func made(name string) stack.Spec {
	spec := service(name)
	spec.Builder, spec.Build = node, "make"
	return spec
}

func TestConfigure_ReachesTheProcessFromTheSameImageWithoutABuild(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"), pages("docs"))
		builds := count(w.events(st.ID), "service.building")
		got := make(chan string, 1)
		w.program(st.ID, 2, seen("KEY", got))

		w.set(st.ID, setting("", "KEY", "value"))
		after := w.serves(st.ID, 2)
		require.Equal(t, "value", <-got)
		w.settle()
		require.Equal(t, st.Service("web").Image, after.Service("web").Image)
		require.Equal(t, st.Service("docs").Site, after.Service("docs").Site)
		require.Equal(t, st.Generation.Source, after.Generation.Source)
		require.Equal(t, builds, count(w.events(st.ID), "service.building"))
		require.Equal(t, http.StatusOK, w.ask(after, "docs"))
		require.DirExists(t, w.dir.Source(st.ID, after.Generation.Source.Folder))
		require.Equal(t, []string{after.Service("web").Image}, imagesOf(w.there(st)))
		w.runs(after, "web-g2")
	})
}

func TestConfigure_BuildsAServiceAgainWhoseBuildReadsTheVariable(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(made("web"), service("api"))
		got := make(chan string, 1)
		w.command(func(p *enginetest.Process) int {
			got <- variable(p, "KEY")
			return 0
		})
		w.set(st.ID, setting("", "KEY", "value"))
		after := w.serves(st.ID, 2)
		require.Equal(t, "value", <-got)
		require.NotEqual(t, st.Service("web").Image, after.Service("web").Image)
		require.Equal(t, st.Service("api").Image, after.Service("api").Image)
		require.Equal(t, 3, count(w.events(st.ID), "service.building"))

		asIs := setting("", "KEY", "other")
		asIs.AsIs = true
		w.set(st.ID, asIs)
		require.Equal(t, after.Service("web").Image, w.serves(st.ID, 3).Service("web").Image)
	})
}

func TestConfigure_WhoseGenerationFailsIsNotKept(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.program(st.ID, 2, exits(1))
		w.set(st.ID, setting("web", "KEY", "value"))
		after := w.await(st.ID, "the change to fail", func(st *stack.Stack) bool { return st.DeployError != "" })
		w.settle()
		require.Equal(t, st.Generation, after.Generation)
		require.Empty(t, after.Generation.Variables)
		require.DirExists(t, w.dir.Source(st.ID, after.Generation.Source.Folder))
		require.Equal(t, []string{after.Service("web").Image}, imagesOf(w.there(st)))
		w.runs(after, "web-g1")
	})
}

func TestConfigure_IsKeptAcrossRedeploysAnotherServerExpiryAndClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.set(st.ID, setting("web", "KEY", "value"))
		w.serves(st.ID, 2)
		got := make(chan string, 2)
		w.program(st.ID, 3, seen("KEY", got))
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 3)
		require.Equal(t, "value", <-got)

		w.stopServer()
		w.startServer()
		w.becomes(st.ID, stack.Expired)
		require.NoError(t, w.claim(st.ID))
		w.becomes(st.ID, stack.Live)
		require.Equal(t, "value", <-got)
	})
}

func TestConfigure_BringsAStackBackThatLackedTheVariable(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(time.Hour, func(p *enginetest.Process) int {
			p.Listen(8080)
			<-w.released
			return 1
		}, service("web"))
		w.becomes(st.ID, stack.Live)
		w.release()
		w.becomes(st.ID, stack.Failed)

		w.program(st.ID, 2, exits(1))
		w.set(st.ID, setting("web", "KEY", "wrong"))
		failed := w.await(st.ID, "the change to fail", func(st *stack.Stack) bool {
			return st.Status == stack.Failed && st.Attempt == 2
		})
		require.Empty(t, failed.Generation.Variables)

		w.program(st.ID, 2, nil)
		w.set(st.ID, setting("web", "KEY", "value"))
		after := w.serves(st.ID, 2)
		w.settle()
		require.Equal(t, failed.Service("web").Image, after.Service("web").Image)
		w.runs(after, "web-g2")
	}, func(c *Config) { c.CheckEvery = seldom })
}

func TestConfigure_IsDroppedWithTheDeployThatWaitsWhenTheStackExpires(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createFor(time.Minute, service("web"))
		w.becomes(st.ID, stack.Live)
		w.program(st.ID, 2, silent)
		w.set(st.ID, setting("web", "KEY", "value"))
		w.becomes(st.ID, stack.Expired)
		require.NoError(t, w.claim(st.ID))
		back := w.becomes(st.ID, stack.Live)
		require.Empty(t, back.Generation.Variables)
		require.Equal(t, 1, back.Generation.Number)
	})
}

func TestConfigure_ThatChangesNothingLeavesTheStackAlone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		after, err := w.sup.Configure(t.Context(), st.ID, stack.EnvChange{Values: map[string]map[string]*string{"web": {"KEY": nil}}}, nil)
		require.NoError(t, err)
		w.settle()
		require.Zero(t, after.Deploying)
		require.Equal(t, 1, w.get(st.ID).Attempt)
	})
}

// damage removes a file from the kept source of a stack.
func (w *world) damage(st *stack.Stack, file string) {
	w.t.Helper()
	tree := source.Tree(w.dir.Source(st.ID, w.get(st.ID).Generation.Source.Folder))
	require.NoError(w.t, os.Remove(filepath.Join(tree, file)))
}

// wantsWholeSource fails if an error does not ask for the whole source, or the stack has
// changed.
func (w *world) wantsWholeSource(before *stack.Stack, err error) {
	w.t.Helper()
	require.Equal(w.t, stack.Conflict, stack.KindOf(err))
	require.ErrorContains(w.t, err, "send the whole source")
	after := w.get(before.ID)
	after.Disk = before.Disk // it may have been measured meanwhile
	require.Equal(w.t, before, after)
}

func TestConfigure_NeedsAWholeSourceForABuild(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(made("web"))
		tree := source.Tree(w.dir.Source(st.ID, st.Generation.Source.Folder))
		require.NoError(t, os.WriteFile(filepath.Join(tree, "more"), nil, 0o600))
		w.damage(st, "index.html")
		before := w.get(st.ID)
		_, err := w.sup.Configure(w.t.Context(), st.ID, setting("web", "KEY", "value"), nil)
		w.wantsWholeSource(before, err)

		asIs := setting("web", "KEY", "value")
		asIs.AsIs = true
		w.set(st.ID, asIs)
		w.serves(st.ID, 2)
	})
}

func TestConfigure_NeedsAWholeSourceToServeFilesOfIt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"), pages("docs"))
		w.damage(st, "index.html")
		before := w.get(st.ID)
		_, err := w.sup.Configure(w.t.Context(), st.ID, setting("web", "KEY", "value"), nil)
		w.wantsWholeSource(before, err)
	})
}

func TestConfigure_NeedsAWholeSourceToCopyItIntoAContainer(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.npm()
		st := w.live(service("web"))
		w.deployOf(st.ID, dependencies("1", "one"), installed("web"))
		w.serves(st.ID, 2)
		w.settle()
		w.damage(st, "server.js")
		before := w.get(st.ID)
		for _, asIs := range []bool{false, true} {
			change := setting("web", "KEY", "value")
			change.AsIs = asIs
			_, err := w.sup.Configure(w.t.Context(), st.ID, change, nil)
			w.wantsWholeSource(before, err)
		}
		_, err := w.sup.Configure(w.t.Context(), st.ID, stack.EnvChange{Values: map[string]map[string]*string{"web": {"KEY": nil}}}, nil)
		require.NoError(t, err, "which changes nothing")
	})
}
