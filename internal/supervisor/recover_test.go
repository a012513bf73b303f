package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

func TestNotice_IsGivenOnceAndAgainAfterAnExtension(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createFor(40*time.Minute, service("web"))
		noticed := func(times int) {
			t.Helper()
			w.settle()
			require.Equal(t, times, count(w.events(st.ID), "stack.expiring"))
		}
		noticed(1)
		require.Equal(t, stack.Timestamp(w.get(st.ID).ExpiresAt), w.last(st.ID, "stack.expiring").Data["expires_at"])
		w.reboot()
		noticed(1)
		require.NoError(t, w.extend(st, 45*time.Minute))
		noticed(2)
		require.Equal(t, stack.Timestamp(w.get(st.ID).ExpiresAt), w.last(st.ID, "stack.expiring").Data["expires_at"])
		require.NoError(t, w.extend(st, 55*time.Minute)) // far from its expiry there is none
		w.reboot()
		noticed(2)
		require.NoError(t, w.extend(st, 30*time.Minute))
		noticed(3)
	}, func(c *Config) { c.Limits.ExpiryNotice = 50 * time.Minute })
}

// A claim that comes in the same moment as the notice is not lost, and a claimed stack
// gets no notice.
func TestNotice_AgainstAClaim(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		when    string
		after   time.Duration // since the notice was due
		notices []int
	}{
		{"before it is due", -time.Millisecond, []int{0}},
		{"as it is due", 0, []int{0, 1}},
		{"while it is recorded", time.Millisecond, []int{0}},
		{"after it was recorded", time.Millisecond, []int{1}},
	} {
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			if c.when == "while it is recorded" {
				w.db.breaks(at(stack.EventExpiring))
			}
			time.Sleep(time.Until(st.ExpiresAt.Add(c.after - limits.ExpiryNotice)))
			if c.after != 0 {
				synctest.Wait()
			}
			require.NoError(t, w.claim(st.ID))
			w.db.breaks(nil)
			time.Sleep(2 * limits.TTL)
			require.Equal(t, "L1", w.consistent(st, c.when))
			require.Equal(t, "stack.claimed", w.events(st.ID)[len(w.events(st.ID))-1], c.when)
			require.Contains(t, c.notices, count(w.events(st.ID), "stack.expiring"), c.when)
			now := w.get(st.ID)
			require.True(t, now.Claimed(), c.when)
			require.Zero(t, now.ExpiresAt, c.when)
		})
	}
}

func TestExpiry_DeadlinesThatPassedWhileTheServerWasDownAreMetOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.stopServer()
		time.Sleep(limits.TTL)
		w.startServer()
		st = w.becomes(st.ID, stack.Expired)
		w.reboot()
		require.Equal(t, 1, count(w.events(st.ID), "stack.expired"))
		require.NotContains(t, w.events(st.ID), "stack.restored")
		require.Equal(t, "E1", w.consistent(st, "after the expiry"))
		w.stopServer()
		time.Sleep(limits.Retention)
		w.startServer()
		w.settle()
		events := w.events(st.ID)
		require.Equal(t, []string{"stack.expired", "stack.deleted"}, events[len(events)-2:])
		require.Equal(t, "-", w.consistent(st, "after the retention"))
	})
}

// What a process writes as it ends is in the snapshot.
func TestExpiry_AProcessWhoseTimePassedWhileTheServerWasDownMayEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(limits.TTL, func(p *enginetest.Process) int {
			listen(p)
			time.Sleep(5 * time.Second)
			p.Write(stack.DataDir, "last", "words")
			return 0
		}, service("web"))
		w.becomes(st.ID, stack.Live)
		w.stopServer()
		time.Sleep(limits.TTL)
		w.startServer()
		w.becomes(st.ID, stack.Expired)
		synctest.Wait()
		require.NoError(t, w.claim(st.ID))
		w.becomes(st.ID, stack.Live)
		require.Equal(t, map[string]string{"last": "words"}, w.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
	})
}

// The end of a redeploy is told once the generation before serves again.
func TestRecover_ARecreateIsRolledBackBeforeItsEndIsTold(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(recreate("web"))
		w.program(st.ID, 2, silent)
		w.deploy(st.ID, recreate("web"))
		w.runs(st, "web-g2")
		require.Equal(t, stack.Stopped, w.get(st.ID).Generation.Services[0].Status)
		w.program(st.ID, 1, w.slow)
		w.reboot()
		w.runs(st, "web-g1")
		time.Sleep(10 * time.Second)
		require.NotContains(t, w.events(st.ID), "stack.deploy_failed")
		w.release()
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		events := w.events(st.ID)
		require.Equal(t, []string{"stack.deploy_failed", "stack.restored"}, events[len(events)-2:])
		require.True(t, w.answers(st, "web"))
		require.Contains(t, w.get(st.ID).DeployError, "restarted while generation 2 was being built")
	})
}

func TestRecover_ARecreateThatCannotBeRolledBackFails(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(recreate("web"))
		w.program(st.ID, 2, silent)
		w.deploy(st.ID, recreate("web"))
		w.runs(st, "web-g2")
		w.program(st.ID, 1, exits(8))
		w.reboot()
		now := w.becomes(st.ID, stack.Failed)
		require.Regexp(t, `(?s)restarted while generation 2 was being built.*\nGeneration 1, which served before, could not be brought back: .*exited with code 8`, now.Error)
		require.NotContains(t, w.events(st.ID), "stack.deploy_failed")
		require.Equal(t, 1, count(w.events(st.ID), "stack.failed"))
		w.endsWith(st, "F1")
	})
}

// takingTime is a program that takes its time to end.
func takingTime(p *enginetest.Process) int {
	listen(p)
	select {
	case <-p.Killed:
	case <-time.After(8 * time.Second):
	}
	return 0
}

// A process that an earlier server asked to end has not crashed when it does.
func TestRecover_AProcessThatIsAskedToEndDoesNotCrash(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(limits.TTL, takingTime, recreate("web"))
		w.becomes(st.ID, stack.Live)
		w.deploy(st.ID, recreate("web"))
		time.Sleep(time.Second)
		require.Equal(t, stack.Stopped, w.get(st.ID).Generation.Services[0].Status)
		w.reboot()
		w.awaitEvent(st.ID, "stack.restored", 1)
		w.settle()
		require.NotContains(t, w.events(st.ID), "service.crashed")
		require.True(t, w.answers(st, "web"))
		w.runs(st, "web-g1")
	})
}

func TestRecover_InABackoff(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		require.NoError(t, w.claim(st.ID))
		for n := 1; n <= 2; n++ {
			w.crash(st, "web-g1", 3)
			w.awaitEvent(st.ID, "service.crashed", n)
			require.Equal(t, n, w.last(st.ID, "service.crashed").Data["crashes"], "the window goes on where it was")
			w.reboot()
			w.awaitEvent(st.ID, "stack.restored", n)
			require.True(t, w.answers(st, "web"))
		}
	}, func(c *Config) { c.Limits.Backoff, c.Limits.BackoffMax = time.Hour, time.Hour })
}

// Whether its process is being stopped or its data copied, an expiry that servers end in
// is met once, and loses nothing.
func TestRecover_InTheMiddleOfAnExpiry(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"Stop", "Snapshot"} {
		inWorld(t, func(w *world) {
			st := w.createRunning(limits.TTL, keeping, service("web"))
			w.becomes(st.ID, stack.Live)
			for range 2 {
				w.hold(at, "")
				time.Sleep(limits.TTL)
				w.reboot()
			}
			w.release()
			w.becomes(st.ID, stack.Expired)
			w.settle()
			require.Equal(t, 1, count(w.events(st.ID), "stack.expired"), at)
			require.Equal(t, "E1", w.consistent(st, at))
			require.NoError(t, w.claim(st.ID))
			w.becomes(st.ID, stack.Live)
			require.Equal(t, map[string]string{"kept": st.ID}, w.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()), at)
			require.True(t, w.answers(st, "web"), at)
		}, func(c *Config) { c.Limits.Retention = time.Hour })
	}
}

func TestRecover_InTheMiddleOfARestore(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		api := service("api")
		api.DependsOn = []string{"web"}
		st := w.createRunning(limits.TTL, keeping, service("web"), api)
		w.awaitEvent(st.ID, "stack.expired", 1)
		synctest.Wait()
		w.program(st.ID, 1, silent)
		require.NoError(t, w.claim(st.ID))
		w.runs(st, "web-g1")
		w.stopServer()
		w.program(st.ID, 1, listen)
		w.startServer()
		require.True(t, w.get(st.ID).Claimed())
		w.becomes(st.ID, stack.Live)
		for _, name := range []string{"web", "api"} {
			require.Equal(t, map[string]string{"kept": st.ID}, w.engine.Volume(engine.Key{Stack: st.ID, Service: name}.Data()))
		}
		require.Equal(t, 1, count(w.events(st.ID), "stack.restored"))
		w.runs(st, "api-g1", "web-g1")
	})
}

// A claim while a service is still on its way leaves alone what serves already.
func TestRecover_AClaimMeanwhileTouchesNoService(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(pages("pages"), service("web"), service("late"))
		w.stopServer()
		w.crash(st, "late-g1", 1)
		w.program(st.ID, 1, w.slow)
		w.startServer()
		w.runs(st, "late-g1", "web-g1")
		require.NoError(t, w.claim(st.ID))
		for range 2 {
			require.Equal(t, 200, w.ask(st, "pages"))
			require.Equal(t, toProcess, w.ask(st, "web"))
			w.release()
			w.awaitEvent(st.ID, "stack.restored", 1)
		}
		require.True(t, w.answers(st, "late"))
	})
}

// A server that stops as a stack fails for its crashes leaves the rest of it to the next.
func TestRecover_AFailedStackRunsNothing(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		spec := service("web")
		spec.StopTimeout = time.Minute
		st := w.createRunning(time.Hour, w.stubborn, spec, service("bad"))
		w.becomes(st.ID, stack.Live)
		w.looping(st, "bad-g1")
		w.becomes(st.ID, stack.Failed)
		w.runs(st, "web-g1")
		w.reboot()
		w.release()
		w.endsWith(st, "F1")
	})
}

// A claimed stack that does not come back loses nothing, also of services that its
// restore never came to.
func TestRestore_ThatFailsKeepsTheDataForARedeploy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		api := service("api")
		api.DependsOn = []string{"web"}
		st := w.createRunning(limits.TTL, keeping, service("web"), api)
		w.awaitEvent(st.ID, "stack.expired", 1)
		synctest.Wait()
		w.program(st.ID, 1, exits(6))
		require.NoError(t, w.claim(st.ID))
		now := w.becomes(st.ID, stack.Failed)
		require.Contains(t, now.Error, "service web: ")
		require.Contains(t, now.Error, "exited with code 6")
		require.True(t, now.Claimed())
		w.reboot()
		w.deploy(st.ID, service("web"), api)
		w.serves(st.ID, 2)
		for _, name := range []string{"web", "api"} {
			require.Equal(t, map[string]string{"kept": st.ID}, w.engine.Volume(engine.Key{Stack: st.ID, Service: name}.Data()))
		}
		w.runs(st, "api-g2", "web-g2")
	})
}

func TestRestore_OfAStackThatWasNeverBuiltKeepsItsData(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(limits.TTL, func(p *enginetest.Process) int {
			p.Write(stack.DataDir, "kept", "data")
			return 1
		}, service("web"))
		w.awaitEvent(st.ID, "stack.expired", 1)
		require.NoError(t, w.claim(st.ID))
		now := w.becomes(st.ID, stack.Failed)
		require.Regexp(t, `(?s)exited with code 1.*upload the source again`, now.Error)
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
		require.Equal(t, map[string]string{"kept": "data"}, w.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
	})
}

// refuses makes the engine refuse the first calls of a method; all with -1. It returns how
// many calls there were.
func (w *world) refuses(method string, first int64) *atomic.Int64 {
	calls := new(atomic.Int64)
	w.engine.Before(method, func(string) error {
		if n := calls.Add(1); first >= 0 && n > first {
			return nil
		}
		return errors.New("no such layer")
	})
	return calls
}

// An engine that refuses everything is at fault itself, however often it does; what
// starts again once it works is not a crash.
func TestStart_AFaultOfTheEngineFailsNobody(t *testing.T) {
	t.Parallel()
	for _, calls := range []int64{2, -1} {
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			w.stopServer()
			w.crash(st, "web-g1", 1)
			tries := w.refuses("Run", calls)
			w.startServer()
			w.settle()
			if calls < 0 {
				require.Equal(t, stack.Live, w.get(st.ID).Status)
				require.Greater(t, tries.Load(), int64(maxRefusals+2))
				w.engine.Before("Run", nil)
			}
			w.awaitEvent(st.ID, "stack.restored", 1)
			require.True(t, w.answers(st, "web"))
			require.NotContains(t, w.events(st.ID), "stack.failed")
			require.NotContains(t, w.events(st.ID), "service.crashed")
		})
	}
}

// One that starts everything else is not.
func TestStart_FailsOnlyTheStackWhoseFilesAreBroken(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st, other := w.live(service("web")), w.live(service("web"))
		w.stopServer()
		w.crash(st, "web-g1", 1)
		w.crash(other, "web-g1", 1)
		name := engine.Key{Stack: st.ID, Service: "web", Generation: 1}.Process(0)
		w.engine.Before("Run", func(object string) error {
			if object == name {
				return errors.New("no such layer")
			}
			return nil
		})
		w.startServer()
		now := w.becomes(st.ID, stack.Failed)
		require.Equal(t, "service web: its image or its data on this host is broken: it could not be started in 5 attempts; upload the source again", now.Error)
		require.Equal(t, 1, count(w.events(st.ID), "stack.failed"))
		require.NotContains(t, w.events(st.ID), "service.crashed")
		require.True(t, w.answers(other, "web"))
		w.endsWith(st, "F1")
	})
}

// A database that takes no writes for now does not keep from serving what runs.
func TestStart_ServesBeforeItCanRecord(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		site, st, interrupted := w.live(pages("web")), w.live(service("web")), w.live(service("web"))
		w.program(interrupted.ID, 2, silent)
		w.deploy(interrupted.ID, service("web"))
		synctest.Wait()
		w.stopServer()
		w.db.breaks(func(_ string, events []stack.Event) error {
			if len(events) > 0 {
				return errors.New("the database does not work")
			}
			return nil
		})
		w.startServer()
		synctest.Wait()
		require.Equal(t, 200, w.ask(site, "web"))
		require.Equal(t, toProcess, w.ask(st, "web"))
		w.db.breaks(nil)
		w.reboot()
		for _, s := range []*stack.Stack{site, st, interrupted} {
			w.awaitEvent(s.ID, "stack.restored", 1)
			require.NotContains(t, w.events(s.ID), "stack.failed")
		}
		require.Contains(t, w.get(interrupted.ID).DeployError, "restarted")
		require.True(t, w.answers(interrupted, "web"))
	})
}

// What a full engine has no room for stays in its volume until there is room.
func TestExpiry_DataBecomesAnImageOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.engine.Fill(0)
		st := w.createRunning(limits.TTL, keeping, service("web"))
		w.awaitEvent(st.ID, "stack.expired", 1)
		w.settle()
		data := engine.Key{Stack: st.ID, Service: "web"}.Data()
		require.Equal(t, map[string]string{"kept": st.ID}, w.engine.Volume(data))
		require.Equal(t, 1, w.times("stays in its volume"))
		waits := filepath.Join(w.dir.Stack(st.ID), "web.no-room")
		require.FileExists(t, waits)
		w.stopServer()
		w.engine.Fill(2)
		require.NoError(t, os.Remove(waits))
		w.startServer()
		w.settle()
		require.Equal(t, "E1", w.consistent(st, "with room"))
		require.NoError(t, w.claim(st.ID))
		w.becomes(st.ID, stack.Live)
		require.Equal(t, map[string]string{"kept": st.ID}, w.engine.Volume(data))
	}, func(c *Config) { c.DiskFloor, c.Limits.Retention = 1, time.Hour })
}
