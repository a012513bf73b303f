package mcp

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/client"
)

// fakeAPI answers as Berth does and records the requests, one at a time: the
// rest of an upload that was given up may overlap with the next request.
type fakeAPI struct {
	mu      sync.Mutex
	asked   []string    // method, path and Authorization
	header  http.Header // of the last request
	source  map[string]string
	form    url.Values        // of the last request with a form, without its files
	match   string            // the If-Match of the last deploy
	kind    string            // the Content-Type of answers; "" for that which is accepted
	answers map[string]string // by method and path; one that begins with a status is an error
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	route := r.Method + " " + r.URL.RequestURI()
	f.header = r.Header
	if r.Method == http.MethodPost {
		f.match = r.Header.Get("If-Match")
	}
	f.asked = append(f.asked, strings.TrimSpace(route+" "+r.Header.Get("Authorization")))
	if file, _, err := r.FormFile("source"); err == nil {
		f.source = unpack(file)
	}
	w.Header().Set("ETag", `"d1"`)
	if r.MultipartForm != nil {
		f.form = r.MultipartForm.Value
	}
	w.Header().Set("Content-Type", cmp.Or(f.kind, r.Header.Get("Accept"), "application/json"))
	answer := f.answers[route]
	var status int
	if _, err := fmt.Sscanf(answer, "%d", &status); err == nil {
		w.WriteHeader(status)
		_, answer, _ = strings.Cut(answer, " ")
	}
	_, _ = io.WriteString(w, answer)
}

func unpack(r io.Reader) map[string]string {
	files := map[string]string{}
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return nil
	}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if err != nil {
			return files
		}
		content, _ := io.ReadAll(archive)
		files[header.Name] = string(content)
	}
}

// connect returns a client of the tools over a fake API.
func connect(t *testing.T, api *fakeAPI, change func(*Config)) *sdk.ClientSession {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL)
	require.NoError(t, err)
	cfg := Config{API: c, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	here, there := sdk.NewInMemoryTransports()
	_, err = newServer(cfg).Connect(t.Context(), there, nil)
	require.NoError(t, err)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// call calls a tool and returns its text, and whether that is an error.
func call(t *testing.T, session *sdk.ClientSession, tool string, args map[string]any) (string, bool) {
	t.Helper()
	res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	require.NoError(t, err)
	require.Len(t, res.Content, 1)
	return res.Content[0].(*sdk.TextContent).Text, res.IsError
}

const (
	building = `{"id":"stk_0123456789ab","name":"app","status":"building","deploying":1,"generation":1,"manage_token":"ast_anon_x","claim_url":"http://b/claim/CLM"}`
	live     = `{"id":"stk_0123456789ab","name":"app","status":"live","generation":1,"urls":{"web":"http://web.b"},"services":[{"name":"web","status":"running"}],"expires_at":1}`
)

func TestTools_AreFewAndSayWhatTheyTake(t *testing.T) {
	t.Parallel()
	for _, folders := range []bool{false, true} {
		session := connect(t, &fakeAPI{}, func(c *Config) {
			if folders {
				c.Pack = func(context.Context, string, io.Writer) error { return nil }
			}
		})
		list, err := session.ListTools(t.Context(), nil)
		require.NoError(t, err)
		require.LessOrEqual(t, len(list.Tools), 13)
		for _, tool := range list.Tools {
			schema, err := json.Marshal(tool.InputSchema)
			require.NoError(t, err)
			takesSource := strings.Contains(string(schema), `"files"`)
			require.Equal(t, folders && takesSource, strings.Contains(string(schema), `"folder"`), tool.Name)
			require.NotEmpty(t, tool.Description)
		}
	}
}

// The schemas stay byte for byte as programs have seen them.
func TestTools_KeepTheSchemasOfTheirArguments(t *testing.T) {
	t.Parallel()
	for name, folders := range map[string]bool{"hosted": false, "local": true} {
		var got strings.Builder
		for _, tool := range (&tools{}).all() {
			schema, err := json.Marshal(tool.schema(folders))
			require.NoError(t, err)
			fmt.Fprintf(&got, "%s %s\n", tool.name, schema)
		}
		want, err := os.ReadFile("testdata/schemas-" + name + ".txt")
		require.NoError(t, err)
		require.Equal(t, string(want), got.String())
	}
}

func TestDeploy_SendsFilesAndWaits(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{answers: map[string]string{
		"POST /v0/stacks": "201 " + building,
		"GET /v0/stacks/stk_0123456789ab?wait=true": live,
	}}
	var kept *client.Stack
	session := connect(t, api, func(c *Config) {
		c.Created = func(_ context.Context, s *client.Stack) error { kept = s; return nil }
	})
	text, failed := call(t, session, "deploy", map[string]any{
		"files":        map[string]any{"index.html": "hi"},
		"binary_files": map[string]any{"a.bin": "AAE="},
	})
	require.False(t, failed, text)
	for _, part := range []string{"stk_0123456789ab", "ast_anon_x", "http://b/claim/CLM", "http://web.b", "next: open the URLs"} {
		require.Contains(t, text, part)
	}
	require.Equal(t, "ast_anon_x", kept.ManageToken)
	require.Equal(t, map[string]string{"index.html": "hi", "a.bin": "\x00\x01"}, api.source)
	require.Equal(t, []string{"POST /v0/stacks", "GET /v0/stacks/stk_0123456789ab?wait=true Bearer ast_anon_x"}, api.asked)
}

func TestDeploys_ThatDoNotGoLiveAreErrors(t *testing.T) {
	t.Parallel()
	const deploying = `{"id":"stk_0123456789ab","status":"live","generation":1,"deploying":2,"deploy":{"attempt":2,"outcome":"running"}}`
	for name, c := range map[string]struct {
		now    string
		failed bool
		want   string
	}{
		"live":        {`{"status":"live","generation":2,"deploy":{"attempt":2,"outcome":"live"}}`, false, "generation: 2"},
		"rolled back": {`{"status":"live","generation":1,"deploy_error":"no start","deploy":{"attempt":2,"outcome":"rolled_back"}}`, true, "deploy_error: no start\nnext: the redeploy failed"},
		"failed":      {`{"status":"failed","error":"no start","deploy":{"attempt":2,"outcome":"failed"}}`, true, "error: no start\nnext: read logs"},
		"superseded":  {`{"status":"live","generation":2,"deploy":{"attempt":3,"outcome":"live"}}`, true, "attempt 2, which this call began, has ended: attempt 3 took its place"},
		"still runs":  {deploying, false, "attempt: 2"},
	} {
		api := &fakeAPI{answers: map[string]string{
			"POST /v0/stacks/stk_0123456789ab/deploy":   deploying,
			"PATCH /v0/stacks/stk_0123456789ab/env":     deploying,
			"GET /v0/stacks/stk_0123456789ab?wait=true": strings.Replace(c.now, `"outcome":"running"`, `"outcome":"running","phase":"health"`, 1),
		}}
		session := connect(t, api, nil)
		for tool, args := range map[string]map[string]any{
			"redeploy": {"whole": true, "files": map[string]any{"index.html": "hi"}},
			"set_env":  {"variables": map[string]any{"KEY": "value"}},
		} {
			args["stack"] = "stk_0123456789ab"
			text, failed := call(t, session, tool, args)
			require.Equal(t, c.failed, failed, "%s, %s: %s", tool, name, text)
			require.Contains(t, text, c.want, "%s, %s", tool, name)
		}
	}
}

func TestRedeploy_SupersedesOnRequest(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{answers: map[string]string{
		"POST /v0/stacks/x/deploy":                `409 {"detail":"a build of this stack is already running"}`,
		"POST /v0/stacks/x/deploy?supersede=true": `{"id":"x","status":"live","generation":2}`,
	}}
	session := connect(t, api, nil)
	args := map[string]any{"stack": "x", "whole": true, "files": map[string]any{"index.html": "hi"}}
	_, failed := call(t, session, "redeploy", args)
	require.True(t, failed)
	args["supersede"] = true
	text, failed := call(t, session, "redeploy", args)
	require.False(t, failed, text)
}

func TestRedeploy_BuildsFreshOnRequest(t *testing.T) {
	t.Parallel()
	const path = "/v0/stacks/stk_0123456789ab"
	api := &fakeAPI{answers: map[string]string{"GET " + path: live, "POST " + path + "/deploy?fresh=true": live}}
	session := connect(t, api, nil)
	files := map[string]any{"index.html": "hi"}
	for name, c := range map[string]struct {
		args map[string]any
		form url.Values
	}{
		"alone":           {map[string]any{}, url.Values{}},
		"with a manifest": {map[string]any{"manifest": "name: x"}, url.Values{"manifest": {"name: x"}}},
		"of a base":       {map[string]any{"base": 1}, url.Values{"base": {"1"}}},
		"with changes":    {map[string]any{"files": files}, url.Values{"base": {"1"}}},
		"with deletions":  {map[string]any{"delete": []string{"old"}, "manifest": "name: x"}, url.Values{"base": {"1"}, "delete": {`["old"]`}, "manifest": {"name: x"}}},
		"with everything": {map[string]any{"files": files, "whole": true}, url.Values{}},
	} {
		api.source, api.form = nil, nil
		c.args["stack"], c.args["fresh"] = "stk_0123456789ab", true
		text, failed := call(t, session, "redeploy", c.args)
		require.False(t, failed, "%s: %s", name, text)
		require.Equal(t, c.form, api.form, name)
		require.Equal(t, c.args["files"] != nil, api.source != nil, name)
	}
}

func TestExec_ReportsTheOutputAndTheEnd(t *testing.T) {
	t.Parallel()
	const route = "POST /v0/stacks/stk_0123456789ab/services/web/exec"
	for stream, want := range map[string]string{
		"data: {\"line\":\"a\"}\n\ndata: {\"line\":\"b\",\"partial\":true}\n\nevent: exit\ndata: {\"exit_code\":3}\n\n": "exit code: 3\noutput, its last lines if it was long:\na\nb",
		"event: exit\ndata: {\"exit_code\":0}\n\n":                                    "exit code: 0\nIt printed nothing.",
		"event: exit\ndata: {\"exit_code\":null,\"timed_out\":true}\n\n":              "timed out: the command ran longer than 50s and was ended\nIt printed nothing.",
		"event: exit\ndata: {\"exit_code\":null,\"error\":\"web was restarted\"}\n\n": "error: web was restarted\nIt printed nothing.",
	} {
		session := connect(t, &fakeAPI{answers: map[string]string{route: stream}}, nil)
		text, failed := call(t, session, "exec", map[string]any{"stack": "stk_0123456789ab", "service": "web", "command": "ls"})
		require.False(t, failed)
		require.Equal(t, want, text)
	}
	long := strings.Repeat("data: {\"line\":\"0123456789\"}\n\n", 10_000) + "event: exit\ndata: {\"exit_code\":0}\n\n"
	session := connect(t, &fakeAPI{answers: map[string]string{route: long}}, nil)
	text, _ := call(t, session, "exec", map[string]any{"stack": "stk_0123456789ab", "service": "web", "command": "ls"})
	require.LessOrEqual(t, len(text), maxLog+100)
	require.True(t, strings.HasSuffix(text, "0123456789\n0123456789"))

	session = connect(t, &fakeAPI{answers: map[string]string{route: `403 {"detail":"the stack is claimed; ask ana@example.com to do it"}`}}, nil)
	text, failed := call(t, session, "exec", map[string]any{"stack": "stk_0123456789ab", "service": "web", "command": "ls"})
	require.True(t, failed)
	require.Equal(t, "the stack is claimed; ask ana@example.com to do it", text)
}

func TestDeploy_SaysWhatIsWrongBeforeSending(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{}
	hosted := connect(t, api, nil)
	text, failed := call(t, hosted, "deploy", map[string]any{})
	require.True(t, failed)
	require.Contains(t, text, "pass it as files")
	local := connect(t, api, func(c *Config) {
		c.Pack = func(context.Context, string, io.Writer) error { return errors.New("there is no folder x") }
	})
	text, failed = call(t, local, "deploy", map[string]any{"folder": "x", "files": map[string]any{"a": "b"}})
	require.True(t, failed)
	require.Contains(t, text, "not both")
	text, failed = call(t, local, "deploy", map[string]any{"folder": "x"})
	require.True(t, failed)
	require.Equal(t, "there is no folder x", text)
	text, failed = call(t, hosted, "deploy", map[string]any{"binary_files": map[string]any{"a": "?"}})
	require.True(t, failed)
	require.Equal(t, "binary_files: a is not base64", text)
	text, failed = call(t, hosted, "deploy", map[string]any{"files": map[string]any{"a/": "b"}})
	require.True(t, failed)
	require.Equal(t, `"a/" cannot be the path of a file: it ends with a slash or has a NUL character`, text)
}

func TestToken_OfTheCallGoesBeforeTheProgramsOwn(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{answers: map[string]string{"GET /v0/stacks/stk_0123456789ab": live}}
	session := connect(t, api, func(c *Config) {
		c.Token = func(_ context.Context, id string) string { return "kept-for-" + id }
	})
	for _, args := range []map[string]any{{"stack": "stk_0123456789ab"}, {"stack": "stk_0123456789ab", "token": "mine"}} {
		_, failed := call(t, session, "status", args)
		require.False(t, failed)
	}
	require.Equal(t, []string{
		"GET /v0/stacks/stk_0123456789ab Bearer kept-for-stk_0123456789ab",
		"GET /v0/stacks/stk_0123456789ab Bearer mine",
	}, api.asked)
}

func TestHandler_AsksTheAPIInTheCallersName(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{answers: map[string]string{"GET /v0/stacks/stk_0123456789ab": live}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL)
	require.NoError(t, err)
	tools := httptest.NewServer(Handler(Config{API: c, Log: slog.New(slog.DiscardHandler), Forward: []string{"X-Caller-Ip", "X-Request-Id"}}, networkOf))
	t.Cleanup(tools.Close)
	for _, authorization := range []string{"Bearer mine", "Basic anything", ""} {
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"status","arguments":{"stack":"stk_0123456789ab"}}}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tools.URL, strings.NewReader(call))
		require.NoError(t, err)
		req.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"X-Caller-Ip": {"192.0.2.7"}, "X-Request-Id": {"req-7"}, "X-Other": {"stays"}, "Authorization": {authorization},
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Contains(t, string(text), "http://web.b")
		require.Equal(t, "192.0.2.7", api.header.Get("X-Caller-Ip"))
		require.Equal(t, "req-7", api.header.Get("X-Request-Id"))
		require.Equal(t, authorization, api.header.Get("Authorization"))
		require.Empty(t, api.header.Get("X-Other"))
	}
}

func TestDeploy_IsSentOnceAndToldWhenTheServerIsAway(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(server.Close)
	text, failed := call(t, connect(t, &fakeAPI{}, func(c *Config) { c.API, _ = client.New(server.URL) }),
		"deploy", map[string]any{"files": map[string]any{"index.html": "hi"}})
	require.True(t, failed)
	require.Equal(t, fmt.Sprintf("ask %s: Post %q: EOF", server.URL, server.URL+"/v0/stacks"), text)
}

func TestErrors_TellTheNextStep(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		401: "as token", 403: "returned for this stack", 404: "call deploy", 409: "status with wait", 422: "call again",
	} {
		api := &fakeAPI{answers: map[string]string{"GET /v0/stacks/x": fmt.Sprintf(`%d {"detail":"why"}`, status)}}
		text, failed := call(t, connect(t, api, nil), "status", map[string]any{"stack": "x"})
		require.True(t, failed)
		require.Contains(t, text, "why\n")
		require.Contains(t, text, want)
	}
}

func TestArguments_OfTheWrongShapeAreExplainedInShort(t *testing.T) {
	t.Parallel()
	session := connect(t, &fakeAPI{}, nil)
	long := strings.Repeat("hello ", 100_000)
	for _, c := range []struct {
		tool string
		args map[string]any
		want string
	}{
		{"validate", map[string]any{"files": []any{map[string]any{"path": "a", "content": long}}}, "files must be of type object, not array (files: the source, as a map from path to text"},
		{"deploy", map[string]any{"files": map[string]any{"a": []any{long}}}, "each value of files must be of type string, not array (files: the source, as a map"},
		{"deploy", map[string]any{"name": map[string]any{"a": long}}, "name must be of type string, not object (name: name of the stack)"},
		{"validate", map[string]any{"files": map[string]any{"a": ""}, "stack_id": "x"}, `unexpected additional properties ["stack_id"]`},
		{"validate", map[string]any{long: ""}, `unexpected additional properties ["hello`},
		{"status", map[string]any{}, `missing properties: ["stack"]`},
	} {
		text, failed := call(t, session, c.tool, c.args)
		require.True(t, failed)
		require.LessOrEqual(t, len(text), maxError)
		require.Contains(t, text, c.want)
	}
}

func TestCalls_OfAToolThatThereIsNotAreRefused(t *testing.T) {
	t.Parallel()
	session := connect(t, &fakeAPI{}, nil)
	for _, name := range []string{"", "nope", "Deploy"} {
		_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: name})
		require.ErrorContains(t, err, "unknown tool")
	}
	_, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
}

func TestCalls_ThatPanicFailAlone(t *testing.T) {
	t.Parallel()
	session := connect(t, &fakeAPI{}, func(c *Config) {
		c.Token = func(context.Context, string) string { panic("a fault of ours") }
	})
	_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "status", Arguments: map[string]any{"stack": "x"}})
	require.ErrorContains(t, err, "internal error")
	require.NotContains(t, err.Error(), "a fault of ours")
	_, err = session.ListTools(t.Context(), nil)
	require.NoError(t, err)
}

func TestReport_IsShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a line of an error\n", 1000)
	text := report(&client.Stack{ID: "stk_0123456789ab", Status: "failed", Error: &long})
	require.Less(t, len(text), maxError+500)
	require.Contains(t, text, "read logs")
	require.Less(t, len(lastOf(strings.Repeat("é", maxLog), maxLog)), maxLog+100)
}

func TestReport_ShowsWhatADeployIsDoing(t *testing.T) {
	t.Parallel()
	deploying, phase, service, problem := 2, "health", "web", "web listens on 127.0.0.1:3000"
	s := &client.Stack{Status: "live", Generation: 1, Deploying: &deploying, Deploy: &client.Deploy{Attempt: 3, Outcome: client.Running, Phase: &phase}}
	require.Contains(t, report(s), "generation 2 is being built; 1 serves\nattempt: 3\nphase: health\nnext: call status")
	s.Deploy.Service, s.Deploy.Problem = &service, &problem
	require.Contains(t, report(s), "attempt: 3\nphase: health of web\nproblem: web listens on 127.0.0.1:3000\nnext: fix the problem")
}

func TestEvents_SayWhereToGoOn(t *testing.T) {
	t.Parallel()
	var events []string
	for id := range 60 {
		events = append(events, fmt.Sprintf(`{"id":%d,"type":"stack.extended","data":{"expires_at":1},"created_at":0.5}`, id+1))
	}
	api := &fakeAPI{answers: map[string]string{"GET /v0/stacks/x/events?after=0": `{"events":[` + strings.Join(events, ",") + `]}`}}
	text, failed := call(t, connect(t, api, nil), "events", map[string]any{"stack": "x"})
	require.False(t, failed)
	require.Contains(t, text, "[10 earlier events are omitted]")
	require.Contains(t, text, "60 1970-01-01 00:00:00 stack.extended {\"expires_at\":1}")
	require.Contains(t, text, "call events with after 60 for later events.")
}

func TestValidate_TellsThePlanAndItsFaults(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{answers: map[string]string{"POST /v0/validate": `{"valid":false,"faults":["service web: it has no start"],"name":"app",
		"services":[{"name":"web","runtime":"node","version":"22","root":".","from":{"version":".nvmrc"}}]}`}}
	text, failed := call(t, connect(t, api, nil), "validate", map[string]any{"files": map[string]any{"a": "b"}})
	require.False(t, failed)
	require.Equal(t, `valid: false
name: app
fault: service web: it has no start
service web:
  runtime: node
  version: 22 (from .nvmrc)
  root: .
next: fix the faults and call validate again.`, text)
}

func TestValidate_ChecksAManifestAlone(t *testing.T) {
	api := &fakeAPI{answers: map[string]string{
		"POST /v0/validate": `{"valid":true,"faults":[],"name":"app","ttl":null,"services":[{"name":"web","runtime":"","root":".","from":{"runtime":"detected from the source"}}]}`,
	}}
	text, failed := call(t, connect(t, api, nil), "validate", map[string]any{"manifest": "name: app"})
	require.False(t, failed, text)
	require.Nil(t, api.source)
	require.Equal(t, url.Values{"manifest": {"name: app"}}, api.form)
	require.Equal(t, `valid: true
name: app
service web:
  root: .
next: call deploy, or redeploy for an existing stack.`, text)
}

func TestRestart_SaysWhatToDoNext(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{answers: map[string]string{
		"POST /v0/stacks/stk_1/restart?service=web": `{"id":"stk_1","name":"app","status":"live","services":[{"name":"web","status":"restarting"}],"urls":{"web":"http://web"}}`,
	}}
	text, failed := call(t, connect(t, api, nil), "restart", map[string]any{"stack": "stk_1", "service": "web"})
	require.False(t, failed, text)
	require.Contains(t, text, "web: restarting, http://web")
	require.Contains(t, text, "next: call status until no service is restarting")
}

func TestLogs_AreReadWithTimestamps(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{answers: map[string]string{"GET /v0/stacks/stk_1/logs?tail=60&timestamps=true": "### web (run)\n2026-01-02T03:04:05.678Z gen 1 hello\n"}}
	text, failed := call(t, connect(t, api, nil), "logs", map[string]any{"stack": "stk_1", "timestamps": true})
	require.False(t, failed, text)
	require.Equal(t, "### web (run)\n2026-01-02T03:04:05.678Z gen 1 hello\n", text)
}

func TestEnv_IsListedAndChanged(t *testing.T) {
	t.Parallel()
	const path = " /v0/stacks/stk_0123456789ab/env"
	api := &fakeAPI{answers: map[string]string{
		"GET" + path:   `{"variables": [{"service": null, "name": "REGION", "from": "set", "changed_at": 1767323045.25}, {"service": "web", "name": "LEVEL", "from": "manifest", "changed_at": null}]}`,
		"PATCH" + path: `{"id": "stk_0123456789ab", "status": "live", "generation": 2, "deploying": null, "deploy_error": "an earlier failure"}`,
	}}
	session := connect(t, api, nil)
	text, failed := call(t, session, "list_env", map[string]any{"stack": "stk_0123456789ab"})
	require.False(t, failed)
	require.Equal(t, "all services: REGION, set 2026-01-02T03:04:05Z\nweb: LEVEL, manifest\n", text)
	text, failed = call(t, session, "set_env", map[string]any{"stack": "stk_0123456789ab", "service": "web", "variables": map[string]any{"KEY": "value", "OLD": nil}, "build": false})
	require.False(t, failed, text)
	require.Contains(t, text, "nothing changes")
	require.Contains(t, text, "generation: 2")
	text, failed = call(t, session, "set_env", map[string]any{"stack": "stk_0123456789ab", "variables": map[string]any{"PORT": 8080}})
	require.True(t, failed)
	require.Contains(t, text, "each value of variables must be of type")
}
