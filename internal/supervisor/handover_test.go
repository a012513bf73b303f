package supervisor

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// replace has another server take the place of this one.
func (w *world) replace() {
	w.t.Helper()
	was := w.sup.Leave()
	text, err := json.Marshal(was) // as between processes
	require.NoError(w.t, err)
	var left HandOver
	require.NoError(w.t, json.Unmarshal(text, &left))
	for i := range left.Deploys {
		require.True(w.t, left.Deploys[i].setEnvs())
	}
	require.Equal(w.t, was, left, "something is lost on the way")
	before := w.configure
	w.configure = func(c *Config) { c.Before = &left }
	w.startServer()
	w.configure = before
}

func TestHandOver_IsNotNoticed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"), pages("docs"))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.restarted", 1)
		before, row, page := w.events(st.ID), w.get(st.ID), w.body(st, "docs", "/")
		require.True(w.t, w.sup.Quiesce(w.t.Context()))
		w.replace()
		synctest.Wait()
		require.Equal(w.t, before, w.events(st.ID))
		require.Equal(w.t, row, w.get(st.ID))
		require.True(w.t, w.answers(st, "web"))
		require.Equal(w.t, page, w.body(st, "docs", "/"))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.restarted", 2)
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
	})
}

func TestHandOver_ALaterRestoreIsRecorded(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.replace()
		w.reboot()
		w.awaitEvent(st.ID, "stack.restored", 1)
	})
}

func TestQuiesce_WaitsForJobsAndHoldsDeploysBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.redeploying(service("web"))
		quiet := make(chan bool, 1)
		go func() { quiet <- w.sup.Quiesce(w.t.Context()) }()
		time.Sleep(time.Second)
		require.Empty(w.t, quiet, "a deploy is under way")
		first := w.create(service("web"))
		time.Sleep(10 * time.Second)
		require.NotContains(w.t, w.events(first.ID), "service.ready web")

		w.release()
		require.True(w.t, <-quiet)
		require.Equal(w.t, 2, w.get(st.ID).Generation.Number)
		time.Sleep(time.Minute)
		require.Equal(w.t, stack.Building, w.get(first.ID).Status)
		w.replace()
		w.becomes(first.ID, stack.Live)
		require.NotContains(w.t, w.events(first.ID), "stack.failed")
		require.NotContains(w.t, w.events(st.ID), "stack.restored")
	})
}

func TestQuiesce_EndsWithResume(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		require.True(w.t, w.sup.Quiesce(w.t.Context()))
		w.deploy(st.ID, service("web"))
		time.Sleep(time.Minute)
		require.Equal(w.t, 1, w.get(st.ID).Generation.Number)
		w.sup.Resume()
		w.serves(st.ID, 2)
	})
}

func TestQuiesce_GivesUp(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.redeploying(service("web"))
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		require.False(w.t, w.sup.Quiesce(ctx))
		w.release()
	})
}

// given is a service with a literal and a generated variable.
func given(name string) stack.Spec {
	spec := service(name)
	spec.Env = map[string]stack.Env{"GIVEN": {Value: "value"}, "MADE": {Generate: true}}
	return spec
}

// A redeploy that waits is made by the next server, and superseded by a later one.
func TestHandOver_TakesARedeployAlong(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		require.True(w.t, w.sup.Quiesce(w.t.Context()))
		w.deploy(st.ID, service("web"))
		require.NoError(w.t, w.supersede(st.ID, given("web"), service("api")))
		got := make(chan string, 2)
		w.program(st.ID, 2, func(p *enginetest.Process) int {
			if made := variable(p, "MADE"); made != "" {
				got <- variable(p, "GIVEN") + " " + made
			}
			return listen(p)
		})
		w.replace()
		now := w.serves(st.ID, 2)
		require.Equal(w.t, []string{"web", "api"}, now.ServiceNames())
		made := now.Secrets["web/MADE"]
		require.NotEmpty(w.t, made)
		require.Equal(w.t, "value "+made, <-got)
		require.Equal(w.t, "value", now.Service("web").Spec.Env["GIVEN"].Value, "the row has it for the next start")
		require.NotContains(w.t, w.events(st.ID), "stack.restored")
		w.settle()
		require.Equal(w.t, []string{w.dir.Source(st.ID, now.Generation.Source.Folder)}, w.dir.Sources(st.ID, ""))
	})
}

// A change of variables that waits is made by the next server, beside those of the manifest.
func TestHandOver_TakesAChangeOfVariablesAlong(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(given("web"))
		require.True(w.t, w.sup.Quiesce(w.t.Context()))
		w.set(st.ID, setting("web", "SET", "too"))
		got := make(chan string, 1)
		w.program(st.ID, 2, func(p *enginetest.Process) int {
			got <- variable(p, "GIVEN") + " " + variable(p, "MADE") + " " + variable(p, "SET")
			return listen(p)
		})
		w.replace()
		now := w.serves(st.ID, 2)
		require.Equal(w.t, "value "+st.Secrets["web/MADE"]+" too", <-got)
		require.Equal(w.t, st.Service("web").Spec.Env, now.Service("web").Spec.Env)
	})
}

// A version that left no variables leaves no deploy, which ends as at a restart.
func TestHandOver_MakesNoDeployWithoutItsVariables(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(given("web"))
		require.True(w.t, w.sup.Quiesce(w.t.Context()))
		w.deploy(st.ID, given("web"))
		left := w.sup.Leave()
		left.Deploys[0].Envs = nil
		w.configure = func(c *Config) { c.Before = &left }
		w.startServer()
		now := w.await(st.ID, "not deploying", func(st *stack.Stack) bool { return st.Deploying == 0 })
		require.Equal(w.t, 1, now.Generation.Number)
		require.NotEmpty(w.t, now.DeployError)
		require.Equal(w.t, st.Service("web").Spec.Env, now.Service("web").Spec.Env)
	})
}
