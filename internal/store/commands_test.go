package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// addCommand stores a command of a stack that is about to run.
func addCommand(t *testing.T, s *store.Store, id, line string) stack.Command {
	t.Helper()
	c, err := stack.NewCommand(id, "web", "ana@example.com", line)
	if err != nil {
		t.Fatal(err)
	}
	c.StartedAt = stack.Now()
	if err := s.AddCommand(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func commands(t *testing.T, s *store.Store, id string, limit int) []stack.Command {
	t.Helper()
	all, err := s.Commands(t.Context(), id, limit)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (on suite) TestCommands_AreReadNewestFirstAndTheOldOnesGo(t *testing.T) {
	s, _ := on.open(t)
	one, two := create(t, s), create(t, s)
	const kept, extra = 100, 3
	var all []stack.Command
	for n := range kept + extra {
		all = append(all, addCommand(t, s, one.ID, fmt.Sprint("echo ", n)))
	}
	other := addCommand(t, s, two.ID, "echo other")
	slices.Reverse(all)
	if diff := cmp.Diff(all[:kept], commands(t, s, one.ID, 1000)); diff != "" {
		t.Errorf("the commands that are kept:\n%s", diff)
	}
	if diff := cmp.Diff([]stack.Command{other}, commands(t, s, two.ID, 1)); diff != "" {
		t.Errorf("the other stack's:\n%s", diff)
	}
}

func (on suite) TestCommands_KeepHowTheyEnded(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	woken, stop := s.Watch(k.ID)
	defer stop()
	code := 3
	ended, timedOut, running := addCommand(t, s, k.ID, "exit 3"), addCommand(t, s, k.ID, "sleep 1h"), addCommand(t, s, k.ID, "sleep 2h")
	<-woken
	ended.EndedAt, ended.ExitCode = stack.Now(), &code
	timedOut.EndedAt, timedOut.TimedOut = stack.Now(), true
	for _, c := range []stack.Command{ended, timedOut} {
		if err := s.EndCommand(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	<-woken
	if diff := cmp.Diff([]stack.Command{running, timedOut, ended}, commands(t, s, k.ID, 10)); diff != "" {
		t.Errorf("the commands read back differ:\n%s", diff)
	}
	running.EndedAt, running.Error = stack.Now().Add(time.Second), "the server died"
	if err := s.EndCommands(t.Context(), "", running.EndedAt, running.Error); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]stack.Command{running, timedOut, ended}, commands(t, s, k.ID, 10)); diff != "" {
		t.Errorf("once those under way are ended:\n%s", diff)
	}
}

func (on suite) TestCommands_AreSealedAndGoWithTheirStack(t *testing.T) {
	s, db := on.open(t)
	k := create(t, s)
	addCommand(t, s, k.ID, "login --password=tomato")
	if strings.Contains(db.dump(t), "tomato") {
		t.Error("the database has a command as it was sent")
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	addCommand(t, s, k.ID, "late")
	if got := commands(t, s, k.ID, 10); len(got) != 0 {
		t.Errorf("a deleted stack has commands: %+v", got)
	}
}

func (on suite) TestCommands_FaultsNameTheFile(t *testing.T) {
	s, db := on.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	calls := map[string]func() error{
		"AddCommand":  func() error { return s.AddCommand(ctx, stack.Command{}) },
		"EndCommand":  func() error { return s.EndCommand(ctx, stack.Command{}) },
		"EndCommands": func() error { return s.EndCommands(ctx, "", stack.Now(), "") },
		"Commands":    func() error { _, err := s.Commands(ctx, "", 1); return err },
	}
	for name, call := range calls {
		if err := call(); err == nil || !strings.Contains(err.Error(), db.name()) {
			t.Errorf("%s without a database = %v, want an error with the file", name, err)
		}
	}
}
