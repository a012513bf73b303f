package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/store/postgrestest"
)

// ofCluster returns a cluster's database with the nodes w1 and w2, of which the second is
// away, and two nodes called twin; and the settings for a command.
func ofCluster(t *testing.T) *store.Store {
	t.Helper()
	address := postgrestest.Shared(t).Database(t)
	for name, value := range map[string]string{
		"BERTH_CLUSTER": "swarm", "BERTH_DATABASE_URL": address, "BERTH_REDIS_URL": "redis://localhost", "BERTH_KEY_FILE": "/nowhere",
	} {
		t.Setenv(name, value)
	}
	s, err := store.Open(t.Context(), store.Options{Postgres: address, Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Install(t.Context(), store.Installation{ID: "i", Cluster: "swarm"}); err != nil {
		t.Fatal(err)
	}
	for id, name := range map[string]string{"n1": "w1", "n2": "w2", "n3": "twin", "n4": "twin"} {
		if _, err := s.RegisterNode(t.Context(), store.Node{ID: id, Name: name, Address: id + ":8443", Version: "v1", Holder: "a"}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := endLease(t, s, "n2"); err != nil {
		t.Fatal(err)
	}
	return s
}

// endLease takes the lease of a node for no time, so that it is over at once.
func endLease(t *testing.T, s *store.Store, node string) error {
	t.Helper()
	_, err := s.RenewLease(t.Context(), store.Node{ID: node, Holder: "a"}, 0)
	return err
}

// runNodes runs a command about nodes. It returns what it printed.
func runNodes(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return berthd(t, t.TempDir(), append([]string{"nodes"}, args...)...)
}

// placeStack stores a stack of a node.
func placeStack(t *testing.T, s *store.Store, node string) *stack.Stack {
	t.Helper()
	k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Node = node
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNodes_PrintsJSON(t *testing.T) {
	s := ofCluster(t)
	placeStack(t, s, "n2")
	stdout, stderr, err := runNodes(t, "--json")
	if err != nil {
		t.Fatal(stderr)
	}
	var got []map[string]any
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got) != 4 {
		t.Fatalf("%s: %v", stdout, err)
	}
	want := map[string]any{"id": "n2", "name": "w2", "address": "n2:8443", "state": "away", "availability": "active", "version": "v1", "stacks": 1.0}
	if diff := cmp.Diff(want, got[3]); diff != "" {
		t.Error(diff)
	}
	if stdout, _, err = runNodes(t); err != nil || !strings.Contains(stdout, "NAME") || strings.Count(stdout, "\n") != 5 {
		t.Errorf("%v\n%s", err, stdout)
	}
}

func TestNodesDrain_WaitsUntilNoStackIsLeft(t *testing.T) {
	s := ofCluster(t)
	k := placeStack(t, s, "n1")
	done := make(chan error, 1)
	go func() {
		_, stderr, err := runNodes(t, "drain", "w1")
		if err != nil {
			err = errors.New(stderr)
		}
		done <- err
	}()
	for {
		nodes, err := s.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if nodes[2].ID == "n1" && nodes[2].Draining {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(done) > 0 {
		t.Fatal("it returned while the node had a stack", <-done)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { k.Node = "n3"; return nil, nil }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if stdout, _, _ := runNodes(t, "--json"); !strings.Contains(stdout, `"availability":"drain"`) {
		t.Error(stdout)
	}
	if _, stderr, err := runNodes(t, "activate", "n1"); err != nil {
		t.Error(stderr)
	}
	if stdout, _, _ := runNodes(t, "--json"); strings.Contains(stdout, `"availability":"drain"`) {
		t.Error(stdout)
	}
}

// drainBroken drains n1, which has a stack, lets something happen to the node meanwhile, and
// returns what the command says.
func drainBroken(t *testing.T, meanwhile func(*store.Store) error) (stderr string) {
	t.Helper()
	s := ofCluster(t)
	placeStack(t, s, "n1")
	done := make(chan string, 1)
	go func() {
		_, stderr, _ := runNodes(t, "drain", "w1")
		done <- stderr
	}()
	for draining := false; !draining; time.Sleep(50 * time.Millisecond) {
		nodes, err := s.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		draining = nodes[2].Draining
	}
	if err := meanwhile(s); err != nil {
		t.Fatal(err)
	}
	return <-done
}

func TestNodesDrain_SaysThatTheNodeIsLost(t *testing.T) {
	stderr := drainBroken(t, func(s *store.Store) error {
		return errors.Join(endLease(t, s, "n1"), s.LoseNode(t.Context(), "n1"))
	})
	if !strings.Contains(stderr, "node w1 is lost by now, and has 1 stacks left") {
		t.Error(stderr)
	}
}

func TestNodesDrain_EndsWhenTheNodeIsActivated(t *testing.T) {
	stderr := drainBroken(t, func(s *store.Store) error { return s.DrainNode(t.Context(), "n1", false) })
	if !strings.Contains(stderr, "node w1 was activated meanwhile, and keeps its 1 stacks") {
		t.Error(stderr)
	}
}

func TestNodesActivate_SaysThatSwarmKeepsStacksAway(t *testing.T) {
	s := ofCluster(t)
	for _, tt := range []struct{ availability, label, want string }{
		{"drain", "", "node w1 gets no new stacks yet, since its availability in Swarm is drain; change that with: docker node update --availability active n1\n"},
		{"pause", "", "node w1 gets no new stacks yet, since its availability in Swarm is pause; change that with: docker node update --availability active n1\n"},
		{"active", "no", "node w1 gets no new stacks yet, since it has the label berth.place=no in Swarm; change that with: docker node update --label-rm berth.place n1\n"},
	} {
		word := store.Word{ID: "n1", State: "ready", Availability: tt.availability, Labels: map[string]string{"berth.place": tt.label}}
		if err := s.TakeWord(t.Context(), word, 0); err != nil {
			t.Fatal(err)
		}
		_, stderr, err := runNodes(t, "activate", "w1")
		if err == nil || !strings.HasSuffix(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v, stderr %q, want %q", err, stderr, tt.want)
		}
	}
}

func TestNodes_SayWhyAStackHasNotLeft(t *testing.T) {
	s := ofCluster(t)
	k := placeStack(t, s, "n1")
	if err := s.NoteStuck(t.Context(), k.ID, "n3", "the registry does not answer"); err != nil {
		t.Fatal(err)
	}
	said := func() bool {
		stdout, stderr, err := runNodes(t)
		if err != nil {
			t.Fatal(stderr)
		}
		return strings.Contains(stdout, "Node w1 has not moved the stack "+k.ID+" yet, and tries again: the registry does not answer\n")
	}
	if said() {
		t.Error("said of a node that is not being drained")
	}
	if err := s.DrainNode(t.Context(), "n1", true); err != nil {
		t.Fatal(err)
	}
	if !said() {
		t.Error("not said")
	}
}

func TestNodesLost_GivesUpOneThatIsAway(t *testing.T) {
	ofCluster(t)
	if _, stderr, err := runNodes(t, "lost", "w2"); err != nil {
		t.Fatal(stderr)
	}
	if stdout, _, _ := runNodes(t, "--json"); !strings.Contains(stdout, `"state":"lost"`) {
		t.Error(stdout)
	}
	if _, stderr, err := runNodes(t, "drain", "w2"); err == nil || !strings.Contains(stderr, "node w2 is lost, so it cannot move its stacks; start its berthd") {
		t.Errorf("%v, stderr %q", err, stderr)
	}
}

func TestNodes_SayWhatIsWrong(t *testing.T) {
	ofCluster(t)
	for args, want := range map[string]string{
		"lost w1":       "node w1 is ready, so it is not lost",
		"drain w2":      "node w2 is away",
		"drain twin":    "2 nodes are called twin; use the id of one: n3, n4",
		"activate w9":   `there is no node "w9"; the nodes are twin, twin, w1, w2`,
		"drain":         "takes the hostname or id of one node",
		"drain w1 w2":   "takes the hostname or id of one node",
		"remove w1":     `has no command "remove"`,
		"--cluster off": "BERTH_CLUSTER=swarm",
	} {
		stdout, stderr, err := runNodes(t, strings.Fields(args)...)
		if err == nil || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: stdout %q, stderr %q, %v, want one line with %q", args, stdout, stderr, err, want)
		}
	}
}
