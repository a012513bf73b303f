package redis_test

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"pgregory.net/rapid"

	"github.com/berth-host/berth/internal/redis"
)

func open(t *testing.T, url string) *redis.Client {
	t.Helper()
	c, err := redis.Open(t.Context(), url, slog.New(slog.DiscardHandler))
	return opened(t, c, err)
}

// openPatiently connects to a Redis that counts as there however late it is, since the machine
// may be busy.
func openPatiently(t *testing.T, server *miniredis.Miniredis) *redis.Client {
	t.Helper()
	c, err := redis.OpenWith(t.Context(), "redis://"+server.Addr(), slog.New(slog.DiscardHandler), time.Hour, time.Now)
	return opened(t, c, err)
}

func opened(t *testing.T, c *redis.Client, err error) *redis.Client {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// allowed counts how many of n hits pass.
func allowed(t *testing.T, w *redis.Window, key string, n int) (passed int) {
	t.Helper()
	for range n {
		if w.Allow(t.Context(), key) {
			passed++
		}
	}
	return passed
}

func TestWindow_LetsTheLimitThroughForEachKey(t *testing.T) {
	w := open(t, redis.Embedded).Window("creates", 3, time.Hour)
	for _, key := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::/64"} {
		if got := allowed(t, w, key, 10); got != 3 {
			t.Errorf("%s: %d of 10 passed, want 3", key, got)
		}
	}
}

// clocks sets the clock of a Redis, and that of the processes, which are a year
// behind.
type clocks struct {
	server *miniredis.Miniredis
	now    time.Time
}

func (c *clocks) set(now time.Time) {
	c.now = now
	c.server.SetTime(now)
}

// open connects to the Redis, without a time limit, since the machine may be busy.
func (c *clocks) open(t rapid.TB) *redis.Client {
	t.Helper()
	client, err := redis.OpenWith(context.Background(), "redis://"+c.server.Addr(), slog.New(slog.DiscardHandler), time.Hour,
		func() time.Time { return c.now.AddDate(-1, 0, 0) })
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestWindow_SlidesByRedisOwnClock(t *testing.T) {
	c := &clocks{server: miniredis.RunT(t)}
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	c.set(start)
	client := c.open(t)
	defer client.Close()
	w := client.Window("claims", 2, time.Minute)
	steps := []struct {
		after time.Duration
		want  bool
	}{{0, true}, {30 * time.Second, true}, {59 * time.Second, false}, {60 * time.Second, true}, {89 * time.Second, false}, {90 * time.Second, true}}
	for _, s := range steps {
		c.set(start.Add(s.after))
		if got := w.Allow(t.Context(), "k"); got != s.want {
			t.Errorf("after %s: %v, want %v", s.after, got, s.want)
		}
	}
}

func TestWindow_IsExactUnderParallelHitsOfTwoClients(t *testing.T) {
	server := miniredis.RunT(t)
	c := &clocks{server: server, now: time.Now()}
	var windows []*redis.Window
	for range 2 {
		client := c.open(t)
		defer client.Close()
		windows = append(windows, client.Window("w", 30, time.Hour))
	}
	var passed atomic.Int64
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() { passed.Add(int64(allowed(t, windows[i%2], "k", 50))) })
	}
	group.Wait()
	if passed.Load() != 30 {
		t.Errorf("%d of 300 passed, want 30", passed.Load())
	}
}

func TestWindow_HoldsInMemoryWhenRedisGoesAway(t *testing.T) {
	server := miniredis.RunT(t)
	w := open(t, "redis://"+server.Addr()).Window("w", 5, time.Hour)
	if got := allowed(t, w, "k", 2); got != 2 {
		t.Fatalf("%d passed, want 2", got)
	}
	server.Close()
	if got := allowed(t, w, "k", 10); got != 3 {
		t.Errorf("%d passed without redis, want the 3 that were left", got)
	}
}

func TestWindow_RemembersWhatItLetThroughWhileRedisWasAway(t *testing.T) {
	server := miniredis.RunT(t)
	c := open(t, "redis://"+server.Addr())
	w := c.Window("w", 3, time.Hour)
	server.SetError("LOADING redis is loading")
	if got := allowed(t, w, "k", 2); got != 2 {
		t.Fatalf("%d passed without redis, want 2", got)
	}
	server.SetError("")
	other := c.Window("other", 100_000, time.Hour)
	for deadline := time.Now().Add(20 * time.Second); !server.Exists("berth:window:other:probe"); {
		if time.Now().After(deadline) {
			t.Fatal("redis is not used again")
		}
		other.Allow(t.Context(), "probe")
		time.Sleep(time.Millisecond) // or the window is full before redis is tried again
	}
	if got := allowed(t, w, "k", 5); got != 1 {
		t.Errorf("%d passed once redis was back, want the 1 that was left", got)
	}
}

func TestWindow_WaitsForASilentRedisOnlyOnce(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	w := open(t, "redis://"+silent.Addr().String()).Window("w", 1000, time.Hour)
	var calls atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 500 {
			w.Allow(t.Context(), strconv.Itoa(i))
			calls.Add(1)
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second): // 500 waits would be 150 s
		t.Fatalf("only %d of 500 hits were answered", calls.Load())
	}
}

func TestOpen_RefusesAnAddressThatIsNone(t *testing.T) {
	if _, err := redis.Open(t.Context(), "not an address", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error")
	}
}
