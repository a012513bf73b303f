package mcp

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/client"
)

// fakeAPI answers as Berth does and records the requests.
type fakeAPI struct {
	asked   []string    // method, path and Authorization
	header  http.Header // of the last request
	source  map[string]string
	answers map[string]string // by method and path; one that begins with a status is an error
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := r.Method + " " + r.URL.RequestURI()
	f.header = r.Header
	f.asked = append(f.asked, strings.TrimSpace(route+" "+r.Header.Get("Authorization")))
	if file, _, err := r.FormFile("source"); err == nil {
		f.source = unpack(file)
	}
	w.Header().Set("Content-Type", "application/json")
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
		require.LessOrEqual(t, len(list.Tools), 10)
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
