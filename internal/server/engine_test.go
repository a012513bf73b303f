package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/metrics"
)

// engineAt runs an engine that answers as a test likes, and has a server use it.
func engineAt(t *testing.T, answer http.HandlerFunc) *Server {
	t.Helper()
	engine := httptest.NewServer(answer)
	t.Cleanup(engine.Close)
	t.Setenv("DOCKER_HOST", "tcp://"+engine.Listener.Addr().String())
	public, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, public.Close()) })
	s := &Server{log: slog.New(slog.DiscardHandler), metrics: metrics.New(), listener: public}
	t.Cleanup(func() {
		if s.engine != nil {
			assert.NoError(t, s.engine.Close())
		}
	})
	return s
}

func TestAwaitEngine_AsksAgainWhileTheEngineStarts(t *testing.T) {
	var pings, infos atomic.Int32
	s := engineAt(t, func(w http.ResponseWriter, r *http.Request) {
		asked := &infos
		if path.Base(r.URL.Path) == "_ping" {
			asked = &pings
		}
		if asked.Add(1) == 1 {
			w.WriteHeader(map[*atomic.Int32]int{&pings: http.StatusInternalServerError, &infos: http.StatusBadGateway}[asked])
		}
		fmt.Fprint(w, "{}")
	})
	require.NoError(t, s.awaitEngine(t.Context()))
	require.NotNil(t, s.engine)
	client, err := net.Dial("tcp", s.listener.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	conn, err := s.listener.Accept()
	require.NoError(t, err, "the address is the server's again")
	require.NoError(t, conn.Close())
}

func TestAwaitEngine_EndsAtARefusal(t *testing.T) {
	s := engineAt(t, http.NotFound)
	require.ErrorContains(t, s.awaitEngine(t.Context()), "DOCKER_HOST must be where a Docker engine is")
}
