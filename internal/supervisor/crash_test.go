package supervisor

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/docker"
)

func TestExitOf_TellsCodesSignalsAndMemoryApart(t *testing.T) {
	for _, c := range []struct {
		container docker.Container
		says      string
		code      int
	}{
		{docker.Container{ID: "x", ExitCode: 3}, "exited with code 3", 3},
		{docker.Container{ID: "x", ExitCode: 0}, "exited with code 0; a service's process has to keep running", 0},
		{docker.Container{ID: "x", ExitCode: 139}, "was ended by signal SIGSEGV (exit code 139)", 139},
		{docker.Container{ID: "x", ExitCode: 137}, "was ended by signal SIGKILL (exit code 137)", 137},
		{docker.Container{ID: "x", ExitCode: 137, OOMKilled: true}, "ran out of memory and was killed (exit code 137)", 137},
	} {
		how, code := exitOf(c.container)
		if how != c.says || code == nil || *code != c.code {
			t.Errorf("exitOf(%+v) = %q, %v", c.container, how, code)
		}
	}
	if how, code := exitOf(docker.Container{}); !strings.Contains(how, "removed") || code != nil {
		t.Errorf("exitOf(nothing) = %q, %v", how, code)
	}
}

func TestBackoff_DoublesUpToItsBound(t *testing.T) {
	s := &Supervisor{Config: Config{Backoff: time.Second, BackoffMax: 30 * time.Second}}
	for i, want := range []int{1, 2, 4, 8, 16, 30, 30} {
		if got := s.backoff(i + 1); got != time.Duration(want)*time.Second {
			t.Errorf("after crash %d: %s, want %d s", i+1, got, want)
		}
	}
}

func TestRecent_KeepsTheLastLines(t *testing.T) {
	var r recent
	if r.String() != "; it wrote nothing to its log" {
		t.Errorf("of nothing: %q", r.String())
	}
	for range 500 {
		r.add([]byte("old"))
	}
	r.add([]byte("bad \xff byte"))
	lines := strings.Split(r.String(), "\n")
	if len(lines) != recentLines+1 || lines[recentLines] != "bad \uFFFD byte" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}
