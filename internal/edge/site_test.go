package edge

import (
	"bufio"
	"bytes"
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
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/site"
	"github.com/berth-host/berth/internal/stack"
)

// A site is answered from both lanes with the same, over TLS too, and what is plain about it
// without net/http.
func TestLane_AnswersFromSites(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it compares the lanes itself")
	}
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	dir := t.TempDir()
	for name, size := range map[string]int{"index.html": 10, "app.js": 9000, "logo.png": 1 << 10, "video.mp4": 300 << 10, "404.html": 20} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("content of "+name+"\n"), size/10), 0o644))
	}
	requests := []string{
		"GET / HTTP/1.1",
		"GET /logo.png HTTP/1.1",
		"HEAD /logo.png HTTP/1.1",
		"GET /app.js HTTP/1.1\r\nAccept-Encoding: gzip",
		"GET /app.js HTTP/1.1",
		"GET /video.mp4 HTTP/1.1",
		"HEAD /video.mp4 HTTP/1.1",
		"GET /video.mp4 HTTP/1.1\r\nIf-None-Match: *",
		"GET /none HTTP/1.1",
		"GET /index.html?a=%20 HTTP/1.1",
	}
	rest := []string{
		"GET /video.mp4 HTTP/1.1\r\nRange: bytes=5-20",
		"POST / HTTP/1.1\r\nContent-Length: 0",
		"GET / HTTP/1.1\r\nConnection: close",
	}
	for name, certificates := range map[string][]tls.Certificate{"plain": nil, "TLS": borrowed.TLS.Certificates} {
		t.Run(name, func(t *testing.T) {
			var answers [2][]string
			for i := range answers {
				var counts [2]atomic.Int64
				cfg := testConfig(who("api"))
				cfg.FastLane = i == 0
				if certificates != nil {
					cfg.TLS = &tls.Config{Certificates: certificates}
				}
				cfg.Connected = func(lane string) {
					switch lane {
					case fast:
						counts[0].Add(1)
					case handedOver:
						counts[1].Add(1)
					}
				}
				s, err := site.Open(dir, site.Options{})
				require.NoError(t, err)
				cfg.Routes.Remove(testHex)
				cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Unclaimed: true, Hosts: hosts(proxy.NewHandler(s))})
				addr, _ := start(t, cfg)
				c, err := net.Dial("tcp", addr)
				require.NoError(t, err)
				t.Cleanup(func() { c.Close() })
				if certificates != nil {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) // the lane is tested, not the certificate
				}
				br := bufio.NewReader(c)
				for _, r := range requests {
					answers[i] = append(answers[i], answerTo(t, c, br, r))
				}
				require.EqualValues(t, 1-i, counts[0].Load())
				require.Zero(t, counts[1].Load(), "it is handed over")
				for _, r := range rest {
					answers[i] = append(answers[i], answerTo(t, c, br, r))
				}
				require.EqualValues(t, 1-i, counts[1].Load())
			}
			require.Equal(t, answers[1], answers[0])
			require.Contains(t, answers[0][1], "X-Robots-Tag: noindex")
			require.True(t, strings.HasPrefix(answers[0][7], "304 "), answers[0][7])
		})
	}
}

// Who has a file of a site is told so although it cannot be read any more, in both lanes.
func TestLane_SaysNotModifiedWithoutTheFile(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it was run with both lanes already")
	}
	own := certificate(t)
	targets := []string{"/small.txt", "/packed.js", "/large.js"}
	for _, lane := range []string{fast, standard} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", lane, secure), func(t *testing.T) {
				dir := t.TempDir()
				for i, size := range []int{10, 9000, 300 << 10} {
					require.NoError(t, os.WriteFile(filepath.Join(dir, targets[i]), bytes.Repeat([]byte("0123456789"), size/10), 0o644))
				}
				s, err := site.Open(dir, site.Options{})
				require.NoError(t, err)
				cfg := testConfig(who("api"))
				drained(t, cfg.Routes) // which closes the site
				cfg.FastLane = lane == fast
				if secure {
					cfg.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
				}
				var changed atomic.Int64
				cfg.Connected = func(lane string) {
					if lane == handedOver {
						changed.Add(1)
					}
				}
				cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewHandler(s))})
				addr, _ := start(t, cfg)
				c := dialLane(t, addr, secure)
				br := bufio.NewReader(c)
				tags := map[string]string{} // by the requests of files
				for _, target := range targets {
					for _, accepted := range []string{"identity", "gzip"} {
						request := "GET " + target + " HTTP/1.1\r\nAccept-Encoding: " + accepted
						answer := answerTo(t, c, br, request)
						require.True(t, strings.HasPrefix(answer, "200 "), answer)
						tags[request] = etag.FindString(answer)
					}
				}
				for _, target := range targets {
					require.NoError(t, os.Remove(filepath.Join(dir, target)))
				}
				for request, tag := range tags {
					require.True(t, strings.HasPrefix(answerTo(t, c, br, request+"\r\nIf-None-Match: "+tag), "304 "), "%s, tag %s", request, tag)
				}
				require.Zero(t, changed.Load(), "it is handed over")
				require.True(t, strings.HasPrefix(answerTo(t, c, br, "GET /large.js HTTP/1.1"), "500 "))
			})
		}
	}
}

// etag is an entity tag.
var etag = regexp.MustCompile(`"[\w-]{10,}"`)

// answerTo sends a request to the service and returns what comes, but for what differs each time.
func answerTo(t *testing.T, c io.Writer, br *bufio.Reader, request string) string {
	t.Helper()
	_, err := io.WriteString(c, request+"\r\nHost: "+testService+"\r\n\r\n")
	require.NoError(t, err)
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(br, &http.Request{Method: method})
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NotEmpty(t, res.Header.Get("Date"))
	require.NotEmpty(t, res.Header.Get("X-Request-Id"))
	res.Header.Del("Date")
	res.Header.Del("X-Request-Id")
	var out strings.Builder
	out.WriteString(res.Status + " ")
	require.NoError(t, res.Header.Write(&out))
	out.Write(body)
	return out.String()
}
