package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/operator"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func runStacks(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return berthd(t, t.TempDir(), append([]string{"stacks"}, args...)...)
}

// giveTo makes a node the owner of a stack.
func giveTo(t *testing.T, s *store.Store, id, node string) {
	t.Helper()
	if _, err := s.Update(t.Context(), id, func(k *stack.Stack) ([]stack.Event, error) { k.Node, k.Epoch = node, k.Epoch+1; return nil, nil }); err != nil {
		t.Fatal(err)
	}
}

func TestStacksShow_SaysWhichNodeHasItAndWhereDataIsLeft(t *testing.T) {
	s := ofCluster(t)
	k := placeStack(t, s, "n3")
	giveTo(t, s, k.ID, "n1")
	if err := s.MarkRemains(t.Context(), k.ID, "n3", []string{"web"}); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := runStacks(t, "show", k.ID, "--json")
	if err != nil {
		t.Fatal(stderr)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	left := []any{map[string]any{"stack": k.ID, "node": "n3", "volumes": []any{"web"}}}
	want := map[string]any{"id": k.ID, "name": "shop", "status": "building", "node": "n1", "epoch": 1.0, "data_left": left}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	line := "Node twin has data of the stack " + k.ID + ", which it does not own: web."
	for _, args := range [][]string{{"stacks", "show", k.ID}, {"nodes"}} {
		if stdout, stderr, err := berthd(t, t.TempDir(), args...); err != nil || !strings.Contains(stdout, line) {
			t.Errorf("%q: %v %s\n%s", args, err, stderr, stdout)
		}
	}
}

// moving runs a move in the background, until it is asked for.
func moving(t *testing.T, s *store.Store, args ...string) (asked store.Move, done <-chan error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, stderr, err := runStacks(t, append([]string{"move"}, args...)...)
		if err != nil {
			err = errors.New(stderr)
		}
		ended <- err
	}()
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if m, ok, err := s.MoveOf(t.Context(), args[0]); ok || err != nil {
			return m, ended
		}
		if len(ended) > 0 {
			t.Fatal("no move is asked for", <-ended)
		}
	}
	t.Fatal("no move is asked for within a minute")
	return
}

func TestStacksMove_WaitsUntilTheNodeHasIt(t *testing.T) {
	s := ofCluster(t)
	k := placeStack(t, s, "n1")
	m, done := moving(t, s, k.ID, "n3")
	if m.Target != "n3" || m.Error != "" {
		t.Errorf("asked is %+v", m)
	}
	time.Sleep(time.Second)
	if len(done) > 0 {
		t.Fatal("it returned while the stack was at its node", <-done)
	}
	giveTo(t, s, k.ID, "n3")
	if err := s.EndMove(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, stderr, err := runStacks(t, "move", k.ID, "n3"); err != nil {
		t.Errorf("to the node that has it: %s", stderr)
	}
}

func TestStacksMove_SaysWhyItFailed(t *testing.T) {
	s := ofCluster(t)
	k := placeStack(t, s, "n1")
	m, done := moving(t, s, k.ID, "n3")
	if err := s.FailMove(t.Context(), m, "no room there"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || err.Error() != "berthd: the stack "+k.ID+" did not move to twin: no room there\n" {
		t.Error(err)
	}
	if m, ok, err := s.MoveOf(t.Context(), k.ID); ok || err != nil {
		t.Errorf("left is %+v, %v", m, err)
	}
	_, done = moving(t, s, k.ID, "n3")
	if err := endLease(t, s, "n1"); err != nil {
		t.Fatal(err)
	}
	if err := s.LoseNode(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "node w1, which has the stack, is lost") {
		t.Error(err)
	}
}

func TestStacks_SayWhatIsWrong(t *testing.T) {
	s := ofCluster(t)
	here, away := placeStack(t, s, "n1"), placeStack(t, s, "n2")
	for args, want := range map[string]string{
		"show stk_ffffffffffff":         `there is no stack "stk_ffffffffffff"`,
		"show":                          "takes the id of one stack",
		"move " + here.ID:               "takes the id of a stack, and the hostname or id of a node",
		"move stk_ffffffffffff n3":      `there is no stack "stk_ffffffffffff"`,
		"move " + here.ID + " w9":       `there is no node "w9"`,
		"move " + here.ID + " twin":     "2 nodes are called twin",
		"move " + here.ID + " w2":       "node w2 is away, so no stack can move there",
		"move " + away.ID + " n1":       "node w2, which has the stack, is away",
		"carry":                         `has no command "carry"`,
		"show x --cluster off":          "no berthd is running on /",
		"list":                          "no berthd is running on /",
		"stop " + here.ID:               "no berthd is running on /",
		"delete --yes " + here.ID:       "no berthd is running on /",
		"move " + here.ID + " n1 extra": "takes the id of a stack",
	} {
		stdout, stderr, err := runStacks(t, strings.Fields(args)...)
		if err == nil || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: stdout %q, stderr %q, %v, want one line with %q", args, stdout, stderr, err, want)
		}
	}
}

func TestStackLine_SaysThatAStackIsNotServedYet(t *testing.T) {
	for want, s := range map[string]operator.Stack{
		"\tlive\t":             {Status: "live", NodeState: "ready"},
		"\tlive (restoring)\t": {Status: "live", Restoring: true},
		"\tlive (node lost)\t": {Status: "live", NodeState: "lost", Restoring: true},
	} {
		if line := stackLine(&s, false); !strings.Contains(line, want) {
			t.Errorf("%q does not have %q", line, want)
		}
	}
}

func TestStackLine_HasTheNodeInACluster(t *testing.T) {
	line := strings.Split(stackLine(&operator.Stack{Node: "n1", NodeName: "w1"}, true), "\t")
	if titles := strings.Split(stackTitles(true), "\t"); len(line) != len(titles) || line[slices.Index(titles, "NODE")] != "w1" {
		t.Errorf("%q has other cells than %q", line, titles)
	}
}
