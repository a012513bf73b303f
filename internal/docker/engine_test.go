package docker

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func TestOpen_NamesAnEngineThatDoesNotAnswer(t *testing.T) {
	host := "unix://" + filepath.Join(t.TempDir(), "nobody.sock")
	_, err := open(t.Context(), host, quiet)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "ping engine at "+host)
}

func TestInfo_DescribesTheEngine(t *testing.T) {
	b := testBench(t)
	info, err := b.engine.Info(t.Context())
	require.NoError(t, err)
	assert.True(t, filepath.IsAbs(info.RootDir))
	assert.Contains(t, info.Runtimes, info.DefaultRuntime)
}

func TestWrap_ClassifiesAndKeepsTheCause(t *testing.T) {
	require.NoError(t, wrap(nil, "do"))
	cause := errors.New("no such thing")
	for class, engine := range map[error]error{
		engine.ErrNotFound: errdefs.ErrNotFound,
		errConflict:        errdefs.ErrConflict,
	} {
		err := wrap(errors.Join(cause, engine), "remove %s", "x")
		require.ErrorIs(t, err, class)
		require.ErrorIs(t, err, cause)
		assert.True(t, strings.HasPrefix(err.Error(), "docker: remove x: no such thing"))
	}
	for text, class := range map[string]error{
		"write /var/lib/docker/x: no space left on device":              engine.ErrNoSpace,
		"failed to set up container networking: Address already in use": engine.ErrAddressTaken,
		"fork/exec /proc/self/exe: resource temporarily unavailable":    engine.ErrHost,
		"failed to create endpoint x on network y":                      engine.ErrHost,
	} {
		require.ErrorIs(t, wrap(errors.New(text), "start x"), class)
	}
	err := wrap(cause, "remove x")
	assert.NotErrorIs(t, err, engine.ErrNotFound)
	assert.NotErrorIs(t, err, errConflict)
}

// relay passes connections to a listener on to the engine, until cut is called or the test
// ends.
func (b *bench) relay(t *testing.T, listener net.Listener) (cut func()) {
	t.Helper()
	network, real, _ := strings.Cut(b.engine.api.DaemonHost(), "://")
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial(network, real)
			if err != nil {
				near.Close()
				continue
			}
			mu.Lock()
			open = append(open, near, far)
			mu.Unlock()
			go func() { io.Copy(far, near); far.Close() }()
			go func() { io.Copy(near, far); near.Close() }()
		}
	}()
	cut = func() {
		listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range open {
			conn.Close()
		}
	}
	t.Cleanup(cut)
	return cut
}

func TestPromotes_WhereContainersHaveTheHostsKernel(t *testing.T) {
	info := Info{DefaultRuntime: "runc", Runtimes: map[string]Runtime{
		"runc": {Path: "runc"}, "small": {Path: "/usr/bin/crun"}, "gvisor": {Path: "/usr/local/bin/runsc"}, "kata": {},
	}}
	for name, want := range map[string]bool{
		"": true, "runc": true, "small": true, "io.containerd.runc.v2": true,
		"gvisor": false, "kata": false, "io.containerd.runsc.v1": false,
	} {
		assert.Equal(t, want, (&Driver{info: info, opts: DriverOptions{Runtime: name}}).Promotes(), name)
	}
	info.DefaultRuntime = "gvisor"
	assert.False(t, (&Driver{info: info}).Promotes())
}
