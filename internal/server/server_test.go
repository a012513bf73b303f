package server_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/server"
)

// Who starts the server beside an engine that is away, or boots, learns at once of
// an address that is taken.
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
