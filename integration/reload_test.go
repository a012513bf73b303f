package integration

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reloaded is what the server's log says of a process that has taken the place of another.
type reloaded struct {
	Msg  string
	PID  int
	Took string // the time for which requests had to wait
}

func (h *Host) reloads(t *testing.T) (all []reloaded) {
	t.Helper()
	for line := range strings.Lines(h.log.String()) {
		var entry reloaded
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "reloaded" {
			all = append(all, entry)
		}
	}
	return all
}

// waits are the times for which requests had to wait at each reload, the shortest first.
func (h *Host) waits(t *testing.T) (all []time.Duration) {
	t.Helper()
	for _, r := range h.reloads(t) {
		took, err := time.ParseDuration(r.Took)
		require.NoError(t, err)
		all = append(all, took)
	}
	slices.Sort(all)
	return all
}

// hangUp asks the server to be replaced.
func (h *Host) hangUp(t *testing.T) { h.signal(t, syscall.SIGHUP) }

// reload has another process take the server's place, and waits until the one before has ended,
// and with it the connections that nobody has used since.
func (h *Host) reload(t *testing.T) {
	t.Helper()
	before := len(h.reloads(t))
	h.hangUp(t)
	h.awaitReload(t, before)
	h.client.CloseIdleConnections()
}

// awaitReload waits until another process has taken the server's place, after some others had.
func (h *Host) awaitReload(t *testing.T, before int) {
	t.Helper()
	var all []reloaded
	eventually(t, "another process takes the server's place", func() error {
		if all = h.reloads(t); len(all) <= before {
			return fmt.Errorf("%d have", len(all))
		}
		return nil
	})
	old := h.running()
	proc, err := os.FindProcess(all[before].PID)
	require.NoError(t, err)
	p := &process{proc: proc, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		for !hasExited(proc.Pid) {
			time.Sleep(20 * time.Millisecond)
		}
	}()
	h.mu.Lock()
	h.process = p
	h.mu.Unlock()
	require.NoError(t, old.wait(t), "the process before did not end well\n%s", h.log)
}

// hasExited reports whether a process has ended, which nobody may have waited for.
func hasExited(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// copied runs the server from a program of its own, which a test may replace.
func copied(t *testing.T) (path string, opt Option) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "berthd")
	return path, func(h *Host) {
		binary, err := h.binary()
		require.NoError(t, err)
		content, err := os.ReadFile(binary)
		require.NoError(t, err)
		replaceProgram(t, path, content)
		h.binary = func() (string, error) { return path, nil }
	}
}

// replaceProgram replaces a program as a package manager does.
func replaceProgram(t *testing.T, path string, content []byte) {
	t.Helper()
	next := path + ".new"
	require.NoError(t, os.WriteFile(next, content, 0o755))
	require.NoError(t, os.Rename(next, path))
}

// A service, the API and a page are asked all the time while the server is replaced again and
// again: BERTH_TEST_RELOADS=20 and BERTH_TEST_REQUESTS=100000 for the full figure.
func TestReload_UnderLoadLosesNoRequest(t *testing.T) {
	t.Parallel()
	reloads, requests := wanted(t, "BERTH_TEST_RELOADS", 5), wanted(t, "BERTH_TEST_REQUESTS", 3000)
	opts := []Option{with("BERTH_DRAIN", drainOfLoad.String()), reachesLoopback}
	if reloads > 5 {
		opts = append(opts, asShipped)
	}
	h := start(t, opts...)
	r := newHook(t)
	st := h.live(t, program(t), manifest("name: app\nnotify: {webhook: '"+r.url+"'}\nservices: [{name: web, runtime: node, start: node server.js}]"))
	l := &load{h: h, service: "web", st: st, conns: wanted(t, "BERTH_TEST_CONNS", 0)}
	l.switched.Store(1)
	began := h.startOf(t, st, "web")
	stop := l.begin(t)
	client := h.newClient()
	ask := func(path, token string, want int) {
		req := h.request(t, http.MethodGet, path, nil, "Authorization", "Bearer "+token)
		res, err := client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			err = errors.Join(err, res.Body.Close())
		}
		if err == nil && res.StatusCode != want {
			err = fmt.Errorf("GET %s: %s", path, res.Status)
		}
		if err != nil {
			l.fail(err)
		}
		l.requests.Add(1)
	}
	ended, halt := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-halt:
				return
			default:
			}
			ask("/v0/stacks/"+st.ID, st.ManageToken, http.StatusOK)
			ask("/", "", http.StatusOK)
		}
	}()
	begun := time.Now()
	for n := 0; n < reloads || l.requests.Load() < int64(requests); n++ {
		h.reload(t)
		h.client.CloseIdleConnections()              // which the process before has closed
		h.extend(t, st, fmt.Sprintf("%dm", 30+n%20)) // an event between any two
	}
	close(halt)
	<-ended
	stop()
	n := len(h.reloads(t))
	t.Logf("%d reloads and %d requests, %d streams, %d messages in %s: %d failed",
		n, l.requests.Load(), l.streams.Load(), l.messages.Load(), time.Since(begun).Round(time.Second), l.failed.Load())
	waits := h.waits(t)
	t.Logf("requests waited for %s", waits)
	// The race detector and other tests multiply what is well below a second, at some more than at others.
	require.Less(t, waits[0], 10*time.Second)
	require.NotContains(t, h.log.String(), "requests cut for the reload")
	if first := l.first.Load(); first != nil {
		t.Errorf("%d failed; the first: %v", l.failed.Load(), *first)
	}
	events := h.events(t, st)
	require.Zero(t, count(events, "stack.restored"), "a reload is not a restart")
	require.Zero(t, count(events, "service.crashed"))
	require.Equal(t, n, count(events, "stack.extended"))
	require.Equal(t, began, h.startOf(t, st, "web"), "the process was not touched")
	r.await(t, len(events), func(delivered) bool { return true })
	seen := map[string]int{}
	for _, d := range r.attempts() {
		seen[d.id()]++
	}
	for id, times := range seen {
		require.Equal(t, 1, times, "event %s was delivered more than once", id)
	}
	require.Len(t, seen, len(events))
}

// startOf is when the process of a service was started, as the engine says.
func (h *Host) startOf(t *testing.T, st *Stack, service string) string {
	t.Helper()
	return h.inspect(t, st, service).State.StartedAt
}

// notes waits until the server's log has a text n times.
func (h *Host) notes(t *testing.T, n int, text string) {
	t.Helper()
	eventually(t, "the log says "+text, func() error {
		if found := strings.Count(h.log.String(), text); found < n {
			return fmt.Errorf("it does %d times", found)
		}
		return nil
	})
}

func TestReload_KeepsLimitsRetriesAndStreams(t *testing.T) {
	t.Parallel()
	h := start(t, reachesLoopback, with("BERTH_REDIS_URL", "embedded"), with("BERTH_CREATES_PER_HOUR", "3"), with("BERTH_WEBHOOK_RETRIES", "8s"), with("BERTH_DRAIN", "2s"))
	r := newHook(t)
	st := h.live(t, page("x"), r.manifest())
	r.await(t, len(h.events(t, st)), func(delivered) bool { return true })
	stream := h.stream(t, st.ManageToken, "/v0/stacks/"+st.ID+"/events")
	last := stream.until(t, isNamed("stack.live"))
	id := last[len(last)-1].id
	talker := h.live(t, program(t), manifest(programManifest))
	follow := "/v0/stacks/" + talker.ID + "/logs?service=web"
	lines := h.stream(t, talker.ManageToken, follow)
	says := func(from, to int) {
		require.Equal(t, http.StatusOK, h.get(t, talker.url("web", fmt.Sprintf("/log?from=%d&to=%d", from, to))).status)
	}
	says(1, 3)
	read := lines.until(t, saying(`"line 2"`))
	r.answers(func(d delivered) int {
		if ofType("stack.extended")(d) && len(r.attempts()) < 6 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	h.extend(t, st, "30m")
	first := r.awaitType(t, "stack.extended")
	stream.until(t, isNamed("stack.extended"))

	h.reload(t)
	_, open := stream.next()
	require.False(t, open, "the stream ends with the process before")
	again := h.stream(t, st.ManageToken, "/v0/stacks/"+st.ID+"/events", "Last-Event-ID", id)
	require.Len(t, again.until(t, isNamed("stack.extended")), 1)
	_, open = lines.next()
	require.False(t, open, "the stream of lines ends too")
	says(3, 5)
	lines = h.stream(t, talker.ManageToken, follow, "Last-Event-ID", read[len(read)-1].id)
	require.Len(t, lines.until(t, saying(`"line 4"`)), 2)
	second := r.await(t, 2, ofType("stack.extended"))
	require.Equal(t, first.id(), second[1].id())
	require.GreaterOrEqual(t, second[1].at.Sub(first.at), 8*time.Second, "the retry came before its time")

	h.create(t, page("y"), nil)
	h.reload(t)
	require.Contains(t, h.post(t, archive(t, page("z")), nil, "").refused(t, http.StatusTooManyRequests), "too many requests")

	// The address is free once the server stops listening, however often it was passed on.
	require.Len(t, h.listeners(t), 1)
}

// listeners are the handles of the public address that the server's process has.
func (h *Host) listeners(t *testing.T) (handles []string) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	found := regexp.MustCompile(fmt.Sprintf(`: 0100007F:%04X 00000000:0000 0A (?:\S+ +){5}(\d+)`, h.port)).FindSubmatch(table)
	require.NotNil(t, found, "nobody listens")
	folder := fmt.Sprintf("/proc/%d/fd", h.running().proc.Pid)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(folder, e.Name())); err == nil && target == fmt.Sprintf("socket:[%s]", found[1]) {
			handles = append(handles, e.Name())
		}
	}
	return handles
}

// variedManifest is programManifest with variables.
const variedManifest = `{services: [{name: web, runtime: node, start: node server.js, env: {GIVEN: value, MADE: {generate: true}}}]}`

// variables lists the variables of a stack, with where they are from.
func (h *Host) variables(t *testing.T, st *Stack) (all []string) {
	t.Helper()
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/env")
	require.Equal(t, http.StatusOK, r.status, r.body)
	var list struct{ Variables []struct{ Name, From string } }
	require.NoError(t, json.Unmarshal([]byte(r.body), &list))
	for _, v := range list.Variables {
		all = append(all, v.Name+" "+v.From)
	}
	return all
}

func TestReload_WaitsForJobsAndTakesNewOnesAlong(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_DRAIN", "2s"))
	st := h.live(t, program(t), manifest(programManifest))
	changed := h.live(t, program(t), manifest(variedManifest))
	made := h.environ(t, changed, "web")["MADE"]
	begun := h.begin(t, st, program(t).plus(Tree{"n": "2"}), manifest(gated))
	require.Equal(t, 2, *begun.Deploying)
	eventually(t, "the new generation runs", func() error {
		if has := set(h.has(t, st)); !has["container web-g2"] {
			return fmt.Errorf("the engine has %v", has)
		}
		return nil
	})
	h.hangUp(t)
	h.notes(t, 1, "the new process is ready")
	h.hangUp(t)
	h.notes(t, 1, "another reload is under way")
	waiting := h.create(t, program(t), manifest(variedManifest))
	change := h.attempt(t, http.MethodPatch, "/v0/stacks/"+changed.ID+"/env", `{"all": {"SET": "too"}}`, "Authorization", "Bearer "+changed.ManageToken)
	require.Equal(t, http.StatusOK, change.status, change.body)
	held := make(chan Reply, 1)
	go func() {
		defer close(held)
		held <- h.post(t, archive(t, program(t)), manifest(programManifest), "?wait=true")
	}()
	time.Sleep(2 * time.Second) // a build would begin at once
	require.Zero(t, count(h.events(t, waiting), "service.building"), "it waits in line")
	require.Empty(t, h.reloads(t), "a deploy is under way")

	h.put(t, st, "web", "go", "")
	require.Equal(t, 2, h.deployed(t, st).Generation)
	ended := time.Now()
	h.awaitReload(t, 0)
	require.Less(t, time.Since(ended), time.Minute, "the reload waited for an answer that a deploy in line holds")
	answer := <-held
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	require.Equal(t, "building", answer.stack(t).Status)
	require.NotContains(t, h.log.String(), "requests cut for the reload")
	require.Equal(t, "live", h.deployed(t, waiting).Status)
	env := h.environ(t, waiting, "web")
	require.Equal(t, "value", env["GIVEN"])
	require.NotEmpty(t, env["MADE"])
	require.Equal(t, []string{"GIVEN manifest", "MADE generated"}, h.variables(t, waiting))
	require.Equal(t, 2, h.deployed(t, changed).Generation)
	env = h.environ(t, changed, "web")
	require.Equal(t, []string{"value", made, "too"}, []string{env["GIVEN"], env["MADE"], env["SET"]})
	require.Equal(t, []string{"SET set", "GIVEN manifest", "MADE generated"}, h.variables(t, changed))
	for _, st := range []*Stack{st, waiting, changed, h.deployed(t, answer.stack(t))} {
		require.Zero(t, count(h.events(t, st), "stack.restored"))
		require.Zero(t, count(h.events(t, st), "stack.failed"))
	}
}

// uploadsSlowly sends the second half of a create bit by bit, until stop.
func (h *Host) uploadsSlowly(t *testing.T) (stop func()) {
	t.Helper()
	random := make([]byte, 20<<20)
	rand.Read(random)
	body, contentType := form(t, archive(t, Tree{"index.html": string(random)}), nil)
	conn, err := net.Dial("tcp", h.addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // again where stop was called
	_, err = fmt.Fprintf(conn, "POST /v0/stacks HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", contentType, len(body))
	require.NoError(t, err)
	before := len(h.files(t))
	half := len(body) / 2 // more than is read before anything is unpacked
	_, err = conn.Write(body[:half])
	require.NoError(t, err)
	go func() {
		for part := range slices.Chunk(body[half:], 32<<10) { // fast enough for the server
			if _, err := conn.Write(part); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}()
	eventually(t, "the upload is under way", func() error {
		if now := len(h.files(t)); now <= before {
			return fmt.Errorf("there are %d files", now)
		}
		return nil
	})
	return func() { require.NoError(t, conn.Close()) }
}

// A reload waits for a slow upload, and nothing beside it waits for the reload.
func TestReload_HoldsNobodyUpForASlowUpload(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_DRAIN", "2s"))
	st := h.live(t, page("x"), nil)
	stop := h.uploadsSlowly(t)
	h.hangUp(t)
	h.notes(t, 1, "the new process is ready")
	for n := range 3 {
		h.source(t, st, st.ManageToken)
		body, contentType := form(t, archive(t, page("x")), nil)
		r := h.do(t, h.request(t, http.MethodPost, "/v0/validate", bytes.NewReader(body), "Content-Type", contentType))
		require.Equal(t, http.StatusOK, r.status, r.body)
		h.create(t, page(fmt.Sprint(n)), nil)
	}
	require.Empty(t, h.reloads(t), "the upload is under way")
	stop()
	h.awaitReload(t, 0)
	require.NotContains(t, h.log.String(), "jobs are stopped for the reload")
	for _, created := range h.undeleted() {
		require.Equal(t, "live", h.deployed(t, created).Status)
	}
}

// A reload comes to an end beside commands of which one is under way at every moment.
func TestReload_ComesToAnEndBesideCommandsThatOverlap(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	over, ended := make(chan struct{}), make(chan error)
	const at = 3 // commands at a time
	for n := range at {
		go func() {
			for wait := time.Duration(n) * time.Second; ; wait = 0 {
				select {
				case <-over:
					ended <- nil
					return
				case <-time.After(wait):
				}
				res, err := h.client.Do(h.execRequest(t, st, st.ManageToken, fmt.Sprintf("sleep %d", at), "1m"))
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				if err == nil && res.StatusCode != http.StatusOK {
					err = errors.New(res.Status)
				}
				if err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	h.reload(t)
	close(over)
	for range at {
		require.NoError(t, <-ended)
	}
	require.NotContains(t, h.log.String(), "jobs are stopped for the reload")
}

// What the old process is asked for while another one takes its place is neither lost nor done
// twice: a reload is refused, and the new process ends, too, if the old one is to end.
func TestReload_HearsSignalsDuringTheHandOver(t *testing.T) {
	t.Parallel()
	path, opt := copied(t)
	h := start(t, opt, with("BERTH_DRAIN", "2s"))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	real, pids := path+".real", path+".pid"
	replaceProgram(t, real, content)
	replaceProgram(t, path, []byte("#!/bin/sh\n[ \"$1\" = config ] || { echo $$ >"+pids+"; export BERTH_FAILPOINTS=start-begun!; }\nexec "+real+" \"$@\"\n"))
	halfWay := func() *os.Process {
		h.hangUp(t)
		var pid int
		eventually(t, "a new process has got the place and is stopped there", func() error {
			text, err := os.ReadFile(pids)
			if err == nil {
				pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
			}
			if err == nil && !isStopped(pid) {
				err = fmt.Errorf("process %d is not stopped", pid)
			}
			return err
		})
		require.NoError(t, os.Remove(pids))
		next, err := os.FindProcess(pid)
		require.NoError(t, err)
		return next
	}

	next := halfWay()
	h.hangUp(t)
	h.notes(t, 1, "another reload is under way")
	require.NoError(t, next.Kill())
	h.notes(t, 1, "this process serves on")
	h.awaitAnswer(t, h.running())
	require.Equal(t, 1, strings.Count(h.log.String(), `"msg":"reloading"`))

	next = halfWay()
	old := h.signal(t, syscall.SIGTERM)
	require.NoError(t, next.Signal(syscall.SIGCONT))
	require.NoError(t, old.wait(t))
	require.True(t, hasExited(next.Pid), "the new process serves on")
	require.Len(t, h.reloads(t), 1)
	require.Equal(t, 2, strings.Count(h.log.String(), `"msg":"shutting down`)+strings.Count(h.log.String(), "passing the request to shut down on"))
	replaceProgram(t, path, content)
}

// isStopped reports whether a process is stopped by a signal.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(rest, "T")
}

// A build and an upload that have had their time end as in a restart, and nothing else notices.
func TestReload_StopsWhatHasHadItsTime(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_DRAIN", "2s"), with("BERTH_RELOAD_WAIT", "3s"))
	st := h.live(t, program(t), manifest(programManifest))
	began := h.startOf(t, st, "web")
	builds := h.create(t, page("x"), manifest("services: [{name: web, runtime: node, build: 'echo it builds; sleep 600', start: x}]"))
	h.logged(t, builds, "kind=build", "\nit builds\n")
	upload, err := net.Dial("tcp", h.addr())
	require.NoError(t, err)
	defer upload.Close()
	require.NoError(t, upload.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(upload, "POST /v0/stacks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/gzip\r\nContent-Length: 1000\r\n\r\nhalf")
	require.NoError(t, err)
	h.hangUp(t)
	h.awaitReload(t, 0)
	h.notes(t, 1, "jobs are stopped for the reload")
	h.cutOff(t, builds)
	answer, err := io.ReadAll(upload)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is still read")
	require.NotContains(t, string(answer), "HTTP/1.1 201")
	require.Equal(t, began, h.startOf(t, st, "web"))
	require.Equal(t, "1", h.served(t, st, "web"))
	require.Zero(t, count(h.events(t, st), "stack.restored"))
	eventually(t, "nothing of the build is left", func() error {
		if left := h.has(t, builds); len(left) > 0 {
			return fmt.Errorf("there is %q", left)
		}
		return nil
	})
	require.Equal(t, 2, h.redeploy(t, st, program(t), manifest(programManifest)).Generation)
}

func TestReload_AProgramThatFailsLeavesTheOldOneServing(t *testing.T) {
	t.Parallel()
	path, opt := copied(t)
	h := start(t, opt, with("BERTH_DRAIN", "2s"))
	st := h.live(t, program(t), manifest(programManifest))
	real := path + ".real"
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	replaceProgram(t, real, content)
	old := h.running()
	began := h.startOf(t, st, "web")
	serves := func(n int) {
		h.notes(t, n, "this process serves on")
		require.True(t, h.alive())
		require.Equal(t, "1", h.served(t, st, "web"))
		require.Equal(t, http.StatusOK, h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).status)
	}

	replaceProgram(t, path, []byte("#!/bin/sh\necho this is no server; exit 3\n"))
	h.hangUp(t)
	serves(1)
	require.Contains(t, h.log.String(), "this is no server")

	replaceProgram(t, path, content)
	require.NoError(t, os.Chmod(path, 0o777))
	h.hangUp(t)
	serves(2)
	require.Contains(t, h.log.String(), "others can write")

	replaceProgram(t, path, []byte("#!/bin/sh\n[ \"$1\" = config ] || exit 4\n"))
	h.hangUp(t)
	serves(3)

	// It fails when it has got the place already.
	replaceProgram(t, path, []byte("#!/bin/sh\n[ \"$1\" = config ] || export BERTH_FAILPOINTS=start-begun\nexec "+real+" \"$@\"\n"))
	h.hangUp(t)
	serves(4)
	require.Contains(t, h.log.String(), "killed at the failpoint start-begun")
	require.Equal(t, old, h.running())

	replaceProgram(t, path, content)
	eventually(t, "the requests of before are finished", func() error {
		if len(h.reloads(t)) > 0 {
			return nil
		}
		if err := old.proc.Signal(syscall.SIGHUP); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		return errors.New("not reloaded")
	})
	h.awaitReload(t, 0)
	require.Equal(t, "1", h.served(t, st, "web"))
	require.Equal(t, began, h.startOf(t, st, "web"))
	require.Zero(t, count(h.events(t, st), "stack.restored"))
	require.Equal(t, 2, h.redeploy(t, st, program(t), manifest(programManifest)).Generation)
}
