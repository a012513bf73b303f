package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestErrors_OfTheRouterSayWhatThereIs(t *testing.T) {
	t.Parallel()
	h := start(t)
	for _, path := range []string{"/v0", "/v0/stacks/stk_0123456789ab/nothing", "/v1/stacks", "/%2e%2e/etc/passwd", "/" + strings.Repeat("x", 3000)} {
		detail := h.get(t, path).refused(t, http.StatusNotFound)
		require.Contains(t, detail, "there is no GET", path)
		require.Less(t, len(detail), 1000)
	}
	require.Contains(t, h.get(t, "/api/v1/stacks/stk_0123456789ab/events").refused(t, http.StatusNotFound), "/v0/stacks/{id}/events")
	for _, c := range [][2]string{{"PUT", "/v0/stacks"}, {"GET", "/v0/stacks"}, {"POST", "/healthz"}, {"BREW", "/v0/stacks/stk_0123456789ab"}} {
		r := h.do(t, h.request(t, c[0], c[1], nil))
		require.Contains(t, []int{http.StatusMethodNotAllowed, http.StatusNotImplemented}, r.status, "%v: %s", c, r.body)
		require.NotEmpty(t, r.detail(t))
	}
	require.Equal(t, "POST, OPTIONS", h.do(t, h.request(t, "PUT", "/v0/stacks", nil)).header.Get("Allow"))
}

func TestErrors_OfTheEdgeAreJSON(t *testing.T) {
	t.Parallel()
	h := start(t)
	host := "Host: " + strings.TrimPrefix(h.base(), "http://") + "\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"another host":              {"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", 404},
		"no host":                   {"GET / HTTP/1.1\r\n\r\n", 400},
		"two hosts":                 {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
		"a bad host":                {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		"no HTTP":                   {"hello\r\n\r\n", 400},
		"a version to come":         {"GET / HTTP/3.7\r\n" + host + "\r\n", 505},
		"large headers":             {"GET / HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 100_000) + "\r\n\r\n", 431},
		"headers larger for Fiber":  {"GET /healthz HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 30_000) + "\r\n\r\n", 431},
		"headers too many":          {"GET /healthz HTTP/1.1\r\n" + host + strings.Repeat("a: b\r\n", 5000) + "\r\n", 431},
		"a bad header":              {"GET / HTTP/1.1\r\n" + host + "a b: c\r\n\r\n", 400},
		"two lengths":               {"POST /v0/stacks HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400},
		"a bad length":              {"POST /v0/stacks HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
		"an unknown coding":         {"POST /v0/stacks HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501},
		"an unknown expectation":    {"POST /v0/stacks HTTP/1.1\r\n" + host + "Expect: wonders\r\nContent-Length: 1\r\n\r\nx", 417},
		"an absolute foreign URL":   {"GET http://example.com/ HTTP/1.1\r\n" + host + "\r\n", 400},
		"a tunnel":                  {"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", 400},
		"a service of no stack":     {"GET / HTTP/1.1\r\nHost: web-0123456789ab.localhost\r\n\r\n", 404},
		"a label of no service":     {"GET / HTTP/1.1\r\nHost: a.b.localhost\r\n\r\n", 404},
		"a chunk of no size":        {"POST /v0/stacks HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\nzz\r\n", 400},
		"an old version, no route":  {"GET /nothing HTTP/1.0\r\n" + host + "\r\n", 404},
		"an old version, no host":   {"GET /nothing HTTP/1.0\r\n\r\n", 404},
		"an upgrade that is not on": {"GET /v0/stacks/stk_0123456789ab HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 401},
	} {
		t.Run(name, func(t *testing.T) {
			r := h.raw(t, c.request)
			require.Equal(t, c.status, r.status, r.body)
			require.NotEmpty(t, r.detail(t))
		})
	}
	require.JSONEq(t, `{"ok": true}`, h.raw(t, "GET /healthz HTTP/1.0\r\n\r\n").body)
}

// raw sends bytes as they are and reads the answer to them.
func (h *Host) raw(t *testing.T, request string) Reply {
	t.Helper()
	conn := h.dial(t)
	// The answer may arrive before everything has been sent; an error of the write does
	// not matter then.
	go func() { _, _ = io.WriteString(conn, request) }()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	return read(t, res)
}

// dial connects to the server for the length of the test.
func (h *Host) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", h.addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

func TestErrors_LeaveAKeepAliveConnectionInStep(t *testing.T) {
	t.Parallel()
	h := start(t)
	conn := h.dial(t)
	answers := bufio.NewReader(conn)
	host := strings.TrimPrefix(h.base(), "http://")
	// The body of each refused request looks like a request: were it read as
	// one, the answers would be out of step.
	inner := "GET /healthz HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	for i, request := range []string{
		fmt.Sprintf("POST /v0/stacks HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer no\r\nContent-Length: %d\r\n\r\n%s", host, len(inner), inner),
		fmt.Sprintf("POST /v0/nothing HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", host, len(inner), inner),
		fmt.Sprintf("PUT /v0/stacks HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", host, len(inner), inner),
		fmt.Sprintf("DELETE /v0/stacks/stk_0123456789ab HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", host, len(inner), inner),
	} {
		_, err := io.WriteString(conn, request)
		require.NoError(t, err)
		res, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		r := read(t, res)
		require.GreaterOrEqual(t, r.status, 400)
		require.NotEmpty(t, r.detail(t))
		if res.Close {
			t.Logf("request %d closes the connection", i)
			conn = h.dial(t)
			answers = bufio.NewReader(conn)
		}
	}
	_, err := io.WriteString(conn, inner)
	require.NoError(t, err)
	res, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"ok": true}`, read(t, res).body)
}

func TestErrors_OfServicesPassAsTheyAre(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	for _, code := range []int{400, 404, 418, 500, 502, 503} {
		r := h.get(t, st.url("web", fmt.Sprintf("/status?code=%d", code)))
		require.Equal(t, code, r.status)
		require.Equal(t, "told to", r.body)
		require.Equal(t, "service", r.header.Get("X-From"))
	}
}

func TestErrors_AreNeverHTMLForAProgram(t *testing.T) {
	t.Parallel()
	h := start(t)
	for _, accept := range []string{"", "*/*", "application/json"} {
		r := h.get(t, "http://web-0123456789ab.localhost/", "Accept", accept)
		require.True(t, json.Valid([]byte(r.body)), r.body)
		r.refused(t, http.StatusNotFound)
	}
}
