package integration

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// Tools is a client of the tools at /mcp.
type Tools struct {
	t       *testing.T
	session *mcp.ClientSession
}

// authorized adds a token to every request.
type authorized struct {
	http.RoundTripper
	token string
}

// RoundTrip is http.RoundTripper.
func (a authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	if a.token != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.RoundTripper.RoundTrip(req)
}

// tools connects to the tools; token may be "".
func (h *Host) tools(t *testing.T, token string) *Tools {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint:   h.base() + "/mcp",
		HTTPClient: &http.Client{Transport: authorized{h.client.Transport, token}, Timeout: patience},
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return &Tools{t, session}
}

// call calls a tool and returns its text, and whether that is an error.
func (c *Tools) call(tool string, args map[string]any) (string, bool) {
	c.t.Helper()
	res, err := c.session.CallTool(c.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	require.NoError(c.t, err)
	require.Len(c.t, res.Content, 1)
	text := res.Content[0].(*mcp.TextContent).Text
	require.Less(c.t, len(text), 16_000, "a model has to read all of it")
	return text, res.IsError
}

// does calls a tool that must succeed.
func (c *Tools) does(tool string, args map[string]any) string {
	c.t.Helper()
	text, failed := c.call(tool, args)
	require.False(c.t, failed, "%s: %s", tool, text)
	return text
}

// refuses calls a tool that must not.
func (c *Tools) refuses(tool string, args map[string]any) string {
	c.t.Helper()
	text, failed := c.call(tool, args)
	require.True(c.t, failed, "%s: %s", tool, text)
	return text
}

// fact is what a result says of something, a line each.
func fact(t *testing.T, text, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `: (\S+)`).FindStringSubmatch(text)
	require.NotNil(t, found, "no %s in\n%s", name, text)
	return found[1]
}

// adopted is the stack of a deploy, which is deleted when the test ends.
func (h *Host) adopted(t *testing.T, text string) *Stack {
	t.Helper()
	st := &Stack{ID: fact(t, text, "stack"), ManageToken: fact(t, text, "manage_token")}
	h.adoptStack(st)
	return st
}

func TestMCP_DeploysMendsAndDeletes(t *testing.T) {
	t.Parallel()
	h := start(t)
	c := h.tools(t, "")
	list, err := c.session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.LessOrEqual(t, len(list.Tools), 13)

	files := map[string]any{"server.js": "throw new Error('not today');", "package.json": `{"scripts": {"start": "node server.js"}}`}
	plan := c.does("validate", map[string]any{"files": files})
	require.Contains(t, plan, "valid: true")
	require.Contains(t, plan, "start: ")
	text := c.does("deploy", map[string]any{"files": files, "name": "mended", "ttl": "30m"})
	st := h.adopted(t, text)
	of := func(args map[string]any) map[string]any {
		all := map[string]any{"stack": st.ID, "token": st.ManageToken}
		for name, value := range args {
			all[name] = value
		}
		return all
	}
	for strings.Contains(text, "status: building") {
		text = c.does("status", of(map[string]any{"wait": true}))
	}
	require.Contains(t, text, "status: failed")
	require.Contains(t, text, "not today")
	require.Contains(t, text, "call redeploy")
	require.Contains(t, c.does("logs", of(map[string]any{"kind": "build"})), "== build ok")
	require.Contains(t, c.does("logs", of(map[string]any{"service": "web", "tail": 20})), "not today")

	files["server.js"] = `require('http').createServer((q, r) => r.end('mended')).listen(process.env.PORT);`
	text = c.does("redeploy", of(map[string]any{"files": files}))
	for strings.Contains(text, "is being built") {
		text = c.does("status", of(map[string]any{"wait": true}))
	}
	require.Contains(t, text, "status: live")
	require.Contains(t, text, "generation: 2")
	require.Equal(t, "mended", h.get(t, h.show(t, st, "").url("web", "/")).body)
	require.Contains(t, c.does("events", of(nil)), "stack.redeploying")
	require.Contains(t, c.does("extend", of(map[string]any{"ttl": "2h"})), "expires_at: ")
	require.Contains(t, c.refuses("extend", of(map[string]any{"ttl": "9d"})), "latest possible expiry")
	require.Contains(t, c.does("delete", of(nil)), "is deleted")
	require.Contains(t, c.refuses("status", of(nil)), "next: ")
}

func TestMCP_ActsForWhoeverCalls(t *testing.T) {
	t.Parallel()
	h := start(t)
	key := h.accountCreate(t, "ana@example.com")
	owner, nobody := h.tools(t, key), h.tools(t, "")
	text := owner.does("deploy", map[string]any{"files": map[string]any{"index.html": "mine"}})
	st := h.adopted(t, text)
	require.NotContains(t, text, "claim_url", "it is the account's from the start")
	require.Contains(t, owner.does("status", map[string]any{"stack": st.ID, "wait": true}), "status: live")
	require.Contains(t, nobody.refuses("status", map[string]any{"stack": st.ID}), "as token")
	require.Contains(t, nobody.does("status", map[string]any{"stack": st.ID, "token": st.ManageToken}), "status: live")
	other := h.live(t, page("other"), nil)
	require.Contains(t, nobody.refuses("delete", map[string]any{"stack": st.ID, "token": other.ManageToken}), "returned for this stack")
	require.Contains(t, h.tools(t, "as_live_wrong").refuses("deploy", map[string]any{"files": map[string]any{"a": "b"}}), "API key")
}

func TestMCP_CountsAgainstTheCallersNetwork(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_UNCLAIMED_PER_IP", "1"))
	h.live(t, page("one"), nil)
	refused := h.tools(t, "").refuses("deploy", map[string]any{"files": map[string]any{"index.html": "two"}})
	require.Contains(t, refused, "1 unclaimed stacks are already running from your network (limit 1)")
}

// A call over 16 KiB takes a place while it is read, and a network has four.
func TestMCP_CountsLargeCallsByTheCallersNetwork(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_TRUSTED_PROXIES", "127.0.0.1"))
	const size = 1 << 20 // so much more than is sent that net/http answers without waiting for the rest
	answers := make(chan *http.Response, 6)
	call := func(network, body string) {
		conn := h.dial(t)
		_, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: %s\r\nContent-Type: application/json\r\n"+
			"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", network, size, body)
		require.NoError(t, err)
		go func() {
			res, _ := http.ReadResponse(bufio.NewReader(conn), nil)
			answers <- res
		}()
	}
	for range 5 {
		call("203.0.113.7", strings.Repeat(" ", 20_000))
	}
	answer := func() Reply {
		res := <-answers
		require.NotNil(t, res, "the connection broke")
		return read(t, res)
	}
	require.Contains(t, answer().refused(t, http.StatusServiceUnavailable), "4 large calls from your network")
	const list = `{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}`
	call("203.0.113.8", list+strings.Repeat(" ", size-len(list)))
	other := answer()
	require.Equal(t, http.StatusOK, other.status, other.body)
}

func TestMCP_SaysWhatIsWrongWithACall(t *testing.T) {
	t.Parallel()
	h := start(t)
	c := h.tools(t, "")
	require.Contains(t, c.refuses("deploy", map[string]any{}), "pass it as files")
	require.Contains(t, c.refuses("deploy", map[string]any{
		"files":    map[string]any{"index.html": "x"},
		"manifest": "services: [{name: web, runtime: static, startCommand: serve}]",
	}), `here it is "start"`)
	require.Contains(t, h.get(t, "/mcp").refused(t, http.StatusMethodNotAllowed), "Model Context Protocol")
	require.Contains(t, fmt.Sprint(c.session.InitializeResult().Instructions), "$PORT")
}

// A sender that stops one byte short is let go of after a minute.
func TestMCP_DoesNotHoldCallsThatStall(t *testing.T) {
	t.Parallel()
	h := start(t)
	conn := h.dial(t)
	const size = 1 << 20
	_, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s",
		size, strings.Repeat(" ", size-1))
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Contains(t, read(t, res).refused(t, http.StatusBadRequest), "the call stalled after 1048575 bytes")
	_, err = in.ReadByte()
	require.ErrorIs(t, err, io.EOF, "the connection is closed")
}

func TestMCP_TheClientServesTheToolsToAProgramOfThisMachine(t *testing.T) {
	t.Parallel()
	h := start(t)
	c := newClientFor(t, h)
	dir := c.folder(t, "shop", program(t).plus(Tree{"stack.yaml": programManifest, ".env": "SECRET=x"}))
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: c.command(t, dir, "mcp")}, nil)
	require.NoError(t, err)
	tools := &Tools{t, session}
	require.Contains(t, tools.refuses("deploy", map[string]any{"folder": dir + "/missing"}), "missing")

	text := tools.does("deploy", map[string]any{"folder": dir})
	id := fact(t, text, "stack")
	st := h.show(t, &Stack{ID: id, ManageToken: fact(t, text, "manage_token")}, "")
	require.Equal(t, "live", st.Status)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
	// The token is remembered: by the tools, and by the command line.
	require.Contains(t, tools.does("status", map[string]any{"stack": id}), "live")
	require.Contains(t, tools.does("redeploy", map[string]any{"stack": id, "folder": dir}), "live")
	require.NoError(t, session.Close())
	require.Contains(t, c.ok(t, dir, "status", "--stack", id).stdout, "generation 2")
}
