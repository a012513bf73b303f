package edge

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// processorTime returns how much processor time this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// While a service thinks, requests behind its own that nobody reads yet cost nothing, as few or as
// many as they are.
func TestLane_UnreadBytesMakeNothingSpin(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it was run with both lanes already")
	}
	const thinks = time.Second
	own := certificate(t)
	for _, lane := range []string{fast, standard} {
		for _, secure := range []bool{false, true} {
			for _, behind := range []int{100, 1 << 20} { // a part of what a lane reads ahead, and more than that
				t.Run(fmt.Sprintf("%s, TLS %v, %d bytes", lane, secure, behind), func(t *testing.T) {
					began, thought := make(chan struct{}), make(chan struct{})
					first := sync.OnceFunc(func() { close(began) })
					backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						first()
						<-thought // net/http does not see behind what it has not read that the caller has left
					}))
					defer backend.Close()
					defer close(thought)
					cfg := testConfig(who("api"))
					drained(t, cfg.Routes)
					cfg.FastLane = lane == fast
					cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
					if secure {
						cfg.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
					}
					addr, _ := start(t, cfg)
					c := dialLane(t, addr, secure)
					defer func() { _ = leavers["resets"](c) }() // or its end would wait behind what nobody reads
					request := soakHead("GET /a") + "\r\n"
					go func() { _, _ = c.Write(bytes.Repeat([]byte(request), 1+behind/len(request))) }() // there may be no room for all
					within(t, "the request", began)
					least := time.Hour
					for tries := 0; least > thinks/10 && tries < 10; tries++ { // what earlier tests have left may still be busy
						before := processorTime(t)
						time.Sleep(thinks)
						least = min(least, processorTime(t)-before)
					}
					require.LessOrEqual(t, least, thinks/10)
					t.Logf("%s of processor time in %s", least, thinks)
				})
			}
		}
	}
}
