package server

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/doctor"
)

// at returns a configuration with the given public URL and its own address.
func at(t *testing.T, base string) *Config {
	t.Helper()
	u, err := url.Parse(base)
	require.NoError(t, err)
	return &Config{BaseURL: u, Listen: u.Host, DataDir: t.TempDir(), TLS: tlsOff}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func TestPublicURL_WithoutAServerIsAnsweredByTheDoctor(t *testing.T) {
	address := freeAddress(t)
	require.NoError(t, at(t, "http://"+address).publicURL(t.Context()))
	elsewhere := at(t, "http://"+freeAddress(t))
	elsewhere.Listen = address
	require.ErrorContains(t, elsewhere.publicURL(t.Context()), "does not answer")
	acme := at(t, "https://berth.test")
	acme.TLS = tlsACME
	require.Equal(t, doctor.Skip, doctor.Examine(t.Context(), hostWith(acme.publicURL)).Checks[12].Status)
}

func TestPublicURL_OfAnotherServerIsAFault(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var key auth.Key
		rand.Read(key[:])
		proveIdentity(w, r.URL.Path, key)
	}))
	defer other.Close()
	cfg := at(t, other.URL)
	require.ErrorContains(t, cfg.publicURL(t.Context()), "another program may have its address")
	cfg.Listen = "127.0.0.1:0"
	require.ErrorContains(t, cfg.publicURL(t.Context()), "leads to something other than this server")
}

func TestPublicURL_OfTheServerThatRunsIsProvedByItsKey(t *testing.T) {
	apart := filepath.Join(t.TempDir(), "apart")
	for _, file := range []string{"", apart} {
		cfg := at(t, "http://unset")
		cfg.KeyFile = file
		lock, err := os.OpenFile(filepath.Join(cfg.DataDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, lock.Close()) })
		require.False(t, datadir.Dir(cfg.DataDir).IsLocked())
		require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
		require.True(t, datadir.Dir(cfg.DataDir).IsLocked())
		require.ErrorContains(t, cfg.publicURL(t.Context()), cfg.KeyPath())
		require.NoFileExists(t, cfg.KeyPath(), "doctor made a key")

		key, err := auth.LoadKey(cfg.KeyPath())
		require.NoError(t, err)
		running := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asksIdentity(r.URL.Path) {
				proveIdentity(w, r.URL.Path, key)
			}
		}))
		defer running.Close()
		cfg.BaseURL, err = url.Parse(running.URL)
		require.NoError(t, err)
		require.NoError(t, cfg.publicURL(t.Context()))
	}
	require.FileExists(t, apart)
}

func TestAsksIdentity_IsANonceAlone(t *testing.T) {
	for path, asks := range map[string]bool{
		pathIdentity + rand.Text():         true,
		pathIdentity:                       false,
		pathIdentity + "x":                 false,
		pathIdentity + rand.Text() + "/..": false,
		"/healthz":                         false,
	} {
		require.Equal(t, asks, asksIdentity(path), path)
	}
}
