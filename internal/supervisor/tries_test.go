package supervisor

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// doubt makes the database answer nothing from the next change on that has an event of a kind.
// That change takes effect.
func (w *world) doubt(kind stack.EventType) {
	w.db.breaks(func(_ string, events []stack.Event) error {
		if slices.ContainsFunc(events, func(e stack.Event) bool { return e.Type == kind }) {
			w.db.unanswered = store.ErrInDoubt
			w.db.fault = nil
		}
		return nil
	})
}

// doubted waits until the change has taken effect, and some tries longer.
func (w *world) doubted(st *stack.Stack, kind string, times int) {
	w.t.Helper()
	w.awaitEvent(st.ID, kind, times)
	time.Sleep(20 * time.Second)
}

// The commit of a go-live is not answered, and the database not there for a while. The row says
// live, so the generation is, once the server learns that.
func TestTries_AGoLiveInDoubt(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(w *world, st *stack.Stack, next []stack.Spec){
		"goes live": func(w *world, st *stack.Stack, _ []stack.Spec) {
			w.db.answers(nil)
			w.serves(st.ID, 2)
		},
		"loses a process meanwhile": func(w *world, st *stack.Stack, _ []stack.Spec) {
			w.crash(st, "web-g2", 1)
			time.Sleep(time.Second)
			w.db.answers(nil)
			for w.served(st).made.Number == 1 {
				time.Sleep(10 * time.Millisecond)
			}
			require.NotEqual(w.t, toProcess, w.ask(st, "web"), "its address may be another's")
			w.awaitEvent(st.ID, "service.restarted", 1)
		},
		"the one before loses a process meanwhile": func(w *world, st *stack.Stack, _ []stack.Spec) {
			w.crash(st, "web-g1", 1)
			time.Sleep(time.Second)
			w.db.answers(nil)
			w.settle()
			require.Zero(w.t, count(w.events(st.ID), "service.crashed"))
			require.Equal(w.t, stack.Running, w.get(st.ID).Service("web").Status)
		},
		"the node is cut off": func(w *world, st *stack.Stack, _ []stack.Spec) {
			began := time.Now()
			w.sup.Isolated(w.t.Context(), []string{st.ID}, time.Hour)
			require.Less(w.t, time.Since(began), time.Minute, "it waits for no database")
			w.runs(st)
			w.db.answers(nil)
			w.sup.Rejoined()
		},
		"is followed by another": func(w *world, st *stack.Stack, next []stack.Spec) {
			w.db.answers(nil)
			w.deploy(st.ID, next...)
			w.serves(st.ID, 3)
		},
		"the server stops": func(w *world, st *stack.Stack, _ []stack.Spec) {
			w.stopServer()
			w.db.answers(nil)
			w.startServer()
		},
		"the engine goes away": func(w *world, _ *stack.Stack, _ []stack.Spec) {
			w.away(time.Second)
			time.Sleep(time.Second)
			w.db.answers(nil)
		},
	} {
		for _, next := range [][]stack.Spec{{db(), using("web")}, {service("web")}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					st := w.createFor(time.Hour, service("web"))
					w.becomes(st.ID, stack.Live)
					w.doubt(stack.EventLive)
					w.deploy(st.ID, next...)
					w.doubted(st, "stack.live", 2)
					require.True(t, w.answers(st, "web"))
					require.Equal(t, 1, w.served(st).made.Number, "nobody knows that the next is live")

					then(w, st, next)
					w.settle()
					now := w.get(st.ID)
					require.Equal(t, now.Generation.Number, w.served(st).made.Number)
					require.Equal(t, now.Generation.Number, count(w.events(st.ID), "stack.live"))
					require.Zero(t, count(w.events(st.ID), "stack.deploy_failed"), now.DeployError)
					require.True(t, w.answers(now, "web"))
					if len(next) == 1 {
						w.consistent(now, name)
						return
					}
					w.runs(st, "db-g0", fmt.Sprintf("web-g%d", now.Generation.Number))
					require.NotEmpty(t, w.dataOfDB(st, 0))
				})
			})
		}
	}
}

// A go-live in doubt that did not take effect is tried again, unless another deploy follows.
func TestTries_AGoLiveThatDidNotTakeEffect(t *testing.T) {
	t.Parallel()
	for _, follows := range []bool{false, true} {
		inWorld(t, func(w *world) {
			st := w.long(service("web"))
			w.db.aborts = true
			w.doubt(stack.EventLive)
			w.deploy(st.ID, service("web"))
			time.Sleep(20 * time.Second)
			require.True(t, w.answers(st, "web"))
			require.Equal(t, 1, w.get(st.ID).Generation.Number)
			w.db.answers(nil)
			generation := 2
			if follows {
				require.NoError(t, w.supersede(st.ID, service("api")))
			}
			w.serves(st.ID, generation)
			w.settle()
			require.Equal(t, 2, count(w.events(st.ID), "stack.live"))
			require.Equal(t, follows, w.get(st.ID).Service("api") != nil)
			require.Equal(t, "L2", w.consistent(w.get(st.ID), "in the end"))
		})
	}
}

func TestTries_AFirstGoLiveInDoubt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.doubt(stack.EventLive)
		st := w.createFor(time.Hour, service("web"))
		w.doubted(st, "stack.live", 1)
		w.db.answers(nil)
		w.settle()
		w.runs(st, "web-g1")
		require.Equal(t, 1, count(w.events(st.ID), "stack.live"))
		w.consistent(w.get(st.ID), "after the doubt")
	})
}

// What did take effect is not done again.
func TestTries_ACrashInDoubtIsCountedOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		w.doubt(stack.EventCrashed)
		w.crash(st, "web-g1", 1)
		w.doubted(st, "service.crashed", 1)
		w.db.answers(nil)
		w.awaitEvent(st.ID, "service.restarted", 1)
		require.Equal(t, 1, count(w.events(st.ID), "service.crashed"))
		require.Len(t, w.get(st.ID).Generation.Services[0].Crashes, 1)

		w.doubt(stack.EventFailed)
		w.looping(st, "web-g1")
		w.doubted(st, "stack.failed", 1)
		w.db.answers(nil)
		w.settle()
		require.Equal(t, limits.Crashes+1, count(w.events(st.ID), "service.crashed"))
		w.consistent(w.get(st.ID), "in a crash loop")
	})
}

// What is called off while nobody knows whether the row names the next process is not named by
// it in the end.
func TestTries_ARestartInDoubtThatIsCalledOff(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		w.doubt(stack.EventRestarted)
		w.restart(st)
		w.doubted(st, "service.restarted", 1)
		read := make(chan error, 1)
		go func() { read <- w.sup.ReadData(w.t.Context(), st.ID, "web", true, io.Discard) }()
		time.Sleep(time.Second)
		w.db.answers(nil)
		require.NoError(t, <-read)
		w.runs(st, "web-g1")
		time.Sleep(2 * leftoverGrace)
		w.settle()
		require.Zero(t, count(w.events(st.ID), "service.crashed"))
		require.Equal(t, "L1", w.consistent(w.get(st.ID), "after the restart"))
	}, ofData)
}

func TestTries_AFailureInDoubt(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"stack.failed": "F1", "stack.deploy_failed": "L1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				generation := 1
				var st *stack.Stack
				w.doubt(stack.EventType(name))
				if name == "stack.failed" {
					st = w.createRunning(time.Hour, exits(3), service("web"))
				} else {
					st = w.long(service("web"))
					generation = 2
					w.program(st.ID, generation, exits(3))
					w.deploy(st.ID, service("web"))
				}
				w.doubted(st, name, 1)
				w.db.answers(nil)
				w.settle()
				require.Equal(t, 1, count(w.events(st.ID), name))
				require.Equal(t, want, w.consistent(w.get(st.ID), name))
			})
		})
	}
}

func TestTries_AnExpiryInDoubt(t *testing.T) {
	t.Parallel()
	for _, cutOff := range []bool{false, true} {
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			w.doubt(stack.EventExpired)
			w.doubted(st, "stack.expired", 1)
			if cutOff {
				w.sup.Isolated(w.t.Context(), []string{st.ID}, time.Hour)
			}
			w.db.answers(nil)
			w.sup.Rejoined()
			w.settle()
			require.Equal(t, 1, count(w.events(st.ID), "stack.expired"))
			require.Equal(t, "E1", w.consistent(w.get(st.ID), "after the doubt"))
		})
	}
}

// A stack that has failed without anybody's knowledge is ended with the next look at it.
func TestTries_AFallInDoubtThatIsCalledOff(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createFor(time.Hour, recreate("web"))
		w.becomes(st.ID, stack.Live)
		w.doubt(stack.EventFailed)
		w.program(st.ID, 1, exits(9)) // it does not come back
		w.program(st.ID, 2, exits(9))
		w.deploy(st.ID, recreate("web"))
		w.doubted(st, "stack.failed", 1)
		w.away(time.Second)
		time.Sleep(time.Second)
		w.db.answers(nil)
		w.settle()
		require.Equal(t, "F1", w.consistent(w.get(st.ID), "after the doubt"))
		require.Nil(t, w.sup.lookup(st.ID).serving())
	})
}

// Whichever data the row names is kept, whatever the owner was answered.
func TestTries_DataInDoubt(t *testing.T) {
	t.Parallel()
	for name, failed := range map[string]bool{"of a live stack": false, "of a failed stack": true} {
		for _, stops := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					st := w.long(service("web"))
					require.NoError(t, w.replaceData(st, "before"))
					if failed {
						w.looping(st, "web-g1-r1")
						w.becomes(st.ID, stack.Failed)
						w.settle()
					}
					w.db.breaks(func(_ string, events []stack.Event) error {
						if (failed || len(events) > 0) && w.volume(st, 2) != nil {
							w.db.unanswered = store.ErrInDoubt
						}
						return nil
					})
					put := make(chan error, 1)
					go func() { put <- w.replaceData(st, "after") }()
					w.await(st.ID, "recorded", func(st *stack.Stack) bool { return st.DataVolumes["web"] == 2 })
					time.Sleep(20 * time.Second)
					if stops {
						w.stopServer()
						require.Error(t, <-put)
					}
					w.db.breaks(nil)
					w.db.answers(nil)
					if stops {
						w.startServer()
					} else {
						require.NoError(t, <-put)
						if !failed {
							require.Equal(t, 2, count(w.events(st.ID), "service.restarted"), "once for each data")
						}
					}
					w.settle()
					require.Equal(t, map[string]string{"kept": "after"}, w.volume(st, 2))
					time.Sleep(leftoverGrace)
					w.settle()
					require.Empty(t, w.volume(st, 1))
					if !failed {
						require.True(t, w.answers(st, "web"))
						w.consistent(w.get(st.ID), name)
					}
				}, ofData)
			})
		}
	}
}
