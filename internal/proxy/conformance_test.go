package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
)

// Sizes of chunks that no integer holds, or that have more digits than one needs, are not what is
// left of them once they overflow (RFC 9112, 7.1).
var oversized = []string{"10000000000000003", "ffffffffffffffff", "8000000000000003", "00000000000000003", "100000000000000000000000000000003"}

func TestProxy_TakesNoChunkForLessThanItsSize(t *testing.T) {
	for _, size := range oversized {
		text := "3\r\nabc\r\n" + size + "\r\nabc\r\n0\r\n\r\n"
		t.Run(size, func(t *testing.T) {
			f := newFront(t, says(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+text), proxy.Options{})
			res, err := newClient(t).Do(request(t, "GET", f.addr, "/", nil))
			if err == nil {
				_, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			require.Error(t, err, "the client takes a part for the whole")

			whole := make(chan bool, 1)
			f = newFront(t, serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				whole <- err == nil
			})), proxy.Options{})
			c := dial(t, f.addr)
			_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+testHost+"\r\nTransfer-Encoding: chunked\r\n\r\n"+text)
			require.NoError(t, err)
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
			answer, _ := io.ReadAll(c)
			require.NotContains(t, string(answer), " 200 OK")
			require.False(t, within(t, "the body", whole), "the service takes a part for the whole")
		})
	}
}

// A connection to a service carries another request only if the service has said that it stays
// (RFC 9112, 9.3).
func TestProxy_KeepsConnectionsThatServicesKeep(t *testing.T) {
	for answer, kept := range map[string]bool{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok":                                                      true,
		"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok":                            true,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n":                           true,
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok":                                 false,
		"HTTP/1.1 200 OK\r\nConnection: X-A, Close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n": false,
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok":                                                      false,
		"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok":                                 false,
	} {
		var conns atomic.Int64
		f := newFront(t, script(t, func(c net.Conn, br *bufio.Reader, _ string) { // which keeps all of them
			conns.Add(1)
			for err := error(nil); err == nil; _, err = readHead(br) {
				io.WriteString(c, answer)
			}
		}), proxy.Options{})
		client := newClient(t)
		for range 3 {
			res, err := client.Do(request(t, "GET", f.addr, "/", nil))
			require.NoError(t, err, "%q", answer)
			text, err := io.ReadAll(res.Body)
			require.NoError(t, err, "%q", answer)
			require.Equal(t, "ok", strings.TrimSpace(string(text)))
			res.Body.Close()
		}
		require.Equal(t, kept, conns.Load() == 1, "%d connections for %q", conns.Load(), answer)
	}
}

// TE is for the next server alone, and so is said to be (RFC 9112, 7.4): a service learns that
// trailers are welcome, and of nothing else.
func TestProxy_SendsTEWithItsConnectionOption(t *testing.T) {
	heads := make(chan string, 1)
	f := newFront(t, script(t, func(c net.Conn, _ *bufio.Reader, head string) {
		heads <- head
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}), proxy.Options{})
	for _, tt := range []struct {
		sent           string
		te, connection []string
	}{
		{"TE: trailers\r\nConnection: TE, close\r\n", []string{"trailers"}, []string{"TE"}},
		{"TE: trailers\r\nConnection: close\r\n", []string{"trailers"}, []string{"TE"}},
		{"TE: gzip, Trailers;q=0.5\r\nTE: trailers\r\nConnection: close, te\r\n", []string{"trailers"}, []string{"TE"}},
		{"TE: gzip\r\nConnection: TE, close\r\n", nil, nil},
		{"TE: trailers\r\nConnection: TE, Upgrade, close\r\nUpgrade: lines\r\n", []string{"trailers"}, []string{"Upgrade", "TE"}},
		{"TE: trailers\r\nConnection: Upgrade, close\r\nUpgrade: lines\r\n", []string{"trailers"}, []string{"Upgrade", "TE"}},
		{"Connection: Upgrade, TE, close\r\nUpgrade: lines\r\n", nil, []string{"Upgrade"}},
	} {
		raw(t, f.addr, "GET / HTTP/1.1\r\nHost: "+testHost+"\r\n"+tt.sent+"\r\n")
		head, err := http.ReadRequest(bufio.NewReader(strings.NewReader(within(t, "the request", heads))))
		require.NoError(t, err)
		require.Equal(t, tt.te, head.Header["Te"], "%q", tt.sent)
		require.Equal(t, tt.connection, head.Header["Connection"], "%q", tt.sent)
	}
}
