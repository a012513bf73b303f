package integration

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Agent has a folder, a shell, and what it read at /llms.txt.
type Agent struct {
	t      *testing.T
	dir    string
	id     string
	token  string
	manual map[string][]string // commands by the heading above them
}

// agent is an agent that has read /llms.txt and nothing else.
func (h *Host) agent(t *testing.T, project Tree) *Agent {
	t.Helper()
	a := &Agent{t: t, dir: t.TempDir(), manual: map[string][]string{}}
	a.write(project)
	r := h.get(t, "/llms.txt")
	require.Equal(t, http.StatusOK, r.status)
	heading, block, open := "", []string(nil), false
	for line := range strings.SplitSeq(r.body, "\n") {
		switch {
		case line == "```sh":
			open = true
		case line == "```" && open:
			a.manual[heading] = append(a.manual[heading], strings.Join(block, "\n"))
			block, open = nil, false
		case open:
			block = append(block, line)
		case strings.HasPrefix(line, "## "):
			heading = strings.TrimPrefix(line, "## ")
		}
	}
	return a
}

// write puts files into the agent's folder.
func (a *Agent) write(files Tree) {
	a.t.Helper()
	for name, content := range files {
		path := filepath.Join(a.dir, name)
		require.NoError(a.t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(a.t, os.WriteFile(path, []byte(content), 0o644))
	}
}

// run runs a command in the agent's folder, with the values that it has to remember.
func (a *Agent) run(command string) string {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), "sh", "-c", command)
	cmd.Dir = a.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "ID=" + a.id, "TOKEN=" + a.token}
	out, err := cmd.CombinedOutput()
	require.NoError(a.t, err, "%s\n%s", command, out)
	return string(out)
}

// follow runs the n-th command below a heading.
func (a *Agent) follow(heading string, n int) string {
	a.t.Helper()
	require.Greater(a.t, len(a.manual[heading]), n, "llms.txt has no such command below %s: %v", heading, a.manual)
	return a.run(a.manual[heading][n])
}

// settled reads the stack of an answer, and asks again while it is building.
func (a *Agent) settled(answer string) *Stack {
	a.t.Helper()
	for {
		st := &Stack{}
		require.NoError(a.t, json.Unmarshal([]byte(answer), st), answer)
		if a.id == "" {
			a.id, a.token = st.ID, st.ManageToken
		}
		if st.Status != "building" && st.Deploying == nil {
			return st
		}
		answer = a.follow("Get the status", 0)
	}
}

func TestAgent_GoesFromABrokenAppToAURLWithTheManualAlone(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.agent(t, Tree{
		"package.json":        `{"name": "greeter", "scripts": {"start": "node server.js"}}`,
		"server.js":           "throw new Error('nobody told me what to say');",
		".env.local":          "SECRET=1",
		"node_modules/x/x.js": "left at home",
	})

	st := a.settled(a.follow("Deploy a folder", 0))
	require.NotEmpty(t, a.id)
	require.NotEmpty(t, a.token)
	h.adoptStack(&Stack{ID: a.id, ManageToken: a.token})
	require.Equal(t, "failed", st.Status)
	require.Contains(t, st.reason(), "nobody told me what to say")
	require.Contains(t, a.follow("Read the logs", 0), "== build ok")
	require.Contains(t, a.follow("Read the logs", 1), "nobody told me what to say")

	a.write(Tree{"server.js": `require('http').createServer((req, res) => {
  console.log('asked for', req.url);
  res.end('ahoy ' + require('fs').readdirSync('.').join(' '));
}).listen(process.env.PORT, '0.0.0.0');`})
	st = a.settled(a.follow("Redeploy", 0))
	require.Equal(t, "live", st.Status, st.reason())
	require.Nil(t, st.DeployError)
	said := a.run("curl -sS " + st.URLs["web"])
	require.Contains(t, said, "ahoy")
	require.NotContains(t, said, ".env.local")
	require.NotContains(t, said, "node_modules")
	eventually(t, "the request is in the log", func() error {
		if log := a.follow("Read the logs", 1); !strings.Contains(log, "asked for /") {
			return errors.New(log)
		}
		return nil
	})

	before := *a.settled(a.follow("Get the status", 0)).ExpiresAt
	require.Greater(t, *a.settled(a.follow("Extend the TTL", 0)).ExpiresAt, before)
	events := a.follow("Read the events", 0)
	for _, kind := range []string{"stack.created", "stack.failed", "stack.redeploying", "stack.live", "stack.extended"} {
		require.Contains(t, events, kind)
	}
	require.JSONEq(t, `{"id": "`+a.id+`", "status": "deleted"}`, a.follow("Delete the stack", 0))
	require.Contains(t, a.follow("Get the status", 0), `"detail"`)
}

func TestAgent_IsToldWhatIsWrongWithAManifest(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.agent(t, Tree{"index.html": "hi", "stack.yaml": "services:\n  - {name: web, runtime: static, startCommand: serve}\n"})
	for _, heading := range []string{"Validate", "Deploy a folder"} {
		require.Contains(t, a.follow(heading, 0), `here it is \"start\"`)
	}
	a.write(Tree{"stack.yaml": "services:\n  - {name: web, runtime: static}\n"})
	require.Contains(t, a.follow("Validate", 0), `"valid":true`)
	st := a.settled(a.follow("Deploy a folder", 0))
	h.adoptStack(&Stack{ID: a.id, ManageToken: a.token})
	require.Equal(t, "live", st.Status, st.reason())
	require.Equal(t, "hi", a.run("curl -sS "+st.URLs["web"]))
}

func TestAgent_DeploysFilesWithoutAFolder(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.agent(t, nil)
	st := a.settled(a.follow("Deploy a folder", 1))
	h.adoptStack(&Stack{ID: a.id, ManageToken: a.token})
	require.Equal(t, "live", st.Status, st.reason())
	require.Equal(t, "<h1>Hello</h1>", a.run("curl -sS "+st.URLs["web"]))
	deploy := `curl -sS -H "Authorization: Bearer $TOKEN" -d '{"files": [{"path": "index.html", "content": "again"}]}' ` + h.base() + `/v0/stacks/$ID/deploy?wait=true`
	require.Equal(t, 2, a.settled(a.run(deploy)).Generation)
	require.Equal(t, "again", a.run("curl -sS "+st.URLs["web"]))
	require.Contains(t, a.run(`curl -sS -F manifest='services: [{name: web, runtime: cobol}]' `+h.base()+`/v0/validate`), "unknown runtime")
}

// The files of the example are the blocks below its heading, in this order.
func TestAgent_BuildsAPageAndAnAPIAsItIsTold(t *testing.T) {
	t.Parallel()
	h := start(t)
	_, example, found := strings.Cut(h.get(t, "/llms.txt").body, "\n## A page and an API\n")
	require.True(t, found)
	example, _, _ = strings.Cut(example, "\n## ")
	blocks := regexp.MustCompile("(?s)```(?:yaml|html|js)\n(.*?)```").FindAllStringSubmatch(example, -1)
	require.Len(t, blocks, 3)
	st := h.live(t, Tree{"stack.yaml": blocks[0][1], "web/index.html": blocks[1][1], "api/server.js": blocks[2][1]}, nil)
	require.Contains(t, h.get(t, st.url("web", "/")).body, "fetch('/api/hello')")
	require.JSONEq(t, `{"hello": "from the API", "path": "/hello"}`, h.get(t, st.url("web", "/api/hello")).body)
	require.JSONEq(t, `{"hello": "from the API", "path": "/hello"}`, h.get(t, st.url("api", "/hello")).body)

	a := h.agent(t, nil)
	a.id, a.token = st.ID, st.ManageToken
	require.Equal(t, "live", a.settled(a.follow("Get and replace the data", 0)).Status)
}
