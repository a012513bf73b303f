package server_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/server"
)

// Who starts the server beside an engine that is away learns at once of an
// address that is taken.
func TestNew_NamesATakenAddressWithoutAnEngine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	dir := t.TempDir()
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "docker.sock"))
	for _, name := range []string{"BERTH_LISTEN", "BERTH_ADMIN_LISTEN"} {
		env := map[string]string{"BERTH_DATA_DIR": filepath.Join(dir, "data"), "BERTH_LISTEN": "127.0.0.1:0"}
		env[name] = taken.Addr().String()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err = server.New(ctx, load(t, env), slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, name)
	}
}
