package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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

// A target may be long; one that is too long is refused as any other head that is (RFC 9112, 3).
func TestEdge_RefusesTargetsThatAreTooLong(t *testing.T) {
	addr := serviceOf(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, len(r.RequestURI), " bytes") })
	for _, tt := range []struct {
		length int
		want   string
	}{
		{8000, "8000 bytes"},
		{maxPlainHead - 100, fmt.Sprint(maxPlainHead-100, " bytes")},
		{maxPlainHead, fmt.Sprint(maxPlainHead, " bytes")}, // which is for net/http in both lanes
		{65_000, "65000 bytes"},
		{130_000, "HTTP/1.1 431 "},
	} {
		for _, host := range []string{testService, "berth.test"} {
			text := raw(t, addr, "GET /"+strings.Repeat("x", tt.length-1)+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
			if tt.length <= maxHead && host != testService {
				require.Contains(t, text, "HTTP/1.1 200 ", "%d bytes", tt.length)
				continue
			}
			require.Contains(t, text, tt.want, "%d bytes", tt.length)
			if tt.length > maxHead {
				require.Contains(t, text, `{"detail":"the request's headers are too large; send fewer or shorter ones"}`)
			}
		}
	}
}

// Connections stay open as long as both sides say so, and an answer that ends one says so (RFC
// 9112, 9.3 and 9.6).
func TestEdge_KeepsConnectionsAsLongAsItsCallersDo(t *testing.T) {
	addr := serviceOf(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "web") })
	for _, host := range []string{testService, "berth.test"} {
		for request, stays := range map[string]bool{
			"GET / HTTP/1.1\r\n":                              true,
			"GET / HTTP/1.1\r\nConnection: keep-alive\r\n":    true,
			"GET / HTTP/1.1\r\nConnection: close\r\n":         false,
			"GET / HTTP/1.1\r\nConnection: CLOSE\r\n":         false,
			"GET / HTTP/1.1\r\nConnection: x-a, Close\r\n":    false,
			"HEAD / HTTP/1.1\r\nConnection: close\r\n":        false,
			"GET / HTTP/1.0\r\n":                              false,
			"GET / HTTP/1.0\r\nConnection: close\r\n":         false,
			"GET / HTTP/1.0\r\nConnection: keep-alive\r\n":    true,
			"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc": true,
		} {
			head, body, _ := strings.Cut(request, "\r\n\r\n")
			c, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
			_, err = io.WriteString(c, strings.TrimSuffix(head, "\r\n")+"\r\nHost: "+host+"\r\n\r\n"+body)
			require.NoError(t, err)
			br := bufio.NewReader(c)
			method, _, _ := strings.Cut(request, " ")
			res, err := http.ReadResponse(br, &http.Request{Method: method})
			require.NoError(t, err, "%s: %q", host, request)
			_, err = io.Copy(io.Discard, res.Body)
			require.NoError(t, err, "%s: %q", host, request)
			if strings.Contains(request, "HTTP/1.1") {
				require.Equal(t, !stays, res.Close, "%s: %q", host, request)
			} else if stays {
				require.Equal(t, "keep-alive", res.Header.Get("Connection"), "%s: %q", host, request)
			}
			if stays {
				_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
				require.NoError(t, err)
				res, err = http.ReadResponse(br, nil)
				require.NoError(t, err, "behind %q for %s", request, host)
				require.Equal(t, 200, res.StatusCode)
				continue
			}
			_, err = br.ReadByte()
			require.ErrorIs(t, err, io.EOF, "%s: %q", host, request)
		}
	}
}

// A connection over TLS ends with a farewell, and one that its caller ends without one, or too
// early, does not make a whole of a part (RFC 9112, 9.8).
func TestEdge_SaysFarewellInTLSAndTakesNoPartForTheWhole(t *testing.T) {
	began, bodies := make(chan struct{}, 1), make(chan error, 1)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			began <- struct{}{}
		}
		_, err := io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			bodies <- err
		}
		io.WriteString(w, "web")
	}))
	defer backend.Close()
	cfg := testConfig(who("api"))
	cfg.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
	addr, _ := start(t, cfg)
	const alert = 2 + 1 + 16 // bytes of one in TLS 1.3, where all records look like data
	for _, end := range []string{"GET / HTTP/1.1\r\nHost: " + testService + "\r\nConnection: close\r\n\r\n", "GET / HTTP/1.0\r\nHost: " + testService + "\r\n\r\n", "nonsense\r\n\r\n"} {
		nc := &kept{Conn: dialLane(t, addr, false)}
		c := tls.Client(nc, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		_, err := io.WriteString(c, end)
		require.NoError(t, err)
		text, err := io.ReadAll(c)
		require.NoError(t, err, "after %q", end)
		require.Equal(t, alert, lastRecord(nc.came), "the last record after %q", end)
		require.True(t, strings.HasPrefix(string(text), "HTTP/1."), "%q", text)
	}
	for name, leave := range map[string]func(*tls.Conn) error{
		"with a farewell": func(c *tls.Conn) error { return c.CloseWrite() },
		"without one":     func(c *tls.Conn) error { return c.NetConn().(*net.TCPConn).CloseWrite() },
	} {
		for _, part := range []string{"Content-Length: 9\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
			c := dialLane(t, addr, true).(*tls.Conn)
			_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+testService+"\r\n"+part)
			require.NoError(t, err)
			<-began // else nobody is told of the request
			require.NoError(t, leave(c))
			require.Error(t, <-bodies, "%s, %q", name, part)
			c.Close()
		}
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
