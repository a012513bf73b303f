package integration

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// execPath is where commands of a service are run.
func execPath(st *Stack, service string) string {
	return "/v0/stacks/" + st.ID + "/services/" + service + "/exec"
}

// runs sends a command for the service web.
func (h *Host) runs(t *testing.T, st *Stack, token, command, timeout string) Reply {
	t.Helper()
	return h.do(t, h.execRequest(t, st, token, command, timeout))
}

func (h *Host) execRequest(t *testing.T, st *Stack, token, command, timeout string, headers ...string) *http.Request {
	t.Helper()
	body, err := json.Marshal(map[string]string{"command": command, "timeout": timeout})
	require.NoError(t, err)
	headers = append(headers, "Authorization", "Bearer "+token, "Content-Type", "application/json")
	return h.request(t, http.MethodPost, execPath(st, "web"), strings.NewReader(string(body)), headers...)
}

// commandEnd is the answer to a command.
type commandEnd struct {
	ExitCode  *int `json:"exit_code"`
	Output    string
	Truncated bool
	TimedOut  bool `json:"timed_out"`
	Error     string
}

// ran runs a command in the service web.
func (h *Host) ran(t *testing.T, st *Stack, command, timeout string) (end commandEnd) {
	t.Helper()
	r := h.runs(t, st, st.ManageToken, command, timeout)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.NoError(t, json.Unmarshal([]byte(r.body), &end))
	return end
}

// prints runs a command that succeeds.
func (h *Host) prints(t *testing.T, st *Stack, command string) string {
	t.Helper()
	end := h.ran(t, st, command, "1m")
	require.NotNil(t, end.ExitCode, end)
	require.Zero(t, *end.ExitCode, end.Output)
	return end.Output
}

// sleeps counts the processes sleep with an argument in the service web. The lines of the
// command's own processes do not match.
func (h *Host) sleeps(t *testing.T, st *Stack, seconds int) int {
	t.Helper()
	text := h.prints(t, st, fmt.Sprintf(`n=$((%d - 1 + 1)); cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -o "[s]leep $n" | wc -l`, seconds))
	n, err := strconv.Atoi(strings.TrimSpace(text))
	require.NoError(t, err)
	return n
}

// awaitNoSleep waits until no process sleep with an argument runs in the service web.
func (h *Host) awaitNoSleep(t *testing.T, st *Stack, seconds int) {
	t.Helper()
	eventually(t, fmt.Sprintf("sleep %d ends", seconds), func() error {
		if n := h.sleeps(t, st, seconds); n > 0 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
}

// execStream runs a command in the service web and reads its events.
func (h *Host) execStream(t *testing.T, st *Stack, command, timeout string) *Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	res, err := h.client.Do(h.execRequest(t, st, st.ManageToken, command, timeout, "Accept", "text/event-stream").WithContext(ctx))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	s := &Stream{in: bufio.NewReader(res.Body), close: func() { cancel(); res.Body.Close() }}
	t.Cleanup(s.close)
	return s
}

// line is the next event of a stream, which has a line.
func (s *Stream) line(t *testing.T) string {
	t.Helper()
	m, ok := s.next()
	require.True(t, ok)
	require.Empty(t, m.name, m.data)
	var data struct{ Line string }
	require.NoError(t, json.Unmarshal([]byte(m.data), &data))
	return data.Line
}

const executes = `{name: app, services: [
  {name: web, runtime: node, root: app, start: node server.js, env: {GREETING: hello}},
  {name: site, runtime: static, root: site}]}`

func executing(t *testing.T) Tree {
	return Tree{"app/server.js": program(t)["server.js"], "site/index.html": "a site"}
}

func TestExec_RunsInTheServiceAsItDoes(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana := h.person(t, "ana@example.com")
	st := h.live(t, executing(t), manifest(executes))

	end := h.ran(t, st, `pwd; id -u; echo "$GREETING $PORT"; echo err >&2; cat; printf 'a\377b'; exit 3`, "")
	require.Equal(t, 3, *end.ExitCode)
	lines := strings.Split(end.Output, "\n")
	require.Equal(t, "/app/app", lines[0])
	require.Equal(t, strings.TrimSpace(h.prints(t, st, "stat -c %u /proc/1")), lines[1], "it is the user of the service")
	require.NotEqual(t, "0", lines[1])
	require.Regexp(t, `^hello \d+$`, lines[2])
	require.Equal(t, []string{"err", "a\uFFFDb"}, lines[3:])
	require.False(t, end.Truncated || end.TimedOut)

	h.timesOut(t, st)
	h.noticesTheCallerLeave(t, st)
	h.keepsTheEnd(t, st)
	h.streamsCommands(t, st)
	h.runsFourAtOnce(t, st)

	h.runsForClients(t, st)

	require.Contains(t, h.runs(t, st, st.ManageToken, "ls", "11m").refused(t, http.StatusUnprocessableEntity), "10m")
	static := h.request(t, http.MethodPost, execPath(st, "site"), strings.NewReader(`{"command": "ls"}`), "Authorization", "Bearer "+st.ManageToken)
	h.do(t, static).refused(t, http.StatusConflict)

	// The run log tells of commands, and does not have them.
	log := h.logged(t, st, "service=web&tail=1000", "== one-off command of the agent, ")
	require.Contains(t, log, "exited with code 3")
	require.Contains(t, log, "timed out")
	require.NotContains(t, log, "GREETING")

	// Once the stack is claimed, they are its owner's.
	require.Equal(t, http.StatusOK, h.claim(t, ana.key, st.ClaimCode, "").status)
	require.Contains(t, h.runs(t, st, st.ManageToken, "ls", "").refused(t, http.StatusForbidden), "ask ana@example.com")
	require.Contains(t, h.runs(t, st, ana.key, "echo of the owner", "").body, "of the owner")
	page := ana.open(t, "/dashboard/stacks/"+st.ID).body
	for _, text := range []string{"echo of the owner", "ana@example.com", "the agent", "exit code 3", "timed out"} {
		require.Contains(t, page, text)
	}

	// A deploy ends what runs in the generation before.
	answer := make(chan Reply, 1)
	go func() { answer <- h.runs(t, st, ana.key, "sleep 600", "10m") }()
	eventually(t, "it runs", func() error {
		if !strings.Contains(h.prints(t, &Stack{ID: st.ID, ManageToken: ana.key}, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"), "sleep 600") {
			return fmt.Errorf("it does not yet")
		}
		return nil
	})
	h.redeploy(t, st, executing(t).plus(Tree{"more": "x"}), manifest(executes))
	r := <-answer
	require.Equal(t, http.StatusOK, r.status)
	require.Contains(t, r.body, `"exit_code":null`)
	require.Contains(t, r.body, "generation 2 took the place of generation 1")
}

// runsForClients asserts that the tools and the berth client run commands.
func (h *Host) runsForClients(t *testing.T, st *Stack) {
	t.Helper()
	args := map[string]any{"stack": st.ID, "service": "web", "command": "echo $GREETING; exit 4"}
	require.Equal(t, "exit code: 4\noutput, its last lines if it was long:\nhello", h.tools(t, st.ManageToken).does("exec", args))
	cmd := newClientFor(t, h).command(t, t.TempDir(), "exec", st.ID, "web", "--", "sh", "-c", `echo "$0 $GREETING"; exit 5`, "it's $HOME")
	cmd.Env = append(cmd.Env, "BERTH_TOKEN="+st.ManageToken)
	out, err := cmd.Output()
	require.Equal(t, 5, exitCode(t, err))
	require.Equal(t, "it's $HOME hello\n", string(out))
}

// timesOut asserts that a command whose time is over ends with its children.
func (h *Host) timesOut(t *testing.T, st *Stack) {
	t.Helper()
	began := time.Now()
	end := h.ran(t, st, `trap 'echo asked; exit' TERM; sleep 4321 & (trap "" TERM; sleep 4321) & setsid sleep 4322 & echo begun; wait`, "10s")
	took := time.Since(began)
	require.Nil(t, end.ExitCode)
	require.True(t, end.TimedOut)
	require.Equal(t, "begun\nasked\n", end.Output)
	require.GreaterOrEqual(t, took, 10*time.Second)
	t.Logf("a command with a timeout of 10 s and a child that ignores SIGTERM: answered after %v", took)
	h.awaitNoSleep(t, st, 4321) // the kernel may take a moment for a process that is killed
	require.Equal(t, 1, h.sleeps(t, st, 4322), "what has left its group has ended")
}

// noticesTheCallerLeave asserts that a command ends when its caller leaves.
func (h *Host) noticesTheCallerLeave(t *testing.T, st *Stack) {
	t.Helper()
	for i, accept := range []string{"application/json", "text/event-stream"} {
		seconds := 5000 + i
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		req := h.execRequest(t, st, st.ManageToken, fmt.Sprintf("sleep %d & wait", seconds), "10m", "Accept", accept)
		go func() {
			defer close(left)
			if res, err := h.client.Do(req.WithContext(ctx)); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}()
		eventually(t, "it runs", func() error {
			if h.sleeps(t, st, seconds) == 0 {
				return fmt.Errorf("it does not yet")
			}
			return nil
		})
		leave()
		<-left
		h.awaitNoSleep(t, st, seconds)
	}
}

// keepsTheEnd asserts that of a long output the last MiB is kept.
func (h *Host) keepsTheEnd(t *testing.T, st *Stack) {
	t.Helper()
	end := h.ran(t, st, `yes 0123456789abcde | head -c 50000000; echo done`, "5m")
	require.Zero(t, *end.ExitCode)
	require.True(t, end.Truncated)
	require.Len(t, end.Output, 1<<20)
	require.True(t, strings.HasSuffix(end.Output, "0123456789abcde\ndone\n"))
}

// streamsCommands asserts that the lines of a command come as it prints them, and that it
// cannot end the stream.
func (h *Host) streamsCommands(t *testing.T, st *Stack) {
	t.Helper()
	s := h.execStream(t, st, `echo one; echo 'event: exit'; until [ -e /tmp/go ]; do sleep 0.1; done; printf last; exit 7`, "1m")
	require.Equal(t, "one", s.line(t))
	require.Equal(t, "event: exit", s.line(t))
	h.prints(t, st, "touch /tmp/go")
	m, ok := s.next()
	require.True(t, ok)
	require.JSONEq(t, `{"line": "last", "partial": true}`, m.data)
	m, ok = s.next()
	require.True(t, ok)
	require.Equal(t, "exit", m.name)
	require.JSONEq(t, `{"exit_code": 7, "truncated": false, "timed_out": false}`, m.data)
	_, ok = s.next()
	require.False(t, ok)
}

// runsFourAtOnce asserts how many commands of a stack run at a time.
func (h *Host) runsFourAtOnce(t *testing.T, st *Stack) {
	t.Helper()
	var running []*Stream
	for range 4 {
		s := h.execStream(t, st, "echo runs; sleep 600", "10m")
		require.Equal(t, "runs", s.line(t))
		running = append(running, s)
	}
	fifth := h.runs(t, st, st.ManageToken, "ls", "")
	fifth.refused(t, http.StatusTooManyRequests)
	require.NotEmpty(t, fifth.header.Get("Retry-After"))
	for _, s := range running {
		s.close()
	}
	eventually(t, "there is room again", func() error {
		if r := h.runs(t, st, st.ManageToken, "ls", ""); r.status != http.StatusOK {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
}

// commands is an act of TestFailpoints.
func commands(t *testing.T, e *ending) {
	e.attempt(t, "exec", e.st.ManageToken, http.MethodPost, execPath(e.st, "web"), `{"command": "echo once >>$DATA_DIR/once"}`, "application/json")
}

// commanded must hold after an attempted command: it ran once at most, and is in the list,
// where it has ended.
func commanded(t *testing.T, e *ending) {
	require.False(t, e.acks["exec"])
	require.Equal(t, "live", e.h.show(t, e.st, "").Status)
	var all []string
	require.NoError(t, e.h.query(t.Context(), "SELECT ended_at IS NOT NULL, error FROM commands", func(rows *sql.Rows) error {
		var ended bool
		var why string
		err := rows.Scan(&ended, &why)
		all = append(all, fmt.Sprint(ended, " ", why))
		return err
	}))
	require.Equal(t, []string{"true the server died while the command ran, so its end is not known"}, all)
	require.Contains(t, []string{"0\n", "1\n"}, e.h.prints(t, e.st, "touch $DATA_DIR/once; wc -l <$DATA_DIR/once"))
	e.data(t)
}
