package supervisor

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// served is a generation that is served and has the process p, which has ended.
func served(t *testing.T, s *Supervisor, st *stack.Stack) (g *generation, p *process) {
	t.Helper()
	s.cfg.Engine = fakeEngine(t, &atomic.Bool{})
	r := s.runner(st.ID)
	g = r.generation(st, st.Generation, st.Services)
	p = newTestProcess(g)
	r.swapServed(g)
	r.route(st, g)
	return g, p
}

func TestHandleEnd_WithdrawsTheAddressWhateverTheDatabaseDoes(t *testing.T) {
	s, st := withStack(t)
	_, p := served(t, s, st)
	target := p.gen.target("web")
	breakDatabase(t, s)
	p.gen.runner.log = slog.New(onLog(func(message string) {
		if strings.Contains(message, "the database does not work") {
			if s.cfg.Routes.Withdraw(st.Hex(), target) {
				t.Error("requests go to the address of the dead process while the database does not work")
			}
			p.gen.runner.cancel()
		}
	}))
	if p.handleEnd(p.gen.runner.ctx) {
		t.Error("the process is watched although its stack ended")
	}
}

func TestLost_WithdrawsTheAddressesOfWhatEndedWithTheEngine(t *testing.T) {
	s, st := withStack(t)
	g, p := served(t, s, st)
	target := p.gen.target("web")
	if !g.hasLostProcess(t.Context(), 1) {
		t.Error("the generation did not lose the process that ended")
	}
	if s.cfg.Routes.Withdraw(st.Hex(), target) {
		t.Error("requests go to the address of the dead process")
	}
}

func TestExitOf_TellsCodesSignalsAndMemoryApart(t *testing.T) {
	for _, c := range []struct {
		container engine.Container
		says      string
		code      int
	}{
		{engine.Container{ID: "x", ExitCode: 3}, "exited with code 3", 3},
		{engine.Container{ID: "x", ExitCode: 0}, "exited with code 0; a service's process has to keep running", 0},
		{engine.Container{ID: "x", ExitCode: 139}, "was ended by signal SIGSEGV (exit code 139)", 139},
		{engine.Container{ID: "x", ExitCode: 137}, "was ended by signal SIGKILL (exit code 137)", 137},
		{engine.Container{ID: "x", ExitCode: 137, OOMKilled: true}, "ran out of memory and was killed (exit code 137)", 137},
	} {
		how, code := exitOf(c.container)
		if how != c.says || code == nil || *code != c.code {
			t.Errorf("exitOf(%+v) = %q, %v", c.container, how, code)
		}
	}
	if how, code := exitOf(engine.Container{}); !strings.Contains(how, "removed") || code != nil {
		t.Errorf("exitOf(nothing) = %q, %v", how, code)
	}
}

func TestEndOf_IsTheLastLines(t *testing.T) {
	last := newLastLines()
	if endOf(last) != "; it wrote nothing to its log" {
		t.Errorf("of nothing: %q", endOf(last))
	}
	for range 500 {
		fmt.Fprintln(last, "old")
	}
	fmt.Fprintln(last, "bad \xff byte")
	lines := strings.Split(endOf(last), "\n")
	if len(lines) != keptLines+1 || lines[keptLines] != "bad \uFFFD byte" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}
