package supervisor

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/internal/admission"
	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/health"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/source/sourcetest"
	"github.com/berth-host/berth/internal/stack"
)

// world is a whole installation on the clock of a synctest bubble: the real
// supervisor, builder and route table, with a store and an engine in memory.
type world struct {
	t      *testing.T
	dir    datadir.Dir
	engine *enginetest.Engine
	driver *enginetest.Driver
	db     *memstore
	sup    *Supervisor

	released chan struct{} // closed by release: what programs and calls of a test wait for
	release  func()

	configure func(*Config) // changes what each server is started with; nil for nothing
	looks     atomic.Int32  // of the firewall

	mu        sync.Mutex
	programs  map[string]enginetest.Program // of services, by stack and generation
	commanded enginetest.Program            // the command make, and the one-off command; nil ends well at once
	trims     enginetest.Program            // what trims build caches; nil ends well at once
	log       strings.Builder               // of all servers so far
}

// node is a runtime whose base image the engine has.
var node = stack.Runtime{Name: "node", Version: "22"}

// postgres is the runtime of a database whose image the engine has.
var postgres = stack.Runtime{Name: "postgres", Version: "17"}

// inWorld runs a test in a world whose server has started, with its settings changed as
// configure does.
func inWorld(t *testing.T, test func(w *world), configure ...func(*Config)) {
	t.Helper()
	inWorldOf(t, enginetest.Options{}, test, configure...)
}

// inWorldOf is inWorld with an engine that has settings.
func inWorldOf(t *testing.T, opts enginetest.Options, test func(w *world), configure ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, opts)
		defer w.close()
		for _, f := range configure {
			w.configure = f
		}
		w.startServer()
		test(w)
	})
}

func newWorld(t *testing.T, opts enginetest.Options) *world {
	t.Helper()
	var bases []string
	for _, r := range []stack.Runtime{node, postgres} {
		base, err := images.Lookup(r.Name, r.Version)
		require.NoError(t, err)
		bases = append(bases, base.Ref())
	}
	dir, err := os.MkdirTemp(worlds, "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	w := &world{t: t, dir: datadir.Dir(dir), db: newMemstore(), programs: map[string]enginetest.Program{}}
	w.engine = enginetest.New(map[string]enginetest.Program{
		"exec serve": w.serve, "infinity": silent, "exec 2>&1\nmake": w.make, "exec 2>&1\nnpm install": w.make, "make": w.make, "./once": w.make, "/cache": w.trim,
		"exec postgres-start": database, "postgres-ready": databaseReady, "postgres-dump": databaseDump,
	}, append(bases, images.Debian)...)
	w.driver = w.engine.Driver(opts)
	w.released = make(chan struct{})
	w.release = sync.OnceFunc(func() { close(w.released) })
	return w
}

// startServer starts a server on what there is in the database and the engine.
func (w *world) startServer() {
	w.t.Helper()
	w.newServer()
	require.NoError(w.t, w.sup.Start(w.t.Context()))
}

// newServer makes a server that has done nothing yet.
func (w *world) newServer() {
	log := slog.New(slog.NewTextHandler(testLog{w}, nil))
	gate := admission.New(admission.Config{
		Stacks: w.db.All, Firewall: walls{w},
		Disks: []admission.Disk{{Free: w.driver.Room}}, Log: log,
	})
	cfg := Config{
		Store:         w.db,
		Engine:        w.driver,
		Builder:       builder.New(builder.Config{Engine: w.driver, Slots: slots, Timeout: 10 * time.Minute, Sites: archive.Limits{}, Log: log}),
		Routes:        &proxy.Routes{},
		URLs:          stack.URLs{Base: &url.URL{Scheme: "http", Host: "localhost"}, AppsDomain: "localhost"},
		Limits:        limits,
		Dir:           w.dir,
		Admission:     gate,
		BuildTimeout:  10 * time.Minute,
		Health:        w.health,
		HealthTimeout: time.Minute,
		Drain:         30 * time.Second,
		CheckEvery:    2 * time.Second,
		LogMax:        10 << 20,
		OrphanGrace:   time.Hour,
		Log:           log,
	}
	if w.configure != nil {
		w.configure(&cfg)
	}
	w.sup = New(cfg)
}

// seldom is how often all processes are checked in worlds in which much time passes: the
// engine reports those that end anyway, and the checks would take most of the test.
const seldom = 10 * time.Second

// slots is how many builds run at once.
const slots = 4

// limits are the settings that operators have unless they change them, with a life that
// a test waits for soon.
var limits = stack.Limits{
	TTL: 3 * time.Minute, TTLMin: time.Second, TTLMax: time.Hour, ExpiryNotice: time.Minute, Retention: 3 * time.Minute,
	UnclaimedPerIP: 100, Crashes: 5, CrashWindow: 10 * time.Minute, Backoff: time.Second, BackoffMax: 30 * time.Second,
}

// stopServer stops the server as SIGTERM does: containers go on.
func (w *world) stopServer() { w.sup.Close() }

func (w *world) close() {
	w.release()
	w.sup.Close()
	w.engine.Close()
}

// testLog writes the server's log to a test's.
type testLog struct{ w *world }

func (l testLog) Write(p []byte) (int, error) {
	l.w.t.Logf("%s %s", time.Now().Format("15:04:05.000"), strings.TrimSpace(string(p)))
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.log.Write(p)
}

// logged reports whether a server's log has a text.
func (w *world) logged(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.log.String(), text)
}

// walls is a firewall that counts how often it is looked at.
type walls struct{ w *world }

func (f walls) Apply(context.Context, []string) error {
	f.w.looks.Add(1)
	return nil
}

// health is health.Wait for programs in memory: one that listens is healthy.
func (w *world) health(ctx context.Context, r health.Request) *health.Failure {
	for {
		changed := w.engine.Changed()
		if w.engine.Connects(r.Addr) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &health.Failure{}
		}
	}
}

// noted is what a program of a world notes for its test. The zero value notes nothing.
type noted[T any] struct {
	mu   sync.Mutex
	last T
}

func (n *noted[T]) set(v T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = v
}

func (n *noted[T]) get() T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// serve is what a service runs: its program, or one that listens until it is to end.
func (w *world) serve(p *enginetest.Process) int {
	w.mu.Lock()
	program := w.programs[variable(p, "STACK_ID")+" "+variable(p, "GENERATION")]
	if program == nil {
		program = w.programs[" "+variable(p, "GENERATION")]
	}
	w.mu.Unlock()
	if program != nil {
		return program(p)
	}
	return listen(p)
}

// make is the command of builds and releases.
func (w *world) make(p *enginetest.Process) int { return w.run(&w.commanded, p) }

// trim is what trims the build caches of a service.
func (w *world) trim(p *enginetest.Process) int { return w.run(&w.trims, p) }

func (w *world) run(which *enginetest.Program, p *enginetest.Process) int {
	w.mu.Lock()
	program := *which
	w.mu.Unlock()
	if program == nil {
		return 0
	}
	return program(p)
}

// listen serves until it is asked to end.
func listen(p *enginetest.Process) int {
	p.Listen(8080)
	select {
	case <-p.Terminated:
	case <-p.Killed:
	}
	return 0
}

// exits is a program that exits with a code at once.
func exits(code int) enginetest.Program { return func(*enginetest.Process) int { return code } }

// silent is a program that never listens.
func silent(p *enginetest.Process) int {
	select {
	case <-p.Terminated:
	case <-p.Killed:
	}
	return 0
}

// variable is one of a process's environment.
func variable(p *enginetest.Process, name string) string {
	for _, pair := range p.Env {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// program says what the processes of a generation run from now on, of all stacks for
// the id ""; nil is listen.
func (w *world) program(id string, generation int, program enginetest.Program) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.programs[fmt.Sprintf("%s %d", id, generation)] = program
}

// command says what the commands make and ./once run from now on.
func (w *world) command(program enginetest.Program) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commanded = program
}

// trimming says what trims build caches from now on.
func (w *world) trimming(program enginetest.Program) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trims = program
}

// service is one of a manifest.
func service(name string) stack.Spec {
	return stack.Spec{Name: name, Runtime: node, Root: ".", Start: "serve"}
}

// pages is a service whose files are published as they are.
func pages(name string) stack.Spec {
	return stack.Spec{Name: name, Runtime: stack.Runtime{Name: stack.Static}, Root: "."}
}

// upload is an unpacked source, each time another one.
func (w *world) upload() *source.Source {
	w.t.Helper()
	return w.uploadOf(map[string]string{"index.html": rand.Text()})
}

// uploadOf is an unpacked source of files.
func (w *world) uploadOf(files map[string]string) *source.Source {
	w.t.Helper()
	dir, err := w.dir.TempDir()
	require.NoError(w.t, err)
	return sourcetest.Make(w.t, dir, files)
}

// create makes a stack that nobody has claimed.
func (w *world) create(specs ...stack.Spec) *stack.Stack {
	w.t.Helper()
	return w.createFor(limits.TTL, specs...)
}

// createFor makes a stack that expires after a time.
func (w *world) createFor(ttl time.Duration, specs ...stack.Spec) *stack.Stack {
	w.t.Helper()
	return w.createRunning(ttl, nil, specs...)
}

// createRunning makes a stack that expires after a time and whose first generation runs a
// program.
func (w *world) createRunning(ttl time.Duration, program enginetest.Program, specs ...stack.Spec) *stack.Stack {
	w.t.Helper()
	st := created(ttl, specs...)
	if program != nil {
		w.program(st.ID, 1, program)
	}
	require.NoError(w.t, w.sup.Create(w.t.Context(), st, w.upload(), nil))
	return st
}

// created returns a stack that is to be created and expires after a time.
func created(ttl time.Duration, specs ...stack.Spec) *stack.Stack {
	now := stack.Now()
	st := stack.New("shop", specs, now)
	st.ExpiresAt, st.ManageTokenHash = now.Add(ttl), []byte("token")
	return st
}

// live makes a stack and waits until it is live.
func (w *world) live(specs ...stack.Spec) *stack.Stack {
	w.t.Helper()
	return w.becomes(w.create(specs...).ID, stack.Live)
}

// served returns the generation that a stack serves. A row says live a moment before.
func (w *world) served(st *stack.Stack) *generation {
	w.t.Helper()
	synctest.Wait()
	g := w.sup.lookup(st.ID).serving()
	require.NotNil(w.t, g)
	return g
}

// deploy asks for another generation of a stack.
func (w *world) deploy(id string, specs ...stack.Spec) {
	w.t.Helper()
	_, err := w.sup.Deploy(w.t.Context(), id, source.Upload{Manifest: &stack.Manifest{Services: specs}, Source: w.upload()}, nil)
	require.NoError(w.t, err)
}

// supersede asks for another generation of a stack in place of the one under way, if any.
func (w *world) supersede(id string, specs ...stack.Spec) error {
	w.t.Helper()
	_, err := w.sup.Deploy(w.t.Context(), id, source.Upload{Manifest: &stack.Manifest{Services: specs}, Source: w.upload(), Supersede: true}, nil)
	return err
}

// restart asks for a restart of a stack's service web.
func (w *world) restart(st *stack.Stack) {
	w.t.Helper()
	_, err := w.sup.Restart(w.t.Context(), st.ID, "web")
	require.NoError(w.t, err)
}

// claim moves a stack into an account.
func (w *world) claim(id string) error {
	_, err := w.sup.Claim(w.t.Context(), id, "acc_ana", "ana@example.com")
	return err
}

// get reads a stack.
func (w *world) get(id string) *stack.Stack {
	w.t.Helper()
	st, err := w.db.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return st
}

// await waits until a condition holds of a stack, and returns the stack.
func (w *world) await(id, what string, holds func(*stack.Stack) bool) *stack.Stack {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 24*time.Hour)
	defer cancel()
	woken, stop := w.db.Watch(id)
	defer stop()
	for {
		st := w.get(id)
		if holds(st) {
			return st
		}
		select {
		case <-woken:
		case <-ctx.Done():
			require.Fail(w.t, "never "+what, "the stack is %s: %s; events: %v", st.Status, st.Error, w.events(id))
		}
	}
}

// becomes waits until a stack has a status and builds nothing.
func (w *world) becomes(id string, status stack.Status) *stack.Stack {
	w.t.Helper()
	return w.await(id, string(status), func(st *stack.Stack) bool { return st.Status == status && st.Deploying == 0 })
}

// serves waits until a generation of a stack is live.
func (w *world) serves(id string, generation int) *stack.Stack {
	w.t.Helper()
	return w.await(id, fmt.Sprintf("live with generation %d", generation), func(st *stack.Stack) bool {
		return st.Status == stack.Live && st.Generation.Number == generation && st.Deploying == 0
	})
}

// events are the types of a stack's events, in order.
func (w *world) events(id string) []string {
	w.t.Helper()
	events := w.db.Events(id)
	types := make([]string, len(events))
	for i, e := range events {
		types[i] = string(e.Type)
	}
	return types
}

// count returns how often a type is among those of events.
func count(types []string, kind string) int {
	n := 0
	for _, t := range types {
		if t == kind {
			n++
		}
	}
	return n
}

// last is the last event of a stack of a type.
func (w *world) last(id, kind string) stack.Event {
	w.t.Helper()
	for _, e := range slices.Backward(w.db.Events(id)) {
		if string(e.Type) == kind {
			return e
		}
	}
	require.Fail(w.t, "no such event", kind)
	return stack.Event{}
}

// awaitEvent waits until a stack has recorded an event of a type so often.
func (w *world) awaitEvent(id, kind string, times int) {
	w.t.Helper()
	w.await(id, fmt.Sprintf("%d × %s", times, kind), func(*stack.Stack) bool { return count(w.events(id), kind) >= times })
}

// runs waits until just these containers run; names are without the stack's part.
func (w *world) runs(st *stack.Stack, names ...string) {
	w.t.Helper()
	want := make([]string, len(names))
	for i, name := range names {
		want[i] = "berth-" + st.Hex() + "-" + name
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
	defer cancel()
	var last []string
	ok := w.engine.Await(ctx, func(running []string) bool {
		last = slices.DeleteFunc(running, func(name string) bool { return !strings.HasPrefix(name, "berth-"+st.Hex()) })
		return slices.Equal(last, want)
	})
	require.True(w.t, ok, "%v run, want %v", last, want)
}

// answers reports whether requests to a service's URL are led to its process, and it
// listens.
func (w *world) answers(st *stack.Stack, service string) bool {
	synctest.Wait() // routes follow the row
	if w.ask(st, service) != toProcess {
		return false
	}
	g := w.served(st)
	return g != nil && w.engine.Connects(g.process(service).addr())
}

// toProcess is what ask returns where the routes lead to a process.
const toProcess = 0

// ask returns the status of what the host itself answers to a request to a service's
// URL.
func (w *world) ask(st *stack.Stack, service string) int {
	if page := w.page(st, service); page != nil {
		return page.Code
	}
	return toProcess
}

// page is what the host itself answers; nil where it asks a process. The client is gone
// already: nobody is called at the addresses in memory.
func (w *world) page(st *stack.Stack, service string) (page *httptest.ResponseRecorder) {
	ctx, cancel := context.WithCancel(w.t.Context())
	cancel()
	res := httptest.NewRecorder()
	defer func() {
		if err := recover(); err != nil {
			require.Equal(w.t, http.ErrAbortHandler, err)
			page = nil
		}
	}()
	w.sup.cfg.Routes.Serve(res, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), w.sup.cfg.URLs.Hostname(st, service))
	return res
}

// crash ends the process of a container, named without the stack's part, with a code.
func (w *world) crash(st *stack.Stack, name string, code int) {
	w.engine.Kill("berth-"+st.Hex()+"-"+name, code)
}

// away makes the engine go away for a while.
func (w *world) away(long time.Duration) {
	w.engine.Leave()
	time.Sleep(long)
	w.engine.Return()
}

// settle waits until what goes on beside the jobs has had its time.
func (w *world) settle() {
	time.Sleep(time.Minute)
	synctest.Wait()
}
