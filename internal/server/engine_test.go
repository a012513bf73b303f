package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/metrics"
)

// engineAt runs an engine whose answers the test determines, and returns a server that
// uses it.
func engineAt(t *testing.T, answer http.HandlerFunc) *Server {
	t.Helper()
	engine := httptest.NewServer(answer)
	t.Cleanup(engine.Close)
	t.Setenv("DOCKER_HOST", "tcp://"+engine.Listener.Addr().String())
	public, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, public.Close()) })
	s := &Server{log: slog.New(slog.DiscardHandler), metrics: metrics.New(), manager: newManager(), listener: public}
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
	require.ErrorContains(t, s.awaitEngine(t.Context()), "DOCKER_HOST must be the address of a Docker engine")
}

// systemd accepts connections for an engine before the engine runs.
func TestTryEngine_AsksAnEngineThatNeverAnswersAgain(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes its connections
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, silent.Close()) })
	t.Setenv("DOCKER_HOST", "tcp://"+silent.Addr().String())
	s := &Server{log: slog.New(slog.DiscardHandler), metrics: metrics.New(), manager: newManager()}
	err = s.tryEngine(t.Context(), 50*time.Millisecond)
	require.True(t, docker.MayPass(err), "%v", err)
	require.Nil(t, s.engine)

	over, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = s.tryEngine(over, time.Hour)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, docker.MayPass(err), "the start is over: %v", err)
}

func TestTryEngine_AsksAnEngineAgainThatFallsSilentAfterItsFirstAnswer(t *testing.T) {
	s := engineAt(t, func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "_ping" {
			fmt.Fprint(w, "{}")
			return
		}
		<-r.Context().Done()
	})
	err := s.tryEngine(t.Context(), 200*time.Millisecond)
	require.True(t, docker.MayPass(err), "%v", err)
	require.Nil(t, s.engine)
}
