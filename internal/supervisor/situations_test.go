package supervisor

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// situation is a job during which something happens to a stack, or a state without a job.
// It begins with a stack where nothing ends before the world is released.
type situation struct {
	job   string
	begin func(w *world) *stack.Stack
}

// underWay are the situations, in two worlds; see together.
var underWay = []situation{
	{"come back", func(w *world) *stack.Stack {
		st := w.long(service("web"))
		w.stopServer()
		w.crash(st, "web-g1", 1)
		w.program(st.ID, 1, w.slow)
		w.startServer()
		w.runs(st, "web-g1")
		return st
	}},
	{"live", func(w *world) *stack.Stack { return w.long(service("web")) }},
	{"failed", func(w *world) *stack.Stack {
		st := w.createRunning(time.Hour, exits(1), service("web"))
		return w.becomes(st.ID, stack.Failed)
	}},
	{"expired", func(w *world) *stack.Stack {
		st := w.expired(service("web"))
		synctest.Wait()
		return st
	}},
	{"build", func(w *world) *stack.Stack {
		spec := service("web")
		spec.Build = "make"
		return w.commanding(spec)
	}},
	{"release", func(w *world) *stack.Stack {
		spec := service("web")
		spec.Release = "make"
		return w.commanding(spec)
	}},
	{"deploy", func(w *world) *stack.Stack {
		st := w.createRunning(time.Hour, w.slow, service("web"))
		w.runs(st, "web-g1")
		return st
	}},
	{"redeploy", func(w *world) *stack.Stack { return w.redeploying(service("web")) }},
	{"drop api", func(w *world) *stack.Stack {
		st := w.long(service("web"), service("api"))
		w.program(st.ID, 2, w.slow)
		w.deploy(st.ID, service("web"))
		w.runs(st, "api-g1", "web-g1", "web-g2")
		return st
	}},
	{"recreate", func(w *world) *stack.Stack { return w.redeploying(recreate("web")) }},
	{"two halted", func(w *world) *stack.Stack { return w.redeploying(recreate("web"), recreate("api")) }},
	{"superseded", func(w *world) *stack.Stack { // its process takes its time to end, and then another deploy begins
		spec := recreate("web")
		spec.StopTimeout = 10 * time.Minute
		st := w.long(spec)
		w.program(st.ID, 2, w.unwilling)
		w.deploy(st.ID, spec)
		w.runs(st, "web-g2")
		synctest.Wait()
		w.program(st.ID, 2, w.slow)
		require.NoError(w.t, w.supersede(st.ID, spec))
		return st
	}},
	{"rollback", func(w *world) *stack.Stack {
		st := w.redeploying(recreate("web"))
		w.program(st.ID, 1, w.slow)
		w.crash(st, "web-g2", 1)
		w.runs(st, "web-g1")
		return st
	}},
	{"half back", func(w *world) *stack.Stack { // a rollback of two services
		st := w.redeploying(recreate("web"), recreate("api"))
		w.program(st.ID, 1, only("web", w.slow))
		w.crash(st, "web-g2", 1)
		w.runs(st, "api-g1", "web-g1")
		return st
	}},
	{"api loops", func(w *world) *stack.Stack {
		st := w.long(service("web"), service("api"))
		w.program(st.ID, 1, only("api", exits(1)))
		w.crash(st, "api-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 5)
		return st
	}},
	{recovery, func(w *world) *stack.Stack {
		st := w.long(service("web"))
		w.program(st.ID, 1, w.slow)
		w.away(time.Second)
		w.runs(st, "web-g1")
		return st
	}},
	{"crash", func(w *world) *stack.Stack {
		st := w.long(service("web"))
		w.program(st.ID, 1, w.slow)
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 1)
		w.runs(st, "web-g1")
		return st
	}},
	{"restart", func(w *world) *stack.Stack { return w.restarting(service("web")) }},
	{"in place", func(w *world) *stack.Stack { return w.restarting(recreate("web")) }},
	{"api crashed", func(w *world) *stack.Stack { // while web restarts
		st := w.restarting(service("web"), service("api"))
		w.crash(st, "api-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 1)
		w.runs(st, "api-g1", "web-g1", "web-g1-r1")
		return st
	}},
	{"expiry", func(w *world) *stack.Stack {
		spec := service("web")
		spec.StopTimeout = 10 * time.Minute
		st := w.createRunning(5*time.Second, w.stubborn, spec)
		time.Sleep(6 * time.Second)
		return st
	}},
	{"snapshot", func(w *world) *stack.Stack {
		st := w.createFor(5*time.Second, service("web"))
		w.hold("Snapshot", engine.Key{Stack: st.ID, Service: "web"}.Data())
		w.awaitEvent(st.ID, "stack.expired", 1)
		return st
	}},
	{"restore", func(w *world) *stack.Stack {
		st := w.expired(service("web"))
		w.program(st.ID, 1, w.slow)
		require.NoError(w.t, w.claim(st.ID))
		w.runs(st, "web-g1")
		return st
	}},
	{"delete", func(w *world) *stack.Stack {
		st := w.long(service("web"))
		w.hold("Remove", w.served(st).process("web").id)
		go func() { _ = w.sup.Delete(w.t.Context(), st.ID) }()
		synctest.Wait()
		return st
	}},
	{"fallen", func(w *world) *stack.Stack { return w.fallen(service("web")) }},
	{"loop", func(w *world) *stack.Stack {
		st := w.long(service("web"))
		w.program(st.ID, 1, exits(1))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 5)
		return st
	}},
	{"backoff", func(w *world) *stack.Stack { // the last, since it is over soon
		st := w.long(service("web"))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 1)
		return st
	}},
}

const recovery = "recovery"

// together are the situations that share a world. The first of each world stops the
// server or the engine, so that no other one may be under way.
func together() [][]situation {
	second := slices.IndexFunc(underWay, func(s situation) bool { return s.job == recovery })
	return [][]situation{underWay[:second], underWay[second:]}
}

// long is a live stack whose time does not run out meanwhile.
func (w *world) long(specs ...stack.Spec) *stack.Stack {
	w.t.Helper()
	return w.becomes(w.createFor(time.Hour, specs...).ID, stack.Live)
}

// expired is a stack whose time has run out.
func (w *world) expired(spec stack.Spec) *stack.Stack {
	w.t.Helper()
	st := w.createFor(5*time.Second, spec)
	w.awaitEvent(st.ID, "stack.expired", 1)
	return st
}

// commanding is a stack whose build or release command runs.
func (w *world) commanding(spec stack.Spec) *stack.Stack {
	w.t.Helper()
	w.command(func(p *enginetest.Process) int {
		select {
		case <-w.released:
			return 0
		case <-p.Killed:
			return 1
		}
	})
	st := w.createFor(time.Hour, spec)
	synctest.Wait()
	return st
}

// redeploying is a stack whose second generation is on its way.
func (w *world) redeploying(specs ...stack.Spec) *stack.Stack {
	w.t.Helper()
	st := w.long(specs...)
	w.program(st.ID, 2, w.slow)
	w.deploy(st.ID, specs...)
	var run []string
	for _, spec := range specs {
		if spec.Strategy != stack.Recreate {
			run = append(run, spec.Name+"-g1")
		}
		run = append(run, spec.Name+"-g2")
	}
	slices.Sort(run)
	w.runs(st, run...)
	synctest.Wait() // for the processes to know what they run
	return st
}

// restarting is a claimed stack whose service web is being restarted.
func (w *world) restarting(specs ...stack.Spec) *stack.Stack {
	w.t.Helper()
	st := w.long(specs...)
	require.NoError(w.t, w.claim(st.ID))
	w.program(st.ID, 1, w.slow)
	w.restart(st)
	time.Sleep(4 * time.Second)
	return st
}

// only runs a program for one service; the others listen.
func only(name string, program enginetest.Program) enginetest.Program {
	return func(p *enginetest.Process) int {
		if variable(p, "SERVICE_NAME") == name {
			return program(p)
		}
		return listen(p)
	}
}

// slow is a program that listens once the world is released.
func (w *world) slow(p *enginetest.Process) int {
	select {
	case <-w.released:
		return listen(p)
	case <-p.Terminated:
	case <-p.Killed:
	}
	return 0
}

// stubborn is a program that listens, and ends as it is asked to once the world is
// released.
func (w *world) stubborn(p *enginetest.Process) int {
	code := listen(p)
	select {
	case <-w.released:
	case <-p.Killed:
	}
	return code
}

// unwilling is a program that never listens, and ends as it is asked to once the world is
// released.
func (w *world) unwilling(p *enginetest.Process) int {
	select {
	case <-w.released:
		return silent(p)
	case <-p.Killed:
	}
	return 0
}

// hold has the engine answer no call of a method about an object, "" for all, before the
// world is released.
func (w *world) hold(method, object string) {
	sup := w.sup
	w.engine.Before(method, func(about string) error {
		if object != "" && about != object {
			return nil
		}
		select {
		case <-w.released:
		case <-sup.ctx.Done(): // whoever asked is gone
		}
		return nil
	})
}
