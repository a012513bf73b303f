package supervisor

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// period is the BERTH_SNAPSHOT_EVERY of these tests.
const period = 10 * time.Minute

func restoring(c *Config) { c.SnapshotEvery, c.RestoreLost = period, true }

// writing is a program that keeps the texts that it is sent.
func writing(texts <-chan string) enginetest.Program {
	return func(p *enginetest.Process) int {
		p.Listen(8080)
		for {
			select {
			case text := <-texts:
				p.Write(stack.DataDir, "kept", text)
			case <-p.Terminated:
				return 0
			case <-p.Killed:
				return 0
			}
		}
	}
}

// writer is a stack whose program writes what is sent to the channel.
func (w *world) writer() (*stack.Stack, chan<- string) {
	w.t.Helper()
	texts := make(chan string)
	st := w.createRunning(24*time.Hour, writing(texts), service("web"))
	return w.becomes(st.ID, stack.Live), texts
}

// send makes a program write a text, and waits until it has.
func send(texts chan<- string, text string) {
	texts <- text
	synctest.Wait()
}

// live are the names of the snapshots of a stack that runs.
func (a *shelf) live(st *stack.Stack) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for kept := range a.kept {
		if name, ok := strings.CutPrefix(kept, st.ID+" live-"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// pauses counts how often a container was paused, and notes for how long.
type pauses struct {
	mu      sync.Mutex
	n       int
	since   time.Time
	longest time.Duration
}

func (w *world) countPauses() *pauses {
	p := &pauses{}
	w.engine.After("Pause", func(string) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.n++
		p.since = time.Now()
		return nil
	})
	w.engine.After("Unpause", func(string) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.longest = max(p.longest, time.Since(p.since))
		return nil
	})
	return p
}

func (p *pauses) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func TestSnapshots_AreOfChangedDataAndTheNewestIsKept(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, l *links) {
		paused := a.countPauses()
		st, texts := a.writer()
		send(texts, "first")
		time.Sleep(period)
		synctest.Wait()
		first := a.get(st.ID).Snapshot
		require.False(t, first.At.IsZero())
		require.False(t, first.InMotion)
		require.Equal(t, []string{"web"}, first.Services)
		require.Equal(t, 1, first.Attempt)
		require.Len(t, l.archive.live(st), 1)

		time.Sleep(3 * period)
		synctest.Wait()
		quiet := a.get(st.ID).Snapshot
		before := paused.count()
		time.Sleep(3 * period)
		synctest.Wait()
		require.Equal(t, quiet, a.get(st.ID).Snapshot, "nothing has changed")
		require.Equal(t, before, paused.count(), "nothing is paused for what has not changed")

		send(texts, "second")
		time.Sleep(period)
		synctest.Wait()
		second := a.get(st.ID).Snapshot
		require.True(t, second.At.After(quiet.At))
		require.Equal(t, []string{strings.TrimPrefix(liveName(second, "web"), "live-")}, l.archive.live(st))
		require.Empty(t, a.engine.Paused())
		require.LessOrEqual(t, paused.longest, pauseMax)
		require.Empty(t, a.there(st).Container(engine.Key{Stack: st.ID, Service: "web"}.SnapshotCopy()).ID)
		require.Equal(t, "L1", a.consistent(a.get(st.ID), "after snapshots"))
	}, restoring)
}

func TestSnapshots_AreNotOfStacksWithoutData(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, _ *links) {
		paused := a.countPauses()
		empty, site := a.long(service("web")), a.long(pages("web"))
		synctest.Wait() // both are served
		require.Equal(t, sorted(empty.ID, site.ID), a.empties())
		time.Sleep(2 * period)
		synctest.Wait()
		require.Zero(t, paused.count())
		require.True(t, a.get(empty.ID).Snapshot.At.IsZero())
		require.True(t, a.get(site.ID).Snapshot.At.IsZero())
	}, restoring)
}

func TestSnapshots_PauseForTwoSecondsAtMost(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		paused := a.countPauses()
		a.engine.Before("ReadData", func(string) error { // slow, whatever becomes of its context
			time.Sleep(10 * time.Second)
			return nil
		})
		st, texts := a.writer()
		send(texts, "kept")
		time.Sleep(period)
		synctest.Wait()
		now := a.get(st.ID).Snapshot
		require.True(t, now.InMotion)
		require.Len(t, l.archive.live(st), 1)
		require.Equal(t, 1, paused.count())
		require.LessOrEqual(t, paused.longest, pauseMax)
		require.Empty(t, a.engine.Paused())

		a.stopServer()
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
		b.settle()
		require.True(t, b.get(st.ID).Regained.InMotion)
	}, restoring)
}

func TestSnapshots_NeverLeaveAStackPaused(t *testing.T) {
	t.Parallel()
	broken := errors.New("the engine refuses")
	for name, disturb := range map[string]func(w *world){
		"Pause fails":    func(w *world) { w.engine.After("Pause", func(string) error { return broken }) },
		"ReadData fails": func(w *world) { w.engine.Before("ReadData", func(string) error { return broken }) },
		"Unpause fails at first": func(w *world) {
			var tries atomic.Int32
			w.engine.Before("Unpause", func(string) error {
				if tries.Add(1) < 3 {
					return broken
				}
				return nil
			})
		},
		"the answer of Unpause is lost": func(w *world) {
			w.engine.Before("Unpause", func(string) error {
				w.engine.Before("Unpause", nil)
				return engine.ErrUnreachable
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCluster(t, func(a, _ *world, _ *links) {
				disturb(a)
				st, texts := a.writer()
				send(texts, "kept")
				a.settle()
				require.Empty(t, a.engine.Paused())
				require.True(t, a.answers(st, "web"))
			}, restoring)
		})
	}
}

// The engine may carry out a request to pause after the server has given it up.
func TestSnapshots_APauseThatComesLateEnds(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, _ *links) {
		st, texts := a.writer()
		send(texts, "kept")
		a.settle()
		require.NoError(t, a.driver.Pause(a.t.Context(), a.served(st).process("web").id))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Empty(t, a.engine.Paused())
	}, restoring)
}

// The container of a build is paused while its image is made, and is none of a snapshot.
func TestSnapshots_LeaveAContainerOfABuildPaused(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, _ *links) {
		st, _ := a.writer()
		a.settle()
		key := engine.Key{Stack: st.ID, Service: "web"}
		image := a.get(st.ID).Generation.Services[0].Image
		id, err := a.driver.Prepare(a.t.Context(), engine.Spec{Key: key, Name: key.Build(), Image: image, Cmd: []string{"sleep", "infinity"}})
		require.NoError(t, err)
		require.NoError(t, a.driver.Start(a.t.Context(), id))
		require.NoError(t, a.driver.Pause(a.t.Context(), id))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{key.Build()}, a.engine.Paused())
		require.NoError(t, a.driver.Remove(a.t.Context(), id))
	}, restoring)
}

// A server that dies leaves the stack paused, and the next one lets the process go on.
func TestStart_UnpausesWhatAServerThatDiedHasPaused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		id := w.served(st).process("web").id
		w.stopServer()
		require.NoError(t, w.driver.Pause(w.t.Context(), id))
		w.startServer()
		require.Empty(t, w.engine.Paused())
		require.Equal(t, id, w.served(st).process("web").id, "it is the same process")
		require.True(t, w.answers(st, "web"))

		w.stopServer()
		require.NoError(t, w.driver.Pause(w.t.Context(), id))
		w.engine.Before("Unpause", func(string) error { return errors.New("the engine refuses") })
		w.startServer()
		w.settle()
		require.Empty(t, w.engine.Paused())
		require.NotEqual(t, id, w.served(st).process("web").id, "it cannot go on, so it was started again")
		require.True(t, w.answers(st, "web"))
	}, long)
}

// awaitPaused returns once a snapshot has paused something.
func (w *world) awaitPaused() {
	w.t.Helper()
	for waited := time.Duration(0); len(w.engine.Paused()) == 0; waited += 10 * time.Millisecond {
		require.Less(w.t, waited, period, "nothing is paused")
		time.Sleep(10 * time.Millisecond)
	}
}

// slowReads makes each reading of data wait until the channel is closed.
func (w *world) slowReads() chan struct{} {
	slow := make(chan struct{})
	w.engine.Before("ReadData", func(string) error {
		<-slow
		return nil
	})
	return slow
}

// A deploy does not wait for a snapshot, and its data is soon in another one.
func TestSnapshots_GiveWayToADeploy(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, l *links) {
		st, texts := a.writer()
		slow := a.slowReads()
		send(texts, "kept")
		a.awaitPaused()
		a.deploy(st.ID, service("web"))
		close(slow)
		a.serves(st.ID, 2)
		require.Empty(t, a.engine.Paused())
		a.settle()
		now := a.get(st.ID)
		require.Equal(t, 2, now.Snapshot.Attempt)
		require.True(t, now.HasSnapshot())
		require.Len(t, l.archive.live(st), 1)
	}, restoring)
}

// A snapshot that another job ends is soon taken, not only at the next period.
func TestSnapshots_AreTakenSoonAfterAnotherJob(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, _ *links) {
		st, texts := a.writer()
		a.engine.After("ReadData", func(string) error {
			a.engine.After("ReadData", nil)
			a.restart(st)
			return nil
		})
		send(texts, "kept")
		a.settle()
		require.Empty(t, a.engine.Paused())
		require.True(t, a.get(st.ID).HasSnapshot())
	}, restoring)
}

// A server that stops while a stack is paused lets it go on.
func TestClose_UnpausesWhatIsPaused(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, _ *links) {
		_, texts := a.writer()
		slow := a.slowReads()
		send(texts, "kept")
		a.awaitPaused()
		time.AfterFunc(time.Second, func() { close(slow) })
		a.stopServer()
		require.Empty(t, a.engine.Paused())
	}, restoring)
}

func TestSnapshots_AreTriedAgainAtTheNextPeriod(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, l *links) {
		st, texts := a.writer()
		send(texts, "kept")
		l.archive.leave(true)
		a.settle()
		require.True(t, a.logged("no snapshot of the stack's data taken"))
		require.True(t, a.get(st.ID).Snapshot.At.IsZero())
		l.archive.leave(false)
		a.settle()
		require.True(t, a.get(st.ID).Snapshot.At.IsZero())
		time.Sleep(period)
		synctest.Wait()
		require.True(t, a.get(st.ID).HasSnapshot())
	}, restoring)
}

func TestSnapshots_GoOnceTheStackExpires(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, l *links) {
		st := a.createRunning(2*time.Minute, keeping, service("web"))
		a.becomes(st.ID, stack.Live)
		a.settle()
		require.True(t, a.get(st.ID).HasSnapshot())
		a.awaitEvent(st.ID, "stack.expired", 1)
		a.settle()
		require.Empty(t, l.archive.live(st))
		require.True(t, a.get(st.ID).Snapshot.At.IsZero())
		require.NoError(t, a.claim(st.ID))
		a.becomes(st.ID, stack.Live)
		a.settle()
		require.True(t, a.get(st.ID).HasSnapshot())
	}, restoring)
}

func TestTakeOver_RestoresTheLastSnapshot(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st, texts := a.writer()
		send(texts, "first")
		a.settle()
		taken := a.get(st.ID).Snapshot
		before := len(a.events(st.ID))
		send(texts, "since")
		a.stopServer()

		for range 2 {
			require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
		}
		b.settle()
		data := engine.Key{Stack: st.ID, Service: "web"}.Data()
		require.Equal(t, map[string]string{"kept": "first"}, b.engine.Volume(data))
		require.Equal(t, []string{"stack.restored"}, b.after(st.ID, before))
		require.Equal(t, "L1", b.consistent(b.get(st.ID), "taken over"))
		require.Equal(t, taken, b.get(st.ID).Regained)

		a.startServer()
		a.settle()
		require.Equal(t, []string{data}, a.there(st).Names(), "the old process has ended, and the volume stays")
		kept, _ := a.remains(st, "a")
		require.Equal(t, []string{data}, kept)
		require.Equal(t, map[string]string{"kept": "since"}, a.engine.Volume(data))
		require.Equal(t, 404, a.ask(st, "web"))
		require.Equal(t, []string{"stack.restored"}, b.after(st.ID, before))
	}, restoring)
}

func TestTakeOver_WithoutASnapshotOfTheServedGenerationWaits(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*stack.Stack, *links){
		"none":    func(st *stack.Stack, _ *links) { st.Snapshot = stack.Snapshot{} },
		"earlier": func(st *stack.Stack, _ *links) { st.Snapshot.Attempt-- },
		"gone": func(st *stack.Stack, l *links) {
			l.archive.mu.Lock()
			defer l.archive.mu.Unlock()
			maps.DeleteFunc(l.archive.kept, func(name string, _ []byte) bool { return strings.Contains(name, " live-") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCluster(t, func(a, b *world, l *links) {
				st, texts := a.writer()
				send(texts, "first")
				a.settle()
				a.stopServer()
				_, err := a.db.Update(a.t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) { spoil(st, l); return nil, nil })
				require.NoError(t, err)
				require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
				b.settle()
				require.Equal(t, "a", b.get(st.ID).Node)
				b.nowhere(st)
				a.startServer()
				require.True(t, a.answers(a.get(st.ID), "web"))
			}, restoring)
		})
	}
}

func TestTakeOver_WaitsUnlessItIsToRestore(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st, texts := a.writer()
		send(texts, "first")
		a.settle()
		require.True(t, a.get(st.ID).HasSnapshot())
		a.stopServer()
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
		b.settle()
		require.Equal(t, "a", b.get(st.ID).Node)
		b.nowhere(st)
	}, func(c *Config) { c.SnapshotEvery = period })
}

// A service that a deploy has dropped keeps its data, on the next node, too.
func TestTakeOver_BringsTheDataOfDroppedServices(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st := a.createRunning(time.Hour, keeping, service("web"), service("old"))
		a.becomes(st.ID, stack.Live)
		a.program(st.ID, 2, keeping)
		a.deploy(st.ID, service("web"))
		a.serves(st.ID, 2)
		a.settle()
		require.Equal(t, []string{"old", "web"}, a.get(st.ID).Snapshot.Services)
		a.stopServer()
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
		b.settle()
		require.Equal(t, "L2", b.consistent(b.get(st.ID), "taken over"))
		for _, service := range []string{"web", "old"} {
			require.Equal(t, map[string]string{"kept": st.ID}, b.engine.Volume(engine.Key{Stack: st.ID, Service: service}.Data()))
		}
	}, restoring)
}

// A node that is cut off stops what others restore.
func TestIsolated_StopsWhatOthersMayRestore(t *testing.T) {
	t.Parallel()
	for name, reboot := range map[string]bool{"of this server": false, "of an earlier server": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCluster(t, func(a, b *world, l *links) {
				st, texts := a.writer()
				send(texts, "first")
				a.settle()
				l.archive.leave(true)
				without, more := a.writer()
				send(more, "first")
				empty := a.empties()
				if reboot {
					a.reboot()
				}
				a.sup.Isolated(a.t.Context(), empty, time.Second)
				a.runs(st)
				require.False(t, a.answers(st, "web"))
				require.True(t, a.answers(without, "web"), "nobody else has its data")
				l.archive.leave(false)
				require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
				a.sup.Rejoined()
				a.settle()
				b.settle()
				require.Equal(t, "L1", b.consistent(b.get(st.ID), "taken over"))
				require.Equal(t, "L1", a.consistent(a.get(without.ID), "in the end"))
			}, restoring)
		})
	}
}

// The record of a snapshot fails once another node owns the stack, and the stack is let go.
func TestSnapshots_AreNotRecordedForAnotherOwner(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, l *links) {
		st, texts := a.writer()
		a.engine.After("ReadData", func(string) error {
			a.engine.After("ReadData", nil)
			a.goesTo(st, "c")
			return nil
		})
		send(texts, "first")
		a.settle()
		require.True(t, a.get(st.ID).Snapshot.At.IsZero())
		require.Empty(t, a.engine.Paused())
		require.Nil(t, a.sup.lookup(st.ID))
	}, restoring)
}
