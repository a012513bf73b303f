package edge

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// serviceOf serves a program as the test's service.
func serviceOf(t *testing.T, program http.HandlerFunc) (addr string) {
	t.Helper()
	backend := httptest.NewServer(program)
	t.Cleanup(backend.Close)
	cfg := testConfig(who("api"))
	target := proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet})
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(target)})
	addr, _ = start(t, cfg)
	return addr
}

// A caller of HTTP/1.0 gets no coding that it cannot read, and the service hears of our own
// version (RFC 9112, 2.3 and 6.1).
func TestEdge_SpeaksItsOwnVersionToEachSide(t *testing.T) {
	addr := serviceOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		fmt.Fprint(w, r.Proto, strings.Repeat(".", 100_000))
	})
	text := raw(t, addr, "GET / HTTP/1.0\r\nHost: "+testService+"\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1"+strings.Repeat(".", 100_000), string(body))
	require.Nil(t, res.TransferEncoding)
	text = raw(t, addr, "GET / HTTP/1.1\r\nHost: "+testService+"\r\nConnection: close\r\n\r\n")
	require.Contains(t, text, "Transfer-Encoding: chunked\r\n")
	require.True(t, strings.HasSuffix(text, "...\r\n0\r\n\r\n"))
}

// What lies between the request line and the first field, and chunks with extensions (RFC
// 9112, 2.2 and 7.1.1).
func TestEdge_ReadsWhatTheRulesAllowAndNoMore(t *testing.T) {
	addr := serviceOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%q %v", body, err)
	})
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\n Host: " + testService + "\r\n\r\n":           "HTTP/1.1 400 ",
		"GET / HTTP/1.1\r\n \r\nHost: " + testService + "\r\n\r\n":       "HTTP/1.1 400 ",
		"GET / HTTP/1.1\r\nHost: " + testService + "\r\nX: a\rb\r\n\r\n": "HTTP/1.1 400 ",
		"POST / HTTP/1.1\r\nHost: " + testService + "\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3;a=\"b\";c\r\nabc\r\n1; d\r\n!\r\n0;e\r\nX-Trailer: f\r\n\r\n": `"abc!" <nil>`,
	} {
		require.Contains(t, raw(t, addr, request), want, "%q", request)
	}
}

var namedTest = regexp.MustCompile(`\b(?:Test[A-Z]\w*_\w+|Fuzz[A-Z]\w+)`)

// The table of RFC 9112 names tests that there are.
func TestConformance_IsHeldByTestsThatThereAre(t *testing.T) {
	var tests strings.Builder
	for _, name := range []string{"proxy", "edge", "exchange", "wire"} {
		files, err := filepath.Glob(filepath.Join("..", name, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			tests.Write(text)
		}
	}
	table, err := os.ReadFile("../proxy/doc.go")
	require.NoError(t, err)
	named := namedTest.FindAllString(string(table), -1)
	require.Greater(t, len(named), 30)
	for _, name := range named {
		require.Contains(t, tests.String(), "func "+name+"(")
	}
}
