package server_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/server"
)

// A taken address is reported at once, even while the engine is away or starting.
func TestNew_NamesATakenAddressWithoutAnEngine(t *testing.T) {
	booting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer booting.Close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	dir := t.TempDir()
	for name, host := range map[string]string{
		"BERTH_LISTEN":       "unix://" + filepath.Join(dir, "docker.sock"),
		"BERTH_ADMIN_LISTEN": "tcp://" + booting.Listener.Addr().String(),
	} {
		t.Setenv("DOCKER_HOST", host)
		env := map[string]string{"BERTH_DATA_DIR": filepath.Join(dir, "data"), "BERTH_LISTEN": "127.0.0.1:0"}
		env[name] = taken.Addr().String()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err = server.New(ctx, load(t, env), slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, name)
	}
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	return free.Addr().String()
}

func TestNew_AnswersWhileItWaitsForTheEngine(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "docker.sock"))
	cfg := load(t, map[string]string{"BERTH_DATA_DIR": filepath.Join(dir, "data"), "BERTH_LISTEN": freeAddress(t), "BERTH_ADMIN_LISTEN": freeAddress(t)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := server.New(ctx, cfg, slog.New(slog.DiscardHandler))
		ended <- err
	}()
	client := http.Client{Timeout: 10 * time.Second}
	for _, path := range []string{"/healthz", "/v0/stacks"} {
		var res *http.Response
		var err error
		require.Eventually(t, func() bool {
			res, err = client.Get("http://" + cfg.Listen + path)
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		require.NotEmpty(t, res.Header.Get("Retry-After"))
		require.JSONEq(t, `{"detail": "the server is starting and waits for its Docker engine; try again in a few seconds"}`, string(body))
	}
	res, err := client.Get("http://" + cfg.AdminListen + "/readyz")
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Contains(t, string(body), `{"ok":false,"checks":[{"name":"engine","status":"fail","detail":"the server waits for its Docker engine"`)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestNewLogger_WritesDurationsAsText(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer f.Close()
	server.NewLogger(f).Info("shutting down", "limit", 90*time.Second, "count", 3)
	text, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	require.Contains(t, string(text), `"msg":"shutting down","limit":"1m30s","count":3`)
}
