package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serves is a program whose answers are an expression in req and res.
func serves(expression string) Tree {
	return Tree{"index.js": `const server = require("http").createServer((req, res) => ` + expression + `);
server.listen(process.env.PORT, () => console.log("it listens"));`}
}

// script is a program of one file.
func script(text string) Tree { return Tree{"index.js": text} }

// checks is a manifest of the service web with a health path.
const checks = "services: [{name: web, runtime: node, start: node index.js, health: /healthz}]"

// TestHealth_FailureTellsTheReason deploys programs that do not come up.
func TestHealth_FailureTellsTheReason(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_HEALTH_TIMEOUT", "25s"))
	cases := map[string]struct {
		tree   Tree
		fields Fields
		want   []string
	}{
		"loopback": {
			script(`require("http").createServer().listen(process.env.PORT, "127.0.0.1", () => console.log("ready"))`), nil,
			[]string{"service web: not healthy within 25s: web listens on 127.0.0.1:8080; it must listen on 0.0.0.0:$PORT (8080)", "the end of its log:\nready"},
		},
		"another port": {script(`require("http").createServer().listen(3000, "0.0.0.0")`), nil, []string{"web listens on 0.0.0.0:3000; it must listen on 0.0.0.0:$PORT (8080)"}},
		"its own port": {
			script(`require("http").createServer().listen(3000)`), manifest("services: [{name: web, runtime: node, start: node index.js, port: 5000}]"),
			[]string{"web listens on [::]:3000", "it must listen on 0.0.0.0:$PORT (5000)"},
		},
		"no port": {script(`setInterval(() => {}, 1000)`), nil, []string{"web listens on no port; it must listen on 0.0.0.0:$PORT (8080)", "it wrote nothing to its log"}},
		"exit code": {
			script(`console.error("no such table: users"); process.exit(3)`), nil,
			[]string{`service web: "node index.js" exited with code 3 before it answered on port 8080; the end of its log:`, "no such table: users"},
		},
		"exit with 0":    {script(``), nil, []string{`"node index.js" exited with code 0 before it answered on port 8080; it wrote nothing to its log`}},
		"exception":      {script(`require("nothing")`), nil, []string{"exited with code 1", "Cannot find module 'nothing'"}},
		"killed":         {script(`process.kill(process.pid, "SIGKILL")`), nil, []string{"exited with code 137"}},
		"no program":     {script(``), manifest("services: [{name: web, runtime: node, start: nodee index.js}]"), []string{"exited with code 127", "nodee: not found"}},
		"error answer":   {serves(`res.writeHead(500).end()`), manifest(checks), []string{"not healthy within 25s: GET /healthz answered 500 Internal Server Error; the health check passes with 2xx or 3xx", "it listens"}},
		"missing path":   {serves(`res.writeHead(req.url === "/healthz" ? 404 : 200).end()`), manifest(checks), []string{"GET /healthz answered 404 Not Found"}},
		"no answer":      {serves(`undefined`), nil, []string{"it accepts connections on its port, but GET / got no HTTP answer (it timed out)"}},
		"hangs up":       {serves(`req.socket.destroy()`), nil, []string{"it accepts connections on its port, but GET / got no HTTP answer (the program closed the connection)"}},
		"not HTTP":       {script(`require("net").createServer((c) => c.on("error", () => {}).end("220 ready\r\n")).listen(process.env.PORT)`), nil, []string{"GET / got no HTTP answer (", "malformed HTTP"}},
		"lock":           {script(`console.error("SQLITE_BUSY: database is locked"); process.exit(1)`), nil, []string{"exited with code 1", "database is locked", "set strategy: recreate"}},
		"lock of a file": {script(`console.error("could not lock /data/db: resource temporarily unavailable"); setInterval(() => {}, 1000)`), nil, []string{"listens on no port", "set strategy: recreate"}},
	}
	stacks := map[string]*Stack{}
	for name, c := range cases {
		if c.fields == nil {
			c.fields = manifest("services: [{name: web, runtime: node, start: node index.js}]")
		}
		stacks[name] = h.create(t, c.tree, c.fields)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			st := h.mustFail(t, stacks[name])
			for _, want := range c.want {
				require.Contains(t, st.reason(), want)
			}
			if !strings.Contains(name, "lock") {
				require.NotContains(t, st.reason(), "recreate")
			}
			require.LessOrEqual(t, len(st.reason()), 4000)
			require.Equal(t, "stopped", st.Services[0].Status)
		})
	}
	h.leavesNothingRunning(t)
}

// Without a health path any answer counts, so that a program need not know about the
// host.
func TestHealth_AnyAnswerCountsWithoutAPath(t *testing.T) {
	t.Parallel()
	h := start(t)
	for _, code := range []int{204, 302, 404, 500} {
		st := h.live(t, serves(fmt.Sprintf(`res.writeHead(%d).end()`, code)), nil)
		require.Equal(t, code, h.get(t, st.url("web", "/")).status)
	}
}

// A program that starts slowly is waited for, and gets traffic only then.
func TestHealth_WaitsForASlowStart(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.create(t, script(`let ready = false;
require("http").createServer((req, res) => res.writeHead(ready ? 200 : 503).end(String(ready))).listen(process.env.PORT);
setTimeout(() => { ready = true }, 2000)`), manifest(checks))
	eventually(t, "the service is ready", func() error {
		r := h.get(t, st.url("web", "/"))
		if r.status == http.StatusOK {
			require.Equal(t, "true", r.body)
			return nil
		}
		require.Equal(t, http.StatusServiceUnavailable, r.status)
		require.NotEqual(t, "false", r.body, "a request reached the program before it was healthy")
		return fmt.Errorf("%s", r)
	})
}

// The error keeps the end of a long log, and the log itself stays readable.
func TestHealth_ErrorKeepsTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.broken(t, script(`for (let i = 0; i < 5000; i++) console.log("line " + i + " " + "x".repeat(200)); process.exitCode = 9`), nil)
	require.Contains(t, st.reason(), "line 4999 x")
	require.LessOrEqual(t, len(st.reason()), 4000)
	log := h.logs(t, st, "kind=run&tail=3")
	require.Regexp(t, `^### web \(run\)\n(.*line 499[789] x+\n){3}$`, log)
}

// One service that does not start fails its stack and the other services.
func TestHealth_OneServiceFailsTheStack(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_HEALTH_TIMEOUT", "10m"))
	begun := time.Now()
	st := h.broken(t, reader.plus(Tree{"bad.js": "process.exit(1)"}), manifest(`services:
  - {name: web, runtime: node, start: node index.js}
  - {name: site, runtime: static, build: mkdir out && echo page > out/index.html}
  - {name: api, runtime: node, start: node bad.js, depends_on: [web]}`))
	require.Less(t, time.Since(begun), 4*time.Minute)
	require.Contains(t, st.reason(), "service api: ")
	for _, service := range st.Services {
		require.Equal(t, "stopped", service.Status, service.Name)
	}
	h.leavesNothingRunning(t)
}
