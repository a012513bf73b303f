package edge

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// A network that is banned is refused in both lanes, everywhere, and by the address that a
// trusted proxy names.
func TestBanned_GetNoOtherAnswer(t *testing.T) {
	for _, fastLane := range []bool{true, false} {
		backend := httptest.NewServer(who("web"))
		t.Cleanup(backend.Close)
		var all atomic.Bool
		cfg := testConfig(who("api"))
		cfg.FastLane = fastLane
		cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		cfg.Banned = func(ip netip.Addr) bool { return all.Load() || ip == netip.MustParseAddr("203.0.113.7") }
		target := proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet})
		cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(target)})
		addr, _ := start(t, cfg)
		status := func(host, forwarded string) string {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/x", strings.NewReader("a body"))
			require.NoError(t, err)
			req.Host = host
			if forwarded != "" {
				req.Header.Set("X-Forwarded-For", forwarded)
			}
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			if res.StatusCode == http.StatusForbidden {
				require.Equal(t, "application/json", res.Header.Get("Content-Type"))
				require.Contains(t, string(text), "has banned your network")
			}
			return fmt.Sprint(res.StatusCode)
		}
		for _, host := range []string{testService, cfg.BaseHost} {
			require.Equal(t, "200", status(host, ""))
			require.Equal(t, "403", status(host, "203.0.113.7"))
			require.Equal(t, "403", status(host, "198.51.100.1, 203.0.113.7"))
			require.Equal(t, "200", status(host, "203.0.113.7, 198.51.100.1"), "whoever the proxy names counts")
			all.Store(true)
			require.Equal(t, "403", status(host, ""))
			all.Store(false)
			require.Equal(t, "200", status(host, ""))
		}
	}
}

// A network that is banned is not even redirected, but a certificate authority is answered.
func TestBanned_AreRefusedOnThePlainListener(t *testing.T) {
	cfg := PlainConfig{
		Standing: func(context.Context, string) Standing { return Certain },
		Challenge: func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/.well-known/acme-challenge/token"
		},
		Banned: func(ip netip.Addr) bool { return ip == netip.MustParseAddr("127.0.0.1") },
	}
	addr := startPlain(t, cfg)
	for path, want := range map[string]int{"/": http.StatusForbidden, "/.well-known/acme-challenge/token": http.StatusOK} {
		res, err := http.Get("http://" + addr + path)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, want, res.StatusCode, path)
	}
}

func TestBanned_AreRefusedOnThePlainListenerByTheAddressThatAProxyNames(t *testing.T) {
	cfg := PlainConfig{
		Standing:       func(context.Context, string) Standing { return Unknown },
		Banned:         func(ip netip.Addr) bool { return ip == netip.MustParseAddr("203.0.113.7") },
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
	trusting := startPlain(t, cfg)
	cfg.TrustedProxies = nil
	distrusting := startPlain(t, cfg)
	status := func(addr, forwarded string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", http.NoBody)
		require.NoError(t, err)
		req.Header.Set("X-Forwarded-For", forwarded)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	require.Equal(t, http.StatusForbidden, status(trusting, "203.0.113.7"))
	require.Equal(t, http.StatusMisdirectedRequest, status(trusting, "203.0.113.7, 198.51.100.1"))
	require.Equal(t, http.StatusMisdirectedRequest, status(distrusting, "203.0.113.7"))
}
