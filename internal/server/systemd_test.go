package server

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// systemd is the end of a notification socket that systemd has.
func systemd(t *testing.T) (next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, socket.Close()) })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		require.NoError(t, socket.SetReadDeadline(time.Now().Add(time.Minute)))
		b := make([]byte, 4096)
		n, err := socket.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
}

func TestManager_TellsSystemdThatTheServerIsReadyAndStops(t *testing.T) {
	next := systemd(t)
	m := newManager()
	m.ready("serving http://berth.test", waits)
	require.Equal(t, "READY=1\nSTATUS=serving http://berth.test", next())
	m.stopping(30 * time.Second)
	require.Equal(t, "STOPPING=1\nSTATUS=shutting down\nEXTEND_TIMEOUT_USEC=90000000", next())
	require.Zero(t, m.every, "there is no watchdog")
}

func TestManager_TellsSystemdOfAReload(t *testing.T) {
	next := systemd(t)
	m := newManager()
	m.reloading(time.Minute)
	require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=[1-9]\d+\nSTATUS=reloading\nEXTEND_TIMEOUT_USEC=60000000$`, next())
	m.replacedBy(4711, "serving http://berth.test")
	require.Equal(t, "MAINPID=4711\nREADY=1\nSTATUS=serving http://berth.test", next())
}

func TestManager_GivesSignsOfLifeOnlyWhileTheServerAnswers(t *testing.T) {
	next := systemd(t)
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(int((20 * time.Millisecond).Microseconds())))
	m := newManager()
	defer func() { m.stop() }()
	var asked atomic.Int32
	hangs := make(chan struct{})
	m.ready("x", func(context.Context) bool {
		if asked.Add(1) == 3 {
			close(hangs)
		}
		return asked.Load() < 3
	})
	require.Equal(t, "READY=1\nSTATUS=x", next())
	require.Equal(t, "WATCHDOG=1", next())
	require.Equal(t, "WATCHDOG=1", next())
	<-hangs
	m.stop()
	m.notify("last")
	require.Equal(t, "last", next())
}

func TestAwaitEngine_IsReadyForSystemdWhileItWaits(t *testing.T) {
	next := systemd(t)
	s := engineAt(t, nil)
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "docker.sock"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.awaitEngine(ctx) }()
	require.Equal(t, "READY=1\nSTATUS=waiting for its Docker engine", next())
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	s.manager.stop()
}
