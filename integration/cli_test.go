package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/observe"
	"github.com/berth-host/berth/integration/terminal"
)

// buildClient builds the client once, as it is shipped.
var buildClient = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "berth")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "../cmd/berth")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build berth: %w\n%s", err, out)
	}
	return path, nil
})

// Client is a person or an agent with the berth command and a home folder.
type Client struct {
	host *Host
	home string
	path string
}

// newClientFor makes a client of the server. What it deploys is deleted with
// the rest when the test ends.
func newClientFor(t *testing.T, h *Host) *Client {
	t.Helper()
	path, err := buildClient()
	require.NoError(t, err)
	c := &Client{host: h, home: t.TempDir(), path: path}
	t.Cleanup(func() {
		for _, st := range c.stacks(t) {
			h.adoptStack(st)
		}
	})
	return c
}

// stacks returns the stacks that the client remembers.
func (c *Client) stacks(t *testing.T) []*Stack {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.home, "berth", "stacks.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var memory struct {
		Servers map[string]struct {
			Stacks map[string]Stack `json:"stacks"`
		} `json:"servers"`
	}
	require.NoError(t, json.Unmarshal(data, &memory))
	var all []*Stack
	for id, st := range memory.Servers[c.host.base()].Stacks {
		st.ID = id
		all = append(all, &st)
	}
	return all
}

// folder makes a folder of a tree.
func (c *Client) folder(t *testing.T, name string, tree Tree) string {
	t.Helper()
	dir := filepath.Join(c.home, name)
	for path, content := range tree {
		file := filepath.Join(dir, filepath.FromSlash(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
	}
	return dir
}

func (c *Client) command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.path, args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + c.home, "XDG_CONFIG_HOME=" + c.home, "TERM=xterm",
		"BERTH_SERVER=" + c.host.base(),
	}
	return cmd
}

// Ran is how a command ended.
type Ran struct {
	code           int
	stdout, stderr string
}

// run runs berth in a folder without a terminal.
func (c *Client) run(t *testing.T, dir string, args ...string) Ran {
	t.Helper()
	var out, talk bytes.Buffer
	cmd := c.command(t, dir, args...)
	cmd.Stdout, cmd.Stderr = &out, &talk
	return Ran{exitCode(t, cmd.Run()), out.String(), talk.String()}
}

// ok is run for what must succeed.
func (c *Client) ok(t *testing.T, dir string, args ...string) Ran {
	t.Helper()
	r := c.run(t, dir, args...)
	require.Equal(t, 0, r.code, "berth %v\n%s\n%s", args, r.stdout, r.stderr)
	return r
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}

// talk is a program with a build step, and files that must never be uploaded.
func talk(t *testing.T) Tree {
	return program(t).plus(Tree{
		"stack.yaml": "services: [{name: web, runtime: node, build: 'ls -A; echo the build', start: 'echo the start; node server.js'}]\n",
		".env":       "SECRET=hunter2\n",
		".gitignore": "*.log\n",
		"big.log":    "hello",
	})
}

func TestClient_GoesFromAFolderToAURLAndBack(t *testing.T) {
	t.Parallel()
	h := start(t)
	c := newClientFor(t, h)
	dir := c.folder(t, "shop", talk(t))

	r := c.ok(t, dir, "deploy")
	st := c.stacks(t)[0]
	st.URLs = h.show(t, st, "").URLs
	require.Regexp(t, `^stack    shop \(`+st.ID+`\)\nstatus   live, generation 1\nweb      `+st.URLs["web"]+`  node, running\nexpires  in .*\nclaim    `+h.base()+`/claim/CLM-.*\n$`, r.stdout)
	for _, part := range []string{"left out .env, big.log", "uploading ", "building web", "web | .gitignore", "web | the build", "web | == build ok", "web is ready at " + st.URLs["web"], "generation 1 is live"} {
		require.Contains(t, r.stderr, part)
	}
	require.NotContains(t, r.stderr, "web | .env")
	require.NotContains(t, r.stdout+r.stderr, "\x1b")
	require.NotContains(t, r.stdout+r.stderr, st.ManageToken)

	require.Contains(t, c.ok(t, dir, "logs").stdout, "### web (run)\nthe start\n")
	require.Contains(t, c.ok(t, dir, "logs", "web", "--build", "-n", "1").stdout, "== build ok")
	require.Contains(t, c.ok(t, dir, "events").stdout, "stack.created")
	require.Regexp(t, `expires  in (3h|2h59m), at`, c.ok(t, dir, "extend", "3h").stdout)
	open := c.ok(t, dir, "open")
	require.Equal(t, st.URLs["web"]+"\n", open.stdout)
	require.Contains(t, open.stderr, "web answers 200")

	// The folder has a stack now: the next deploy is its next generation.
	require.Contains(t, c.ok(t, dir, "deploy", "-q").stdout, "status   live, generation 2\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stack.yaml"), []byte("services: [{name: web, runtime: node, build: 'echo a mistake; exit 7', start: node server.js}]"), 0o644))
	r = c.run(t, dir, "deploy")
	require.Equal(t, 3, r.code, "%+v", r)
	require.Contains(t, r.stdout, "status   live, generation 2\n")
	require.Contains(t, r.stderr, "web | a mistake")
	require.Contains(t, r.stderr, "error: the redeploy failed and generation 2 keeps serving")

	r = c.ok(t, dir, "delete", "--yes")
	require.Contains(t, r.stderr, "is deleted")
	require.Equal(t, 6, c.run(t, dir, "status").code)
	require.Equal(t, http.StatusNotFound, h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).status)
	require.Empty(t, c.stacks(t))
}

func TestClient_ShowsAPersonWhatHappensAndWhatToClaim(t *testing.T) {
	t.Parallel()
	h := start(t)
	c := newClientFor(t, h)
	dir := c.folder(t, "site", page("hello"))
	key := h.accountCreate(t, "ana@example.com")

	shown, err := terminal.Run(c.command(t, dir, "deploy"))
	require.NoError(t, err, shown)
	require.Regexp(t, `uploading +100% \|█+\|`, shown)
	require.Contains(t, shown, "\x1b[32m✓\x1b[0m generation 1 is live")
	require.Contains(t, shown, h.base()+"/claim/CLM-")
	require.Contains(t, shown, "▀▀▀▀▀▀▀", "no QR code")

	shown, err = terminal.Run(c.command(t, dir, "login"), terminal.Typing{After: "once): ", Text: key + "\n", Hidden: true})
	require.NoError(t, err, shown)
	require.Contains(t, shown, "as ana@example.com")
	require.NotContains(t, shown, key)

	shown, err = terminal.Run(c.command(t, dir, "claim"))
	require.NoError(t, err, shown)
	require.Contains(t, shown, "generation 1, claimed")
	require.NotContains(t, shown, "/claim/CLM-")
	require.Regexp(t, `stk_\w+  site  live    -     `+dir, c.ok(t, dir, "list").stdout)

	shown, err = terminal.Run(c.command(t, dir, "delete"), terminal.Typing{After: "[y/N] ", Text: "y\n"})
	require.NoError(t, err, shown)
	require.Contains(t, shown, "is deleted")
}

func TestClient_ServesScripts(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_UPLOAD", "10KB"), with("BERTH_TTL_MAX", "2h"))
	c := newClientFor(t, h)
	dir := c.folder(t, "site", page("hello"))
	key := h.accountCreate(t, "ana@example.com")

	// An archive on standard input, with a key of the environment.
	cmd := c.command(t, c.home, "deploy", "-", "--json", "--name", "piped")
	cmd.Env = append(cmd.Env, "BERTH_TOKEN="+key)
	cmd.Stdin = bytes.NewReader(archive(t, page("piped")))
	out, err := cmd.Output()
	require.NoError(t, err)
	st := &Stack{}
	require.NoError(t, json.Unmarshal(out, st), "%s", out)
	require.Equal(t, "piped", st.Name)
	require.True(t, st.Claimed)
	require.Equal(t, "live", st.Status)
	require.Equal(t, "piped", h.get(t, st.url("web", "/")).body)

	for _, tt := range []struct {
		code int
		want string
		args []string
	}{
		{4, "services is a number", []string{"deploy", c.folder(t, "faulty", Tree{"stack.yaml": "services: 7", "a": "b"})}},
		{4, "larger than 10000 bytes", []string{"deploy", c.folder(t, "large", Tree{"index.html": randomText(20_000)})}},
		{4, "the latest possible", []string{"deploy", dir, "--ttl", "3h"}},
		{5, "BERTH_TOKEN", []string{"status", "--stack", "stk_000000000000"}},
		{9, "does not answer", []string{"deploy", dir, "--server", "http://127.0.0.1:1"}},
	} {
		r := c.run(t, c.home, tt.args...)
		require.Equal(t, tt.code, r.code, "%v: %+v", tt.args, r)
		require.Contains(t, r.stderr, tt.want)
		require.Empty(t, r.stdout)
	}
	require.Len(t, c.stacks(t), 1, "what was refused left something behind")
}

func TestClient_FollowsLogs(t *testing.T) {
	t.Parallel()
	h := start(t)
	c := newClientFor(t, h)
	dir := c.folder(t, "ticks", Tree{
		"stack.yaml": "services: [{name: web, runtime: node, start: node server.js}]",
		"server.js":  `let n = 0; require("http").createServer((q, r) => { console.log("visit", ++n); r.end("ok") }).listen(process.env.PORT)`,
	})
	c.ok(t, dir, "deploy")
	st := c.stacks(t)[0]
	st.URLs = h.show(t, st, "").URLs

	out := &observe.Record{}
	cmd := c.command(t, dir, "logs", "-f", "-n", "0")
	cmd.Stdout = out
	require.NoError(t, cmd.Start())
	for _, visits := range []int{3, 6} {
		eventually(t, "visits are followed", func() error {
			h.get(t, st.url("web", "/"))
			if n := strings.Count(out.String(), "visit"); n < visits {
				return fmt.Errorf("%d visits in %q", n, out)
			}
			return nil
		})
		h.restart(t)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, 130, exitCode(t, cmd.Wait()))
	seen := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		require.False(t, seen[line], "%q comes twice in %q", line, out)
		seen[line] = true
	}
	logged := c.ok(t, dir, "logs", "--timestamps").stdout
	require.Regexp(t, `(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z gen 1 == web started\n\S+ gen 1 visit 1$`, logged)
	require.Contains(t, c.ok(t, dir, "restart", "web").stderr, "restarting web")
}

func TestClient_WaitsThroughARestartOfTheServer(t *testing.T) {
	t.Parallel()
	h := start(t)
	c := newClientFor(t, h)
	dir := c.folder(t, "slow", program(t).plus(Tree{
		"stack.yaml": "services: [{name: web, runtime: node, build: 'echo the build; sleep 600', start: node server.js}]",
	}))
	talk := &observe.Record{}
	cmd := c.command(t, dir, "deploy")
	cmd.Stderr = talk
	require.NoError(t, cmd.Start())
	eventually(t, "the build's output is shown", func() error {
		if !strings.Contains(talk.String(), "web | the build") {
			return fmt.Errorf("it shows %q", talk)
		}
		return nil
	})
	h.restart(t)
	require.Equal(t, 3, exitCode(t, cmd.Wait()), talk)
	require.Contains(t, talk.String(), "restart")
}
