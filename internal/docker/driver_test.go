package docker

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
)

// tools is the image with which the suite makes snapshots. All base images are made of it.
const tools = "debian:trixie-slim"

func TestDriver_KeepsTheContract(t *testing.T) {
	b := testBench(t)
	there, err := b.driver.HasImage(t.Context(), tools)
	require.NoError(t, err)
	if !there {
		require.NoError(t, b.driver.Pull(t.Context(), tools, io.Discard))
	}
	info, err := b.engine.Info(t.Context())
	require.NoError(t, err)
	enginetest.Suite(t, func(t *testing.T, test func(*testing.T, enginetest.Bench)) {
		t.Parallel()
		w := b.newWay(t)
		pool := b.freePool(t)
		own := DriverOptions{Instance: strings.ToLower(rand.Text()), Pool: pool}
		test(t, enginetest.Bench{
			Driver:  NewDriver(w.driver.engine, info, own),
			Another: NewDriver(b.engine, info, DriverOptions{Instance: strings.ToLower(rand.Text()), Pool: pool}),
			Subnets: 1 << (subnetBits - pool.Bits()),
			Image:   b.image, Tools: tools, Registry: newRegistry(t),
			Command:     func(words ...string) []string { return helper(words...).Args },
			Script:      func(words ...string) []string { return append([]string{"sh", "-c", scripts[words[0]]}, words...) },
			LoseAnswers: w.loseAnswers, Leave: w.leave, Return: w.back,
			BreakStart: func() {
				w.onAnswer("/start", func(asked *http.Request) error {
					_, err := b.awaitEnd(t, path.Base(path.Dir(asked.URL.Path)))
					assert.NoError(t, err)
					w.refuse(retryTries) // requests: the driver looks for what became of it
					return errLost
				})
			},
			BreakPromote: func() { w.onAnswer("/disconnect", w.leaveAt) },
			BreakFill: func(key engine.Key, volume string) {
				w.onAnswer("/containers/create", b.leavePart(t, NewDriver(b.engine, info, own), key, volume))
			},
			TakeAddress: func(id, other string, leave bool) {
				exchange := b.exchange(t, id, other)
				w.onAnswer("/disconnect", func(*http.Request) error { exchange(); return nil })
				if leave {
					w.onAnswer("/connect", func(*http.Request) error { w.refuse(math.MaxInt); return nil })
				}
			},
		})
	})
}

// newRegistry returns the address of a registry that the engine trusts, as it is this
// machine's.
func newRegistry(t *testing.T) string {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// scripts are what a Bench's Script runs.
var scripts = map[string]string{
	"print":    `echo "$1"`,
	"exit":     `exit "$1"`,
	"cat":      `cat "$1"`,
	"mourn":    `sh -c 'trap "echo asked >$0; exit" TERM; while :; do sleep 0.1; done' "$1" & echo begun; wait`,
	"stubborn": `trap "" TERM; echo begun; while :; do sleep 0.1; done`,
}

// pools has the pools that freePool has returned.
var pools sync.Map

// freePool returns a pool of two networks that nobody uses.
func (b *bench) freePool(t *testing.T) netip.Prefix {
	t.Helper()
	taken, err := b.engine.networks(t.Context(), filters.NewArgs())
	require.NoError(t, err)
	for {
		var n [2]byte
		rand.Read(n[:])
		pool := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 214, n[0], n[1] &^ 31}), 27)
		if _, given := pools.LoadOrStore(pool, true); given {
			continue
		}
		if !slices.ContainsFunc(taken, func(n network.Summary) bool { return overlaps(pool, n) }) {
			return pool
		}
	}
}

// way is a way to the engine over a socket of a test's own.
type way struct {
	t      *testing.T
	driver *Driver // of the bench's installation
	socket string
	proxy  *httputil.ReverseProxy

	mu      sync.Mutex
	server  *http.Server                         // nil while the engine is away
	refused int                                  // requests from now on that get no answer
	lost    map[string]bool                      // requests whose answers were lost; nil while none is to be
	then    map[string]func(*http.Request) error // called before the next answer, by the end of the request's path
}

// newWay opens the engine by a way of the test's own.
func (b *bench) newWay(t *testing.T) *way {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-way-") // the test's own may be too long for a socket
	require.NoError(t, err)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return b.engine.api.Dialer()(ctx) }}
	w := &way{t: t, socket: filepath.Join(dir, "e.sock"), then: map[string]func(*http.Request) error{}}
	w.proxy = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: w.lose,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // ends the connection
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	w.back()
	opened, err := open(t.Context(), "unix://"+w.socket, quiet)
	require.NoError(t, err)
	w.driver = NewDriver(opened, b.driver.info, b.driver.opts)
	t.Cleanup(func() {
		require.NoError(t, opened.Close())
		w.leave()
		transport.CloseIdleConnections()
		require.NoError(t, os.RemoveAll(dir))
	})
	return w
}

// leave closes the way, as if the engine were away.
func (w *way) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server != nil {
		w.server.Close()
		w.server = nil
	}
}

// back opens the way again.
func (w *way) back() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = 0
	if w.server != nil {
		return
	}
	listener, err := net.Listen("unix", w.socket)
	require.NoError(w.t, err)
	w.server = &http.Server{Handler: w}
	go w.server.Serve(listener) //nolint:errcheck // it ends with the test
}

// refuse makes the engine get none of so many requests from now on.
func (w *way) refuse(requests int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = requests
}

// ServeHTTP passes a request on, or ends its connection.
func (w *way) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	refused := w.refused > 0
	if refused {
		w.refused--
	}
	w.mu.Unlock()
	if refused {
		panic(http.ErrAbortHandler)
	}
	w.proxy.ServeHTTP(answer, r)
}

// loseAnswers loses the first answer to each request that changes something.
func (w *way) loseAnswers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = map[string]bool{}
}

var errLost = errors.New("the answer is lost")

// onAnswer calls do once the engine has answered the next request whose path ends in end.
// If do returns an error, the answer is lost.
func (w *way) onAnswer(end string, do func(*http.Request) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.then[end] = do
}

// leavePart returns a function for onAnswer that removes the container that the engine has
// made, and leaves only a part of what is in its volume.
func (b *bench) leavePart(t *testing.T, d *Driver, key engine.Key, volume string) func(*http.Request) error {
	return func(asked *http.Request) error {
		ctx := t.Context()
		assert.NoError(t, d.Remove(ctx, asked.URL.Query().Get("name")))
		assert.NoError(t, d.removeVolume(ctx, volume))
		id, err := d.Prepare(ctx, engine.Spec{Name: b.name(), Key: key, Image: b.image, Cmd: helper("serve").Args, Volumes: map[string]string{"/data": volume}})
		assert.NoError(t, err)
		part, err := pack(tar.Header{Name: "data/part"}, "of it")
		assert.NoError(t, err)
		assert.NoError(t, d.CopyIn(ctx, id, part))
		assert.NoError(t, d.Remove(ctx, id))
		return errLost
	}
}

// leaveAt is leave for onAnswer.
func (w *way) leaveAt(*http.Request) error {
	w.leave()
	return errLost
}

// exchange takes the container other off its network. The function that it returns puts it
// back with the address of the container id.
func (b *bench) exchange(t *testing.T, id, other string) func() {
	t.Helper()
	had, err := b.driver.inspect(t.Context(), id)
	require.NoError(t, err)
	name := networkOf(&had)
	require.NoError(t, b.engine.api.NetworkDisconnect(t.Context(), name, other, false))
	return func() {
		assert.NoError(t, b.engine.api.NetworkConnect(t.Context(), name, other, &network.EndpointSettings{
			IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: had.NetworkSettings.Networks[name].IPAddress},
		}))
	}
}

// lose returns an error for an answer that is to be lost.
func (w *way) lose(answer *http.Response) error {
	asked := answer.Request
	w.mu.Lock()
	for end, then := range w.then {
		if strings.HasSuffix(asked.URL.Path, end) {
			delete(w.then, end)
			w.mu.Unlock()
			return then(asked)
		}
	}
	w.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	what := asked.Method + " " + asked.URL.String()
	if w.lost == nil || w.lost[what] || asked.Method == http.MethodGet || asked.Method == http.MethodHead {
		return nil
	}
	w.lost[what] = true
	return errLost
}
