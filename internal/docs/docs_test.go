package docs

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func newDocuments(t *testing.T, base string) *Documents {
	t.Helper()
	return newDocumentsWith(t, base, Resources{Pids: 1024, DiskFloor: 1e9})
}

func newDocumentsWith(t *testing.T, base string, r Resources) *Documents {
	t.Helper()
	u, err := url.Parse(base)
	require.NoError(t, err)
	d, err := New(Values{
		Base:            u,
		Limits:          stack.Limits{TTL: time.Hour, TTLMin: 15 * time.Minute, TTLMax: 24 * time.Hour, Retention: 7 * 24 * time.Hour, UnclaimedPerIP: 3, Crashes: 5, CrashWindow: 10 * time.Minute},
		MaxUpload:       50e6,
		Wait:            90 * time.Second,
		CreatesPerHour:  30,
		RefusedPerHour:  120,
		ClaimsPerMinute: 10,
		Extensions:      1000,
		Resources:       r,
	})
	require.NoError(t, err)
	return d
}

func TestOpenAPI_IsValid(t *testing.T) {
	t.Parallel()
	d := newDocuments(t, "https://berth.example")
	doc, err := openapi3.NewLoader().LoadFromData([]byte(d.Text("/openapi.json")))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	require.Equal(t, "https://berth.example", doc.Servers[0].URL)
}

func TestReference_HasEveryOperation(t *testing.T) {
	t.Parallel()
	d := newDocuments(t, "https://berth.example")
	doc, err := openapi3.NewLoader().LoadFromData([]byte(d.Text("/openapi.json")))
	require.NoError(t, err)
	shown := map[string]Operation{}
	for _, g := range d.Reference.Groups {
		for _, o := range g.Operations {
			shown[o.Method+" "+o.Path] = o
		}
	}
	count := 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			count++
			o := shown[method+" "+path]
			require.NotEmpty(t, o.Summary, "%s %s", method, path)
			require.NotEmpty(t, o.Auth, "%s %s", method, path)
			require.Len(t, o.Responses, op.Responses.Len(), "%s %s", method, path)
			require.Len(t, o.Parameters, len(item.Parameters)+len(op.Parameters), "%s %s", method, path)
		}
	}
	require.Len(t, shown, count)
	for _, e := range d.Reference.Errors {
		require.NotEmpty(t, e.Status, e.Description)
	}
	full := d.Text("/llms-full.txt")
	for route := range shown {
		require.Contains(t, full, "### "+route)
	}
}

func TestReference_NamesTypesInWords(t *testing.T) {
	t.Parallel()
	for _, s := range newDocuments(t, "https://berth.example").Reference.Schemas {
		for _, f := range s.Fields {
			require.NotEmpty(t, f.Type, "%s.%s", s.Name, f.Name)
			require.NotContains(t, f.Type, "#/")
			if s.Name == "Stack" && f.Name == "services" {
				require.Equal(t, "list of Service", f.Type)
			}
		}
	}
}

func TestTexts_SpeakOfThisServer(t *testing.T) {
	t.Parallel()
	local, public := newDocuments(t, "http://localhost:8080"), newDocuments(t, "https://berth.example")
	for _, path := range []string{"/", "/llms.txt", "/llms-full.txt", "/openapi.json", "/schema/stack.json"} {
		text := public.Text(path)
		require.Contains(t, text, "https://berth.example/", path)
		require.NotContains(t, text, "localhost", path)
		require.NotContains(t, text, "{{", path)
		require.NotContains(t, text, "<no value>", path)
	}
	require.Contains(t, local.Text("/llms.txt"), "send the name in the `Host` header")
	for _, figure := range []string{
		"- `ttl` (string, required): Numbers", "- `ttl` (string, optional, default 1h): Numbers", `("" or utf-8 or base64, optional)`,
		"kept for 7 days", "30 an hour, and 120 more", "Extensions of one stack: 1000 a minute", "more than 5 times in 10m",
	} {
		require.Contains(t, public.Text("/llms-full.txt"), figure)
	}
}

func TestLLMs_SaysWhatAServiceGets(t *testing.T) {
	t.Parallel()
	text := newDocuments(t, "https://berth.example").Text("/llms.txt")
	for _, line := range []string{
		"- Memory: no limit of its own; it shares the host's.\n", "- CPU: all cores of the host, shared", "while less than 1 GB is free",
		"threads: at most 1024.\n", "public IPv4 addresses and DNS. It", "use their public registries.\n",
	} {
		require.Contains(t, text, line)
	}
	text = newDocumentsWith(t, "https://berth.example", Resources{
		Memory: 512e6, BuildMemory: 2e9, CPUs: 1.5, Pids: 100, OpenHosts: []string{"db.internal:5432"},
		PackageHosts: []string{"GOPROXY: go.internal", "NPM_CONFIG_REGISTRY: npm.internal"},
	}).Text("/llms.txt")
	for _, line := range []string{
		"- Memory: 512 MB; a process that needs more is killed. An install or build command gets 2 GB.\n", "- CPU: 1.5 cores. Builds",
		"- Disk: no limit of its own. Only", "threads: at most 100.\n", "and DNS, and db.internal:5432. It",
		"can reach it.\n  - `GOPROXY: go.internal`\n  - `NPM_CONFIG_REGISTRY: npm.internal`\n\n## What is detected",
	} {
		require.Contains(t, text, line)
	}
}

func TestHandler_ServesDocuments(t *testing.T) {
	t.Parallel()
	d := newDocuments(t, "https://berth.example")
	ask := func(method, path string) *http.Response {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Result()
	}
	for _, path := range []string{"/openapi.json", "/schema/stack.json"} {
		require.True(t, d.Has(path))
		require.Contains(t, ask(http.MethodGet, path).Header.Get("Content-Type"), "json")
		require.True(t, json.Valid([]byte(d.Text(path))), path)
		require.Equal(t, "*", ask(http.MethodGet, path).Header.Get("Access-Control-Allow-Origin"))
	}
	require.False(t, d.Has("/"))
	require.False(t, d.Has("/docs"))
	require.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodPost, "/llms.txt").StatusCode)
	front := ask(http.MethodGet, "/")
	require.Equal(t, "text/plain; charset=utf-8", front.Header.Get("Content-Type"))
	for _, link := range front.Header.Values("Link") {
		path, _, _ := strings.Cut(strings.TrimPrefix(link, "<"), ">")
		require.True(t, d.Has(path) || path == "/docs", path)
	}
}
