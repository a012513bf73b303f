package supervisor

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
)

// talking returns a program that listens, and writes the line "<process> <line>" every
// second, both counted from 0.
func talking() enginetest.Program {
	var started atomic.Int64
	return func(p *enginetest.Process) int {
		p.Listen(8080)
		process := started.Add(1) - 1
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for line := 0; ; line++ {
			p.Print(fmt.Sprintf("%d %d", process, line))
			select {
			case <-tick.C:
			case <-p.Terminated:
				return 0
			case <-p.Killed:
				return 0
			}
		}
	}
}

// said returns how many lines each process of the service web has written into its log.
// It requires that each line is there once, in its process's order.
func (w *world) said(st *stack.Stack) (lines []int) {
	w.t.Helper()
	synctest.Wait()
	text, err := os.ReadFile(w.dir.Log(st.ID, "web", "run"))
	require.NoError(w.t, err)
	for _, line := range regexp.MustCompile(`(?m)Z\+\d+ (\d+) (\d+)$`).FindAllStringSubmatch(string(text), -1) {
		process, err := strconv.Atoi(line[1])
		require.NoError(w.t, err)
		for len(lines) <= process {
			lines = append(lines, 0)
		}
		require.Equal(w.t, strconv.Itoa(lines[process]), line[2], "in the log of process %d:\n%s", process, text)
		lines[process]++
	}
	return lines
}

// Attempts to bring a stack back let go of the services that run, and adopt them again.
func TestAdopt_GoesOnInTheLogWhereTheAttemptBeforeLeftIt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(time.Hour, only("web", talking()), service("web"), service("api"))
		w.becomes(st.ID, stack.Live)
		time.Sleep(10 * time.Second)
		w.stopServer()
		w.crash(st, "api-g1", 1)
		w.engine.Before("Run", func(string) error { return engine.ErrNoSpace })
		time.Sleep(10 * time.Second)
		w.startServer()
		time.Sleep(time.Minute)
		require.Greater(t, w.times("stack not brought back for a fault of the host"), 10)
		w.engine.Before("Run", nil)
		w.awaitEvent(st.ID, "stack.restored", 1)
		time.Sleep(10 * time.Second)
		lines := w.said(st)
		require.Len(t, lines, 1)
		require.GreaterOrEqual(t, lines[0], 90)
	})
}

// A process that another one has replaced writes until it ends, and is followed although
// the stack is brought back meanwhile.
func TestAdopt_KeepsApartTwoProcessesOfOneService(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(time.Hour, only("web", talking()), service("web"), service("api"))
		w.becomes(st.ID, stack.Live)
		time.Sleep(10 * time.Second)
		w.restart(st)
		w.runs(st, "api-g1", "web-g1", "web-g1-r1")
		w.awaitEvent(st.ID, "service.restarted", 1)
		for range 2 {
			w.engine.Disconnect()
			w.crash(st, "api-g1", 1)
			time.Sleep(time.Second)
			w.engine.Return()
			time.Sleep(time.Second)
		}
		w.runs(st, "api-g1", "web-g1-r1")
		time.Sleep(10 * time.Second)
		lines := w.said(st)
		require.Len(t, lines, 2)
		require.GreaterOrEqual(t, lines[0], 13)
		require.GreaterOrEqual(t, lines[1], 14)
	})
}

// marks are the lines of a stack's run logs about the starts and ends of processes, and
// what the host says there, without their times.
func (w *world) marks(st *stack.Stack) string {
	w.t.Helper()
	synctest.Wait()
	var text strings.Builder
	require.NoError(w.t, w.dir.Logs(w.t.Context(), st, "", "run", logfile.View{Tail: 1000, Stamped: true}, &text))
	return strings.Join(regexp.MustCompile(`gen \d+ == .*`).FindAllString(text.String(), -1), "\n")
}

func TestLog_SaysWhereProcessesStartAndEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.deploy(st.ID, service("web"))
		st = w.serves(st.ID, 2)
		time.Sleep(time.Minute)
		w.crash(st, "web-g2", 3)
		w.awaitEvent(st.ID, "service.restarted", 1)
		w.restart(st)
		w.awaitEvent(st.ID, "service.restarted", 2)
		time.Sleep(time.Minute)
		w.stopServer()
		w.crash(st, "web-g2-r1", 4)
		w.startServer()
		w.awaitEvent(st.ID, "stack.restored", 1)
		want := []string{
			"gen 1 == web started",
			"gen 2 == web started",
			"gen 1 == web was stopped by the host: exit code 0",
			"gen 2 == web exited with code 3",
			"gen 2 == restarting in 1s",
			"gen 2 == web started",
			"gen 2 == web is healthy again",
			"gen 2 == restart requested",
			"gen 2 == web started",
			"gen 2 == web was restarted and is healthy",
			"gen 2 == web was stopped by the host: exit code 0",
			"gen 2 == web exited with code 4",
			"gen 2 == web started",
		}
		require.Equal(t, strings.Join(want, "\n"), w.marks(st))
		require.NotContains(t, w.runLog(st), "web started")
		require.NotContains(t, w.runLog(st), "was stopped")
	})
}

func TestLog_SaysHowAProcessEndedThatDidNotGetHealthy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.program(st.ID, 2, exits(4))
		w.deploy(st.ID, service("web"))
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		require.Equal(t, "gen 1 == web started\ngen 2 == web started\ngen 2 == web exited with code 4", w.marks(st))
		w.program(st.ID, 1, exits(5))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 2)
		require.Contains(t, w.marks(st), "gen 1 == web started\ngen 1 == the restart failed: service web: \"serve\" exited with code 5")
		require.Equal(t, 1, strings.Count(w.marks(st), "gen 1 == web exited with code 5"))
	})
}
