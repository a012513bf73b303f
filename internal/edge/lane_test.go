package edge

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// drained has nothing of the routes left behind when the test has ended, such as connections to
// services, which are kept for a while.
func drained(t testing.TB, routes *proxy.Routes) {
	t.Cleanup(func() { _ = routes.Drain(t.Context()) }) // an error says that something had to be cut off
}

// lanesOf serves a program in the first lane, and counts the connections by lane.
func lanesOf(t *testing.T, program http.Handler, certificates ...tls.Certificate) (addr string, counted func(lane string) int64) {
	t.Helper()
	backend := httptest.NewServer(program)
	t.Cleanup(backend.Close)
	counts := map[string]*atomic.Int64{fast: {}, standard: {}, handedOver: {}}
	cfg := testConfig(who("api"))
	cfg.FastLane = true
	if certificates != nil {
		cfg.TLS = &tls.Config{Certificates: certificates}
	}
	cfg.Connected = func(lane string) { counts[lane].Add(1) }
	target := proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet})
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(target)})
	addr, _ = start(t, cfg)
	return addr, func(lane string) int64 { return counts[lane].Load() }
}

func TestLane_HandsOverWhatIsNotPlainForGood(t *testing.T) {
	addr, counted := lanesOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.URL.Path, text)
	}))
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	br := bufio.NewReader(c)
	for i, request := range []string{
		"GET /1 HTTP/1.1\r\nHost: " + testService + "\r\n\r\n",
		"POST /2 HTTP/1.1\r\nHost: " + testService + "\r\nContent-Length: 3\r\n\r\nabc",
		"POST /3 HTTP/1.1\r\nHost: " + testService + "\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"GET /4 HTTP/1.1\r\nHost: " + testService + "\r\n\r\n",
	} {
		_, err := io.WriteString(c, request)
		require.NoError(t, err)
		res, err := http.ReadResponse(br, nil)
		require.NoError(t, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), fmt.Sprintf("/%d ", i+1)), "%s", text)
		require.EqualValues(t, i/2, counted(handedOver))
	}
	require.EqualValues(t, 1, counted(fast))
	require.Zero(t, counted(standard))
}

// A head may come in two pieces, wherever it is cut, and is read as if it had come in one.
func TestLane_TakesHeadsInPieces(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	for name, certificates := range map[string][]tls.Certificate{"plain": nil, "TLS": borrowed.TLS.Certificates} {
		t.Run(name, func(t *testing.T) { takesHeadsInPieces(t, certificates) })
	}
}

func takesHeadsInPieces(t *testing.T, certificates []tls.Certificate) {
	addr, counted := lanesOf(t, who("web"), certificates...)
	for _, request := range []string{
		"GET /a HTTP/1.1\r\nHost: " + testService + "\r\nConnection: close\r\n\r\n",
		"GET /a HTTP/1.0\r\nHost: " + testService + "\r\n\r\n",
		"GET /a HTTP/1.1\nHost: " + testService + "\nConnection: close\n\n",
		"GET /a HTTP/1.1\r\nHost: " + testService + "\r\nX: " + strings.Repeat("x", 200) + "\r\nConnection: close\r\n\r\n",
	} {
		for cut := 1; cut < len(request); cut++ {
			c, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			require.NoError(t, c.SetDeadline(time.Now().Add(9*time.Second))) // the head's limit is longer
			if certificates != nil {
				c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) // the lane is tested, not the certificate
			}
			_, _ = io.WriteString(c, request[:cut])
			time.Sleep(2 * time.Millisecond)
			_, _ = io.WriteString(c, request[cut:])
			text, err := io.ReadAll(c)
			require.NoError(t, err)
			require.Contains(t, string(text), "web", "%q, cut at %d", request, cut)
			require.Regexp(t, "^HTTP/1.. 200 OK\r\n", string(text))
			c.Close()
		}
	}
	require.Positive(t, counted(handedOver))
}

// Idle connections cost little, their goroutines and this test's own ends included, but for what
// a caller keeps of TLS.
func TestLane_KeepsNothingForAnIdleConnection(t *testing.T) {
	for _, tt := range []struct {
		name         string
		certificates []tls.Certificate
		most         int64 // bytes; with TLS its keys, a deeper stack and the last record are there too
	}{{"plain", nil, 8 << 10}, {"TLS", []tls.Certificate{certificate(t)}, 32 << 10}} {
		t.Run(tt.name, func(t *testing.T) {
			const conns = 500
			addr, counted := lanesOf(t, who("web"), tt.certificates...)
			dial := func() {
				c, err := net.Dial("tcp", addr)
				require.NoError(t, err)
				t.Cleanup(func() { c.Close() })
				if tt.certificates != nil {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) // the lane is tested, not the certificate
				}
				_, err = io.WriteString(c, "GET /a HTTP/1.1\r\nHost: "+testService+"\r\nX-Long: "+strings.Repeat("x", 3000)+strings.Repeat("\r\nX-Many: x", 90)+"\r\n\r\n")
				require.NoError(t, err)
				_, err = c.Read(make([]byte, 4096))
				require.NoError(t, err)
			}
			dial()
			before := used()
			for range conns {
				dial()
			}
			each := (used() - before) / conns
			require.EqualValues(t, conns+1, counted(fast))
			t.Logf("%d bytes for each idle connection", each)
			require.LessOrEqual(t, each, raceCost*tt.most)
		})
	}
}

// used returns how much memory is in use, stacks included.
func used() int64 {
	var m runtime.MemStats
	for range 6 { // stacks shrink, pools empty
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func TestLane_SpeaksTLS(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	addr, counted := lanesOf(t, who("web"), borrowed.TLS.Certificates...)
	roots := x509.NewCertPool()
	roots.AddCert(borrowed.Certificate())
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: "example.com", NextProtos: []string{"http/1.1"}})
	require.NoError(t, err)
	defer c.Close()
	br := bufio.NewReader(c)
	for range 3 {
		_, err = io.WriteString(c, "GET /a HTTP/1.1\r\nHost: "+testService+"\r\n\r\n")
		require.NoError(t, err)
		res, err := http.ReadResponse(br, nil)
		require.NoError(t, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Contains(t, string(text), "web")
	}
	require.EqualValues(t, 1, counted(fast))
	require.Zero(t, counted(handedOver))
}
