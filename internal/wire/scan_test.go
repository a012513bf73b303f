package wire

import (
	"bufio"
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plain are heads that Scan reads.
var plain = []string{
	"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /a/b%20c?d=e&f=%2F HTTP/1.1\r\nHost: web-0123456789ab.apps.test:8080\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
	"HEAD / HTTP/1.1\r\nhost:a\r\naccept:\r\n\r\n",
	"DELETE /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nCONNECTION: Keep-Alive\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n",
	"PUT / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 000\r\nX-A: \t b\tc \r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nPragma: no-cache\r\nCache-Control: no-cache\r\n\r\n",
	"PURGE / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
}

func TestScan_ReadsPlainHeadsAsNetHTTPDoes(t *testing.T) {
	var s Scanner
	var r Request
	for _, text := range plain {
		for cut := range len(text) {
			_, v := s.Scan(&r, []byte(text[:cut]))
			require.Equal(t, Partial, v, "%q", text[:cut])
		}
		n, v := s.Scan(&r, []byte(text+"GET /next"))
		require.Equal(t, Plain, v, "%q", text)
		require.Equal(t, len(text), n)
		sameAsNetHTTP(t, &r, text)
	}
	require.Equal(t, int64(0), r.Length)
	require.True(t, r.Sized)
}

// sameAsNetHTTP asserts that net/http reads the request in the same way.
func sameAsNetHTTP(t *testing.T, r *Request, text string) {
	t.Helper()
	br := bufio.NewReader(strings.NewReader(text))
	want, err := http.ReadRequest(br)
	require.NoError(t, err, "%q", text)
	require.Equal(t, 0, br.Buffered(), "%q has another end for net/http", text)
	require.Equal(t, want.Method, r.Method)
	require.Equal(t, want.RequestURI, r.Target)
	require.Equal(t, want.Host, r.Host)
	require.Equal(t, want.Close, r.Close)
	require.Equal(t, want.ContentLength, r.Length)
	require.Nil(t, want.TransferEncoding)
	require.True(t, want.ProtoAtLeast(1, 1))
	fields := http.Header{}
	for _, f := range r.Fields {
		if !slices.Contains([]string{"Connection"}, f.Key) {
			fields[f.Key] = append(fields[f.Key], f.Value)
		}
	}
	want.Header.Del("Connection") // net/http keeps it, too
	require.Equal(t, want.Header, fields)
}

func TestScan_LeavesTheRestToNetHTTP(t *testing.T) {
	var s Scanner
	for name, text := range map[string]string{
		"HTTP/1.0":              "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
		"HTTP/2":                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"no version":            "GET /\r\n\r\n",
		"small version":         "GET / http/1.1\r\nHost: a\r\n\r\n",
		"TLS":                   "\x16\x03\x01\x02\x00\n\r\n",
		"an empty line first":   "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"two spaces":            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
		"space in the target":   "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
		"whole URL":             "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"star":                  "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"CONNECT":               "CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n",
		"two slashes":           "GET //b/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"fragment":              "GET /#a HTTP/1.1\r\nHost: a\r\n\r\n",
		"bad escape":            "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
		"cut escape":            "GET /%2 HTTP/1.1\r\nHost: a\r\n\r\n",
		"byte of UTF-8":         "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
		"small method":          "get / HTTP/1.1\r\nHost: a\r\n\r\n",
		"bare line feed":        "GET / HTTP/1.1\nHost: a\n\n",
		"bare line feed at end": "GET / HTTP/1.1\r\nHost: a\r\n\n",
		"CR in the value":       "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
		"NUL":                   "GET / HTTP/1.1\r\nHost: a\r\nX: a\x00\r\n\r\n",
		"byte above ASCII":      "GET / HTTP/1.1\r\nHost: a\r\nX: \xe9\r\n\r\n",
		"folded":                "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
		"space before colon":    "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
		"no colon":              "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
		"no name":               "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
		"underscore":            "GET / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\n\r\n",
		"no Host":               "GET / HTTP/1.1\r\n\r\n",
		"empty Host":            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"two Hosts":             "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
		"IPv6 Host":             "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n",
		"Host with a path":      "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"two lengths":           "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
		"list of lengths":       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n",
		"signed length":         "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
		"empty length":          "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
		"huge length":           "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\n",
		"chunked":               "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
		"chunked and length":    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"expectation":           "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
		"upgrade":               "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"upgrade alone":         "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n",
		"hop by hop":            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-A\r\nX-A: b\r\n\r\n",
		"two Connections":       "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: close\r\n\r\n",
		"trailers":              "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n",
		"internal":              "GET / HTTP/1.1\r\nHost: a\r\nBerth-Client-IP: 1.2.3.4\r\n\r\n",
		"two ids":               "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\r\nX-Request-ID: b\r\n\r\n",
		"Pragma":                "GET / HTTP/1.1\r\nHost: a\r\nPragma: no-cache\r\n\r\n",
		"too many":              "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: a\r\n", maxFields) + "\r\n",
	} {
		r := Request{}
		_, v := s.Scan(&r, []byte(text))
		require.Equal(t, Other, v, "%s: %+v", name, r)
	}
}

// FuzzScan holds the scanner against net/http's reader: what ours takes for a plain head,
// net/http reads the same way, and the head ends at the same byte.
func FuzzScan(f *testing.F) {
	for _, text := range plain {
		f.Add([]byte(text))
		f.Add([]byte(strings.ReplaceAll(text, "\r\n", "\n")))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var s Scanner
		var r Request
		before := bytes.Clone(p)
		n, v := s.Scan(&r, p)
		require.Equal(t, before, p, "Scan has changed what it read")
		if v != Plain {
			require.Zero(t, n)
			return
		}
		sameAsNetHTTP(t, &r, string(p[:n]))
		for cut := range n {
			_, v := s.Scan(&r, p[:cut])
			require.Equal(t, Partial, v, "cut at %d", cut)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	var s Scanner
	var r Request
	p := []byte(plain[1])
	b.ReportAllocs()
	for b.Loop() {
		if _, v := s.Scan(&r, p); v != Plain {
			b.Fatal(v)
		}
	}
}
