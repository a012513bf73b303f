// Package integration drives the whole server over HTTP: berthd as a process
// of its own, on the Docker engine of this machine, with Redis in a container.
// Each file follows a section of docs/api.md.
//
// A test calls start, deploys with live or deploy, and leaves the cleaning to
// the harness: when the test ends, every stack is deleted and nothing of the
// installation may be left in the engine or on the disk.
package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/observe"
)

// patience is how long a test waits for an expected event: on a busy machine everything
// takes longer, and a passing test never waits that long.
const patience = 5 * time.Minute

// Host is one berthd with an installation of its own.
type Host struct {
	port     int
	dir      string // data directory
	instance string // on the label of all its objects in the engine
	env      map[string]string
	client   *http.Client
	binary   func() (string, error)
	engine   *dockerd // nil for the engine of this machine

	mu      sync.Mutex
	fails   string   // what BERTH_FAILPOINTS says to the next process
	stacks  []*Stack // that were created and not deleted
	process *process
	log     logFile // of every process so far

	contradictions *observe.Record // between the API and its document
}

// process is one run of the server.
type process struct {
	proc   *os.Process
	exited chan struct{}
	err    error // once it has exited; nil for one that another process has started
}

// Option changes how a server is run.
type Option func(*Host)

// with sets one variable of the server, as in with("BERTH_MAX_BUILDS", "1").
func with(name, value string) Option {
	return func(h *Host) { h.env[name] = value }
}

// asShipped runs the server without the race detector, which needs many times
// the memory and never gives it back.
func asShipped(h *Host) { h.binary = buildShipped }

var started atomic.Int64

// start runs a server until the test ends. Its limits are too generous to be
// met by accident; opts set others.
func start(t *testing.T, opts ...Option) *Host {
	t.Helper()
	h := install(t, opts...)
	h.run(t)
	return h
}

// install prepares an installation without starting its server.
func install(t *testing.T, opts ...Option) *Host {
	t.Helper()
	needBase(t)
	number := started.Add(1)
	h := &Host{port: freePort(t), instance: instanceName(number), dir: t.TempDir(), binary: buildBerthd, log: logFile(filepath.Join(t.TempDir(), "log")), contradictions: &observe.Record{}}
	// If this run is cut off, the instance shows whose objects these are.
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "instance"), []byte(h.instance+"\n"), 0o600))
	h.env = map[string]string{
		"BERTH_ADMIN_LISTEN":     "",
		"BERTH_DATA_DIR":         h.dir,
		"BERTH_LISTEN":           "127.0.0.1:" + strconv.Itoa(h.port),
		"BERTH_BASE_URL":         "http://localhost:" + strconv.Itoa(h.port),
		"BERTH_REDIS_URL":        redisURL(t, number),
		"BERTH_UNCLAIMED_PER_IP": "1000",
		"BERTH_CREATES_PER_HOUR": "100000",
		"BERTH_REFUSED_PER_HOUR": "100000",
		"BERTH_BUILD_ENV_FILE":   buildSetting("BERTH_BUILD_ENV_FILE", "env"),
		"BERTH_BUILD_CA_FILE":    buildSetting("BERTH_BUILD_CA_FILE", "ca.crt"),
	}
	for _, opt := range opts {
		opt(h)
	}
	h.client = h.newClient()
	t.Cleanup(func() { h.end(t) })
	return h
}

// newClient returns a client that finds this server under every host name and does not
// follow redirects.
func (h *Host) newClient() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &http.Client{
		Timeout: patience,
		Transport: &witness{h: h, transport: &http.Transport{
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return h.reach(func() (net.Conn, error) { return dialer.DialContext(ctx, network, h.addr()) })
			},
			DisableCompression: true,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// addr is the address that the server listens on.
func (h *Host) addr() string { return "127.0.0.1:" + strconv.Itoa(h.port) }

// base is the {base_url} of docs/api.md.
func (h *Host) base() string { return h.env["BERTH_BASE_URL"] }

// run starts the server and waits until it answers.
func (h *Host) run(t *testing.T) {
	t.Helper()
	h.awaitAnswer(t, h.spawn(t))
}

// awaitAnswer waits until the server that runs as a process serves.
func (h *Host) awaitAnswer(t *testing.T, p *process) {
	t.Helper()
	eventually(t, "the server answers", func() error {
		select {
		case <-p.exited:
			t.Fatalf("the server ended instead of serving: %v\n%s", p.err, h.log)
		default:
		}
		res, err := h.client.Get(h.base() + "/healthz")
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return errors.Join(fmt.Errorf("it answers %s", res.Status), res.Body.Close())
		}
		return res.Body.Close()
	})
}

// spawn starts the server and does not wait.
func (h *Host) spawn(t *testing.T) *process {
	t.Helper()
	path, err := h.binary()
	require.NoError(t, err)
	cmd := h.engine.beside(path)
	cmd.Env = os.Environ()
	for name, value := range h.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	h.mu.Lock()
	cmd.Env = append(cmd.Env, "BERTH_FAILPOINTS="+h.fails)
	h.mu.Unlock()
	log, err := h.log.open()
	require.NoError(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	require.NoError(t, cmd.Start())
	p := &process{proc: cmd.Process, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	h.mu.Lock()
	h.process = p
	h.mu.Unlock()
	return p
}

// logFile is the path of the file that the server writes its log to, as does each process
// that takes its place. What a process wrote before its end is in it once that is seen.
type logFile string

func (f logFile) open() (*os.File, error) {
	return os.OpenFile(string(f), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// String returns what the file holds, and nothing before the first start.
func (f logFile) String() string {
	text, err := os.ReadFile(string(f))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	return string(text)
}

// failAt says what the next processes do at which failpoints; see package
// failpoint. They do nothing at "".
func (h *Host) failAt(points string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails = points
}

// running is the server's last process.
func (h *Host) running() *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.process
}

// signal sends a signal to the server.
func (h *Host) signal(t *testing.T, sig syscall.Signal) *process {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.NoError(t, h.process.proc.Signal(sig))
	return h.process
}

// stop asks the server to end, as an operator does, and waits until it has.
func (h *Host) stop(t *testing.T) {
	t.Helper()
	p := h.signal(t, syscall.SIGTERM)
	require.NoError(t, p.wait(t), "the server did not end well\n%s", h.log)
}

// kill ends the server as a power cut would.
func (h *Host) kill(t *testing.T) {
	t.Helper()
	_ = h.signal(t, syscall.SIGKILL).wait(t)
}

// restart stops the server and starts the next one on the same installation.
func (h *Host) restart(t *testing.T) {
	t.Helper()
	h.stop(t)
	h.run(t)
}

// wait returns how the process ended.
func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-p.exited:
		return p.err
	case <-time.After(patience):
		t.Fatal("the server does not end")
		return nil
	}
}

// alive reports whether the server's process runs.
func (h *Host) alive() bool {
	p := h.running()
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// end deletes the stacks, asserts that nothing is left of them and stops the
// server.
func (h *Host) end(t *testing.T) {
	t.Helper()
	defer func() {
		if t.Failed() {
			removeObjects(h.docker, h.instance)
			t.Logf("the server's log:\n%s", h.log)
		}
	}()
	if t.Failed() && !h.alive() {
		return
	}
	if !h.alive() {
		h.run(t)
	}
	for _, st := range h.undeleted() {
		h.remove(t, st)
	}
	left := h.objects(t)
	if left != (objects{}) {
		t.Errorf("of stacks that were deleted, this is left: %+v\n%s", left, h.files(t))
	}
	h.client.CloseIdleConnections()
	if text := h.contradictions.String(); text != "" {
		t.Errorf("the document at /openapi.json does not say this:\n%s", text)
	}
	h.stop(t)
	if text := h.log.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") {
		t.Error("the server had a data race or a panic")
	}
}

func (h *Host) undeleted() []*Stack {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*Stack(nil), h.stacks...)
}

func (h *Host) adoptStack(st *Stack) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stacks = append(h.stacks, st)
}

func (h *Host) forgetStack(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.stacks[:0]
	for _, st := range h.stacks {
		if st.ID != id {
			kept = append(kept, st)
		}
	}
	h.stacks = kept
}

// files lists what is in the data directory for stacks and uploads.
func (h *Host) files(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, folder := range []string{"stacks", "uploads"} {
		root := filepath.Join(h.dir, folder)
		err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err == nil && path != root {
				found = append(found, path)
			}
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		})
		require.NoError(t, err)
	}
	return found
}

// freePort finds a port below the kernel's ports for outgoing connections, so that it stays free while the server is down. Runs of these tests at
// the same time begin in different places.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 20000 + (131*os.Getpid()+int(nextPort.Add(1)))%10000 // other runs may be under way
		ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			require.NoError(t, ln.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

var nextPort atomic.Int64

// eventually repeats try until it returns nil. Its last error is the failure.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	observe.Eventually(t, patience, what, try)
}
