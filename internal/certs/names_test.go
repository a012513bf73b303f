package certs_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/certs"
)

// limits admit orders for all names but one, and note how they ended.
type limits struct {
	refused string

	mu    sync.Mutex
	begun []string
	ended map[string][]error
}

func (l *limits) begin(_ context.Context, name string) (func(error), error) {
	if name == l.refused {
		return nil, errors.New("not now")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = append(l.begun, name)
	return func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended[name] = append(l.ended[name], err)
	}, nil
}

// newPlain returns an ACME whose names are checked over plain HTTP, for which alone there is
// a listener.
func newPlain(t *testing.T, l *limits) *certs.ACME {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed.Close()
	port := func(ln net.Listener) int { return ln.Addr().(*net.TCPAddr).Port }
	authority := newAuthority(t, port(plain), 1)
	a, err := certs.NewACME(certs.ACMEOptions{
		Directory: authority.directory, Roots: authority.trust, Dir: t.TempDir(),
		Listen: "127.0.0.1:" + strconv.Itoa(port(closed)), HTTPListen: plain.Addr().String(),
		Allowed:    func(context.Context, string) bool { return true },
		BeginOrder: l.begin,
		Log:        slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.HandleChallenge(w, r) {
			w.WriteHeader(http.StatusMisdirectedRequest)
		}
	})}
	go server.Serve(plain)
	t.Cleanup(func() { server.Close() })
	return a
}

func TestACME_OrdersWhatIsAdmitted(t *testing.T) {
	l := &limits{refused: "later.test", ended: map[string][]error{}}
	a := newPlain(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, a.Obtain(ctx, "www.example.test"))
	until, has := a.Until(ctx, "www.example.test")
	require.True(t, has)
	require.Greater(t, time.Until(until), time.Hour)
	require.NoError(t, a.Obtain(ctx, "www.example.test"), "there is one")
	require.Equal(t, []string{"www.example.test"}, l.begun)
	require.Equal(t, map[string][]error{"www.example.test": {nil}}, l.ended)

	require.ErrorContains(t, a.Obtain(ctx, "later.test"), "not now")
	_, has = a.Until(ctx, "later.test")
	require.False(t, has)
	require.Len(t, l.begun, 1)

	names, err := a.Names(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"www.example.test"}, names)
	require.NoError(t, a.Forget(ctx, "www.example.test"))
	require.NoError(t, a.Forget(ctx, "www.example.test"), "once more")
	_, has = a.Until(ctx, "www.example.test")
	require.False(t, has)
	require.NoError(t, a.Obtain(ctx, "www.example.test"))
	require.Len(t, l.begun, 2)
}

func TestACME_TellsHowAnOrderFailed(t *testing.T) {
	l := &limits{ended: map[string][]error{}}
	nowhere, err := certs.NewACME(certs.ACMEOptions{
		Directory: "https://127.0.0.1:1/dir", Dir: t.TempDir(), Listen: "127.0.0.1:1", HTTPListen: "127.0.0.1:2",
		Allowed: func(context.Context, string) bool { return true }, BeginOrder: l.begin, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer nowhere.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.Error(t, nowhere.Obtain(ctx, "www.example.test"))
	require.Len(t, l.ended["www.example.test"], 1)
	require.Error(t, l.ended["www.example.test"][0])
	names, err := nowhere.Names(t.Context())
	require.NoError(t, err)
	require.Empty(t, names)
}
