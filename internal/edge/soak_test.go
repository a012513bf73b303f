package edge

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// TestSoak_LeavesNothingBehind sends traffic of all kinds (small, large, slow, aborted, upgraded)
// through both lanes, plain and over TLS, and then looks for goroutines, open files and memory that
// were not there before. BERTH_SOAK_FOR says for how long, as in 1h (make soak).
func TestSoak_LeavesNothingBehind(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it was run with both lanes already")
	}
	length := 2 * time.Second
	if text := os.Getenv("BERTH_SOAK_FOR"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	s := newSoak(t)
	s.run(t, func(context.Context) bool { return s.eachHasCome(1) }) // what is made once is there then
	before := s.settle(t, nil)
	t.Logf("before: %v", before)
	s.run(t, func(ctx context.Context) bool { return ctx.Err() != nil }, length)
	after := s.settle(t, &before)
	t.Logf("after %s: %v; %s", length, after, s.counts())
	require.Zero(t, s.conns.total(), "connections keep their seats")
	require.LessOrEqual(t, after.memory, before.memory+soakSlack)
}

// soakSlack is by how many bytes memory may differ by chance.
const soakSlack = 2 << 20

// holdings are what a process holds.
type holdings struct {
	goroutines, files int
	memory            int64 // bytes of heap and stacks in use
}

func (h holdings) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d KiB", h.goroutines, h.files, h.memory>>10)
}

// holds returns what this process holds.
func holds() holdings {
	files, _ := os.ReadDir("/proc/self/fd")
	return holdings{goroutines: runtime.NumGoroutine(), files: len(files), memory: used()}
}

// soak is a service, the servers in front of it, and their callers.
type soak struct {
	routes  *proxy.Routes
	service string // its address
	sides   []*soakSide
	conns   *Conns
	done    map[string]*atomic.Int64 // by kind
	failed  chan error               // the first one
}

// soakSide is one of the servers: with or without the first lane, with or without TLS.
type soakSide struct {
	name, addr string
	secure     bool
}

func newSoak(t *testing.T) *soak {
	own := certificate(t)
	service := httptest.NewUnstartedServer(http.HandlerFunc(soakService))
	service.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), slog.LevelDebug)
	service.Start()
	t.Cleanup(service.Close)
	s := &soak{routes: &proxy.Routes{}, service: service.Listener.Addr().String(), done: map[string]*atomic.Int64{}, failed: make(chan error, 1)}
	s.conns, _ = bounded(10_000)
	for name := range soakKinds {
		s.done[name] = &atomic.Int64{}
	}
	for _, lane := range []string{fast, standard} {
		for _, secure := range []bool{false, true} {
			cfg := testConfig(http.HandlerFunc(answerAPI))
			cfg.Routes, cfg.Conns, cfg.FastLane = s.routes, s.conns, lane == fast
			if secure {
				cfg.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
			}
			addr, _ := start(t, cfg)
			s.sides = append(s.sides, &soakSide{name: fmt.Sprintf("%s, TLS %v", lane, secure), addr: addr, secure: secure})
		}
	}
	return s
}

// run has callers of each kind at each server until done returns true, or for a time. It returns
// once all have left, and nothing is under way to the service.
func (s *soak) run(t *testing.T, done func(context.Context) bool, limit ...time.Duration) {
	target := proxy.NewUpstream(s.service, proxy.Options{Log: quiet})
	s.routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(target)})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if limit != nil {
		ctx, stop = context.WithTimeout(ctx, limit[0])
		defer stop()
	}
	var callers sync.WaitGroup
	for i, side := range s.sides {
		for j, name := range slices.Sorted(maps.Keys(soakKinds)) {
			c := &soakCaller{side: side, rand: rand.New(rand.NewPCG(uint64(i), uint64(j)))}
			callers.Go(func() { s.call(ctx, c, name) })
		}
	}
	for minute := time.Now().Add(time.Minute); !done(ctx); {
		select {
		case err := <-s.failed:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(minute) {
			t.Logf("%d goroutines; %s", runtime.NumGoroutine(), s.counts())
			minute = minute.Add(time.Minute)
		}
	}
	stop()
	callers.Wait()
	select {
	case err := <-s.failed:
		t.Fatal(err)
	default:
	}
	ctx, stop = context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	require.NoError(t, s.routes.Drain(ctx))
}

// call calls in one way until ctx ends.
func (s *soak) call(ctx context.Context, c *soakCaller, name string) {
	defer c.leave()
	for ctx.Err() == nil {
		if err := soakKinds[name](c); err != nil {
			select {
			case s.failed <- fmt.Errorf("%s, %s: %w", c.side.name, name, err):
			default:
			}
			return
		}
		s.done[name].Add(1)
		wait(ctx, time.Duration(c.rand.IntN(50))*time.Millisecond)
	}
}

// eachHasCome reports whether there were calls of each kind, so many for each server.
func (s *soak) eachHasCome(least int) bool {
	for _, n := range s.done {
		if n.Load() < int64(least*len(s.sides)) {
			return false
		}
	}
	return true
}

// counts says how many calls there were of each kind.
func (s *soak) counts() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s.done)) {
		all = append(all, fmt.Sprintf("%d %s", s.done[name].Load(), name))
	}
	return strings.Join(all, ", ")
}

// settle waits until what callers have left behind has ended, and returns what the process holds:
// no more goroutines and files than before, or if there is no before, a number that stays.
func (s *soak) settle(t *testing.T, before *holdings) holdings {
	t.Helper()
	now, same := holds(), 0
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		last := now
		if now = holds(); now.goroutines == last.goroutines && now.files == last.files {
			same++
		} else {
			same = 0
		}
		if before == nil && same == 20 || before != nil && now.goroutines <= before.goroutines && now.files <= before.files {
			return now
		}
	}
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	t.Fatalf("it holds %v, before that %v", now, before)
	return now
}
