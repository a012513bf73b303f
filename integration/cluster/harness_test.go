package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/observe"
)

const (
	// patience is how long a test waits for an expected event. A passing test never waits
	// that long.
	patience = 3 * time.Minute

	// baseURL is the {base_url} of docs/api.md, on every node.
	baseURL = "http://berth.test:8080"
)

// Cluster is one installation on the nodes of the lab.
type Cluster struct {
	lab    *Lab
	number int64
	dir    string // data directory, on each node
	env    map[string]string
	hosts  []*Host

	clustered bool // the servers are one cluster

	mu     sync.Mutex
	stacks []*Stack // that were created and not deleted
}

// Host is the berthd of one node.
type Host struct {
	c      *Cluster
	node   *Node
	env    map[string]string // besides the cluster's
	client *http.Client
	log    *observe.Record // of every process so far

	program  string // its file in /opt/berth
	database string // in PostgreSQL; "" for SQLite

	process *Process // the last one
	fails   string   // what BERTH_FAILPOINTS says to the next process
}

// Option changes how the servers are run.
type Option func(*Cluster)

// with sets one variable of every server.
func with(name, value string) Option {
	return func(c *Cluster) { c.env[name] = value }
}

var installed atomic.Int64

// install prepares an installation of three nodes, without starting its servers. When the
// test ends, its stacks are deleted and nothing of it may be left on any node.
func install(t *testing.T, opts ...Option) *Cluster {
	t.Helper()
	number := installed.Add(1)
	c := &Cluster{lab: theLab(t), number: number, dir: fmt.Sprintf("/var/lib/berth/%d", number)}
	c.env = map[string]string{
		"BERTH_ADMIN_LISTEN":      "",
		"BERTH_BASE_URL":          baseURL,
		"BERTH_CLAIMS_PER_MINUTE": "1000",
		"BERTH_CREATES_PER_HOUR":  "100000",
		"BERTH_DATA_DIR":          c.dir,
		"BERTH_LISTEN":            ":8080",
		"BERTH_REDIS_URL":         fmt.Sprintf("redis://valkey:6379/%d", number),
		"BERTH_REFUSED_PER_HOUR":  "100000",
		"BERTH_TTL_MIN":           "1s",
		"BERTH_UNCLAIMED_PER_IP":  "1000",
		"GORACE":                  "atexit_sleep_ms=0",
	}
	for _, n := range c.lab.Nodes {
		c.hosts = append(c.hosts, &Host{c: c, node: n, env: map[string]string{}, client: clientOf(n), log: &observe.Record{}, program: "berthd"})
	}
	for _, opt := range opts {
		opt(c)
	}
	t.Cleanup(func() { c.end(t) })
	c.createDatabases(t)
	if c.clustered {
		c.shareKey(t)
	}
	return c
}

// start runs a server on every node until the test ends.
func start(t *testing.T, opts ...Option) *Cluster {
	t.Helper()
	c := install(t, opts...)
	for _, h := range c.hosts {
		h.spawn(t)
	}
	for _, h := range c.hosts {
		h.awaitAnswer(t)
	}
	return c
}

// on returns the server of a node.
func (c *Cluster) on(name string) *Host {
	return c.hosts[slices.IndexFunc(c.hosts, func(h *Host) bool { return h.node.Name == name })]
}

// clientOf returns a client that finds the node under every host name and does not follow
// redirects.
func clientOf(n *Node) *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Client{
		Timeout: 2 * time.Minute, // longer than wait=true holds an answer
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, n.AddressOf(8080).String())
			},
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// variables are those of the node's programs.
func (h *Host) variables() map[string]string {
	all := map[string]string{"BERTH_FAILPOINTS": h.fails}
	for _, env := range []map[string]string{h.c.env, h.env} {
		for name, value := range env {
			all[name] = value
		}
	}
	return all
}

// spawn starts the server and does not wait.
func (h *Host) spawn(t *testing.T) {
	t.Helper()
	p, err := h.node.Begin(context.Background(), h.variables(), h.log, h.program)
	require.NoError(t, err)
	h.process = p
	h.client.CloseIdleConnections() // they may lead to the process before
}

// run starts the server and waits until it answers.
func (h *Host) run(t *testing.T) {
	t.Helper()
	h.spawn(t)
	h.awaitAnswer(t)
}

// awaitAnswer waits until the server serves.
func (h *Host) awaitAnswer(t *testing.T) {
	t.Helper()
	eventually(t, "the server on "+h.node.Name+" answers", func() error {
		if !h.process.Alive() {
			t.Fatalf("the server on %s ended instead of serving:\n%s", h.node.Name, h.log)
		}
		if r := h.get(t, "/healthz"); r.status != http.StatusOK {
			return fmt.Errorf("it answers %s", r)
		}
		return nil
	})
}

// stop asks the server to end, as an operator does, and waits until it has.
func (h *Host) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, h.process.Signal(context.Background(), "TERM"))
	require.Equal(t, 0, h.wait(t), "the server on %s did not end well\n%s", h.node.Name, h.log)
}

// kill ends the server as kill -9 does.
func (h *Host) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, h.process.Signal(context.Background(), "KILL"))
	h.wait(t)
}

// wait returns the exit code of the server once it has ended.
func (h *Host) wait(t *testing.T) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	code, err := h.process.Wait(ctx)
	require.NoError(t, err)
	return code
}

// berthd runs a command of berthd on the node and returns what it prints.
func (h *Host) berthd(t *testing.T, args ...string) string {
	t.Helper()
	var out observe.Record
	p, err := h.node.Begin(context.Background(), h.variables(), &out, "berthd", args...)
	require.NoError(t, err)
	code, err := p.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, 0, code, "berthd %q: %s", args, &out)
	return out.String()
}

// account creates an account and returns its API key.
func (h *Host) account(t *testing.T, email string) (key string) {
	t.Helper()
	key = keys.FindString(h.berthd(t, "account", "create", email))
	require.NotEmpty(t, key)
	return key
}

var keys = regexp.MustCompile(`as_live_\w+`)

func (c *Cluster) adopt(st *Stack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stacks = append(c.stacks, st)
}

func (c *Cluster) forget(st *Stack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stacks = slices.DeleteFunc(c.stacks, func(s *Stack) bool { return s.ID == st.ID })
}

func (c *Cluster) undeleted() []*Stack {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.stacks)
}

// restore brings every machine of the lab back to work.
func (l *Lab) restore(ctx context.Context) error {
	var errs []error
	for _, m := range l.Machines() {
		errs = append(errs, m.Restore(ctx))
	}
	for _, n := range l.Nodes {
		errs = append(errs, n.Heal(ctx), n.StartEngine(ctx))
	}
	return errors.Join(append(errs, l.awaitSwarm(ctx))...)
}

// end deletes the stacks, asserts that nothing is left of them on any node, and stops the
// servers.
func (c *Cluster) end(t *testing.T) {
	t.Helper()
	defer c.clean(t)
	require.NoError(t, c.lab.restore(context.Background()))
	if t.Failed() {
		return
	}
	c.mend(t)
	for _, st := range c.undeleted() {
		c.remove(t, st)
	}
	for _, h := range c.hosts {
		h.hasNothing(t)
	}
	for _, h := range c.hosts {
		h.stop(t)
	}
}

// mend starts every server that does not run.
func (c *Cluster) mend(t *testing.T) {
	t.Helper()
	for _, h := range c.hosts {
		h.fails = ""
		if h.process == nil || !h.process.Alive() {
			h.spawn(t)
		}
	}
	for _, h := range c.hosts {
		h.awaitAnswer(t)
	}
}

// remove deletes a stack through the first node that knows it, again while that cannot.
func (c *Cluster) remove(t *testing.T, st *Stack) {
	t.Helper()
	eventually(t, "stack "+st.ID+" is deleted", func() error {
		for _, h := range c.hosts {
			r := h.delete(t, st)
			switch r.status {
			case http.StatusOK:
				return nil
			case http.StatusNotFound, http.StatusForbidden:
			case http.StatusBadGateway, http.StatusServiceUnavailable:
				return fmt.Errorf("through %s: %s", h.node.Name, r)
			default:
				t.Errorf("stack %s is not deleted through %s: %s", st.ID, h.node.Name, r)
			}
		}
		return nil
	})
}

// clean removes what the installation has on the nodes, whatever happened.
func (c *Cluster) clean(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	for _, h := range c.hosts {
		if h.process != nil && h.process.Alive() {
			_ = h.process.Signal(ctx, "KILL")
			_, _ = h.process.Wait(ctx)
		}
		h.client.CloseIdleConnections()
		_, err := h.node.Machine.Run(ctx, "", "rm", "-rf", c.dir)
		if err = errors.Join(err, h.node.removeStacks(ctx)); err != nil {
			t.Errorf("%s is not as it was: %v", h.node.Name, err)
		}
		text := h.log.String()
		if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
			t.Errorf("the server on %s had a data race or a panic", h.node.Name)
		}
		if t.Failed() {
			t.Logf("the log of %s:\n%s", h.node.Name, text)
		}
	}
	if err := c.dropDatabases(); err != nil {
		t.Error(err)
	}
}

// eventually repeats try until it returns nil. Its last error is the failure.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	observe.Eventually(t, patience, what, try)
}

// long skips a test that takes more than some seconds, unless BERTH_CLUSTER_TESTS is all,
// as make cluster-test sets it.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("BERTH_CLUSTER_TESTS") != "all" {
		t.Skip("it takes long; make cluster-test runs it")
	}
}

// lacks skips a test because of something that this machine does not have. With
// BERTH_REQUIRE_ENGINE=1, which make test sets, the test fails.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("BERTH_REQUIRE_ENGINE") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// same returns an error unless two texts are the same.
func same(want, got string) error {
	if want != got {
		return fmt.Errorf("it is %q instead of %q", got, want)
	}
	return nil
}

// last returns the last of some things.
func last[T any](all []T) T { return all[len(all)-1] }
