package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/metrics"
	"github.com/berth-host/berth/internal/registry"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/store/postgrestest"
)

// newNode returns a server that has opened a database of PostgreSQL and nothing else.
func newNode(t *testing.T, address string, change func(*Config)) *Server {
	t.Helper()
	cfg := Config{Cluster: clusterSwarm, DatabaseURL: address, DataDir: t.TempDir(), BaseURL: &url.URL{Scheme: "https", Host: "berth.example"}, AppsDomain: "berth.example"}
	change(&cfg)
	s := &Server{cfg: cfg, log: slog.New(slog.DiscardHandler), metrics: metrics.New()}
	opened, err := store.Open(t.Context(), s.storeOptions())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, opened.Close()) })
	s.store = opened
	return s
}

func TestInstall_IsTheSameOnAllNodes(t *testing.T) {
	address := postgrestest.Shared(t).Database(t)
	first, second := newNode(t, address, func(*Config) {}), newNode(t, address, func(*Config) {})
	require.NoError(t, first.install(t.Context(), auth.Key{1}, ""))
	require.NoError(t, second.install(t.Context(), auth.Key{1}, "swarm-1"))
	require.NotEmpty(t, first.installation)
	require.Equal(t, first.installation, second.installation)
	id, err := second.instance(t.Context())
	require.NoError(t, err)
	require.Equal(t, first.installation, id)
	text, err := os.ReadFile(second.dir().Instance())
	require.NoError(t, err)
	require.Equal(t, id+"\n", string(text))
}

func TestInstall_RefusesAnothersInOneLine(t *testing.T) {
	address := postgrestest.Shared(t).Database(t)
	require.NoError(t, newNode(t, address, func(*Config) {}).install(t.Context(), auth.Key{1}, "swarm-1"))
	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "instance"), []byte("0123456789abcdef\n"), 0o600))
	for want, tt := range map[string]struct {
		change func(*Config)
		key    auth.Key
		swarm  string
	}{
		"BERTH_DATA_DIR":              {func(c *Config) { c.DataDir = foreign }, auth.Key{1}, "swarm-1"},
		"BERTH_KEY_FILE":              {func(*Config) {}, auth.Key{2}, "swarm-1"},
		"BERTH_BASE_URL":              {func(c *Config) { c.BaseURL = &url.URL{Scheme: "https", Host: "other.example"} }, auth.Key{1}, "swarm-1"},
		"BERTH_APPS_DOMAIN":           {func(c *Config) { c.AppsDomain = "other.example" }, auth.Key{1}, "swarm-1"},
		"join that swarm":             {func(*Config) {}, auth.Key{1}, "swarm-2"},
		"BERTH_CLUSTER: the database": {func(c *Config) { c.Cluster = clusterOff }, auth.Key{1}, ""},
	} {
		s := newNode(t, address, tt.change)
		refuse := func() error { return s.install(t.Context(), tt.key, tt.swarm) }
		if !s.cfg.InCluster() {
			refuse = func() error { return s.checkAlone(t.Context(), tt.key) }
		}
		err := refuse()
		require.ErrorContains(t, err, want)
		require.False(t, strings.Contains(err.Error(), "\n"))
	}
}

func TestInstall_RefusesTheDatabaseOfOneMachine(t *testing.T) {
	address := postgrestest.Shared(t).Database(t)
	alone := newNode(t, address, func(c *Config) { c.Cluster = clusterOff })
	require.NoError(t, alone.checkAlone(t.Context(), auth.Key{1}))
	alone.cfg.BaseURL = &url.URL{Scheme: "https", Host: "renamed.example"}
	require.NoError(t, alone.checkAlone(t.Context(), auth.Key{1}), "one machine may change its address")
	require.ErrorContains(t, newNode(t, address, func(*Config) {}).install(t.Context(), auth.Key{1}, ""), "is that of one machine")
}

// clockAhead is a database whose clock is ahead.
type clockAhead struct{ cluster.Store }

func (c clockAhead) RenewLease(ctx context.Context, n store.Node, hold time.Duration) (store.Lease, error) {
	lease, err := c.Store.RenewLease(ctx, n, hold)
	lease.At = lease.At.Add(time.Minute)
	return lease, err
}

// Another node may not know yet that the clock of this one is wrong.
func TestClosed_WhileTheClockIsWrong(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	s := &Server{}
	require.NoError(t, s.closed(), "on one machine")
	s.cluster, err = cluster.Join(t.Context(), cluster.Config{
		Store: clockAhead{db}, Swarm: noSwarm{}, Self: store.Node{ID: "n1", Name: "w1", Holder: "a"}, Lease: 300 * time.Millisecond, Grace: time.Minute,
		Load: func() (int, int64) { return 0, 1 << 40 }, Failed: func() {}, Note: func([]string, time.Time) error { return nil },
		Ousted: func(error) {}, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, s.closed())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.cluster.Run(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	require.Eventually(t, s.cluster.ClockWrong, time.Minute, 10*time.Millisecond)
	err = s.closed()
	require.Equal(t, stack.Unavailable, stack.KindOf(err))
	require.ErrorContains(t, err, "has a clock that is wrong, so nothing was created")
}

// noSwarm is what a worker knows of its swarm.
type noSwarm struct{}

func (noSwarm) Words(context.Context) ([]store.Word, error) { return nil, errors.New("not a manager") }

func TestOpenRegistry_RefusesANewNodeWithoutIt(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	away, err := registry.ParseAddress("http://" + ln.Addr().String())
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	used := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(used, "instance"), []byte("0123456789abcdef\n"), 0o600))
	for name, tt := range map[string]struct {
		cfg     Config
		refused bool
	}{
		"new":         {Config{Cluster: clusterSwarm, DataDir: t.TempDir(), Registry: away}, true},
		"known":       {Config{Cluster: clusterSwarm, DataDir: used, Registry: away}, false},
		"one machine": {Config{Cluster: clusterOff, DataDir: t.TempDir(), Registry: away}, false},
		"without":     {Config{Cluster: clusterSwarm, DataDir: t.TempDir()}, false},
	} {
		var logged strings.Builder
		s := &Server{cfg: tt.cfg, log: slog.New(slog.NewTextHandler(&logged, nil))}
		err := s.openRegistry(t.Context())
		if s.registry != nil {
			defer s.registry.Close()
		}
		if tt.refused {
			require.ErrorContains(t, err, "BERTH_REGISTRY: a new node needs the registry", name)
			require.NotContains(t, err.Error(), "\n", name)
			continue
		}
		require.NoError(t, err, name)
		s.checkRegistry(t.Context())
		require.Equal(t, name != "without", strings.Contains(logged.String(), "the registry cannot be used now"), name)
	}
}

func TestWarnOfSettings(t *testing.T) {
	for want, cfg := range map[string]Config{
		"":                                 {RedisURL: "rediss://db.example", NodeLease: emptyLease},
		"BERTH_REDIS_URL does not use TLS": {RedisURL: "redis://db.example", NodeLease: 6 * time.Second},
		"BERTH_NODE_LEASE is too long":     {RedisURL: "rediss://db.example", NodeLease: emptyLease + time.Second},
	} {
		var logged strings.Builder
		s := &Server{cfg: cfg, log: slog.New(slog.NewTextHandler(&logged, nil))}
		s.warnOfSettings()
		require.Contains(t, logged.String(), want)
		require.Equal(t, want != "", strings.Count(logged.String(), "level=WARN") == 1, logged.String())
	}
}

func TestIsOpenRedis(t *testing.T) {
	for address, open := range map[string]bool{
		"redis://10.0.0.5:6379": true, "redis://db.example": true, "rediss://db.example": false,
		"redis://localhost": false, "redis://127.0.0.1:6379/0": false, "redis://[::1]:6379": false,
	} {
		require.Equal(t, open, isOpenRedis(address), address)
	}
}
