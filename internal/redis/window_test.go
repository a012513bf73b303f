package redis_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"pgregory.net/rapid"

	"github.com/berth-host/berth/internal/redis"
)

// model is a sliding window in its simplest form: the times of the admitted hits, by
// key.
type model struct {
	limit  int
	period time.Duration
	hits   map[string][]time.Time
}

func (m *model) allow(key string, now time.Time) bool {
	inside := 0
	for _, at := range m.hits[key] {
		if at.After(now.Add(-m.period)) {
			inside++
		}
	}
	if inside >= m.limit {
		return false
	}
	m.hits[key] = append(m.hits[key], now)
	return true
}

func (m *model) inside(key string, now time.Time) []time.Time {
	var inside []time.Time
	for _, at := range m.hits[key] {
		if at.After(now.Add(-m.period)) {
			inside = append(inside, at)
		}
	}
	return inside
}

func (m *model) left(key string, now time.Time) int { return m.limit - len(m.inside(key, now)) }

// reset is the time until the oldest hit is a period old.
func (m *model) reset(key string, now time.Time) time.Duration {
	if hits := m.inside(key, now); len(hits) > 0 {
		return hits[0].Add(m.period).Sub(now)
	}
	return 0
}

// giveBack removes the hit of a time.
func (m *model) giveBack(key string, at time.Time) {
	for i, other := range m.hits[key] {
		if other.Equal(at) {
			m.hits[key] = append(m.hits[key][:i:i], m.hits[key][i+1:]...)
			return
		}
	}
}

func TestWindow_IsTheReferenceModel(t *testing.T) {
	c := &clocks{server: miniredis.RunT(t)}
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		now := start
		c.set(now)
		m := &model{
			limit:  rapid.IntRange(1, 6).Draw(t, "limit"),
			period: time.Duration(rapid.IntRange(1, 100).Draw(t, "period in ms")) * time.Millisecond * 1000,
			hits:   map[string][]time.Time{},
		}
		var windows []*redis.Window
		for range 2 {
			client := c.open(t)
			defer client.Close()
			windows = append(windows, client.Window(fmt.Sprint("w", run), m.limit, m.period))
		}
		for range rapid.IntRange(1, 60).Draw(t, "hits") {
			now = now.Add(time.Duration(rapid.Int64Range(0, m.period.Microseconds()/2).Draw(t, "pause in µs")) * time.Microsecond)
			c.set(now)
			key := rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2", "2001:db8::/64"}).Draw(t, "key")
			giveBack, got := rapid.SampledFrom(windows).Draw(t, "process").Take(t.Context(), key)
			if want := m.allow(key, now); got != want {
				t.Fatalf("%s at %s: allowed %v, want %v after %v", key, now, got, want, m.hits[key])
			}
			if limit, left, reset := windows[0].Quota(t.Context(), key); limit != m.limit || left != m.left(key, now) || reset != m.reset(key, now) {
				t.Fatalf("%s at %s: the quota is %d of %d for %s, want %d for %s", key, now, left, limit, reset, m.left(key, now), m.reset(key, now))
			}
			if got && rapid.IntRange(0, 3).Draw(t, "give back one of four") == 0 {
				giveBack()
				m.giveBack(key, now)
			}
		}
	})
}

func TestWindow_GivesBackWhileRedisIsAwayToo(t *testing.T) {
	server := miniredis.RunT(t)
	w := open(t, "redis://"+server.Addr()).Window("w", 2, time.Hour)
	server.Close()
	for range 10 {
		giveBack, ok := w.Take(t.Context(), "k")
		if !ok {
			t.Fatal("a hit that was given back counts")
		}
		giveBack()
		giveBack() // once is enough
	}
	if got := allowed(t, w, "k", 5); got != 2 {
		t.Errorf("%d passed, want 2", got)
	}
}

func TestWindow_HoldsWhenRedisLosesItsData(t *testing.T) {
	server := miniredis.RunT(t)
	w, other := openPatiently(t, server).Window("w", 3, time.Hour), openPatiently(t, server).Window("w", 3, time.Hour)
	if got := allowed(t, w, "k", 2); got != 2 {
		t.Fatalf("%d passed, want 2", got)
	}
	server.FlushAll()
	if got := allowed(t, w, "k", 5); got != 1 {
		t.Errorf("%d passed after the flush, want the 1 that was left", got)
	}
	if got := allowed(t, other, "k", 5); got != 2 {
		t.Errorf("%d passed elsewhere, want the 2 that Redis has room for: refused hits do not count", got)
	}
	if got := allowed(t, w, "new", 5); got != 3 {
		t.Errorf("%d passed of a key without hits, want 3", got)
	}
}

func TestWindow_HoldsWhenRedisIsBroughtBackFromAnOlderCopy(t *testing.T) {
	server := miniredis.RunT(t)
	w := openPatiently(t, server).Window("w", 3, time.Hour)
	if got := allowed(t, w, "k", 1); got != 1 {
		t.Fatalf("%d passed, want 1", got)
	}
	const key = "berth:window:w:k"
	older, err := server.SortedSet(key)
	if err != nil {
		t.Fatal(err)
	}
	older = maps.Clone(older) // it is the server's own
	if got := allowed(t, w, "k", 2); got != 2 {
		t.Fatalf("%d passed, want 2", got)
	}
	server.Del(key)
	for member, score := range older {
		if _, err := server.ZAdd(key, score, member); err != nil {
			t.Fatal(err)
		}
	}
	if limit, left, _ := w.Quota(t.Context(), "k"); limit != 3 || left != 0 {
		t.Errorf("the quota is %d of %d, want none", left, limit)
	}
	if got := allowed(t, w, "k", 5); got != 0 {
		t.Errorf("%d passed with the older copy, want none", got)
	}
}

// relay forwards connections to a server; while it is blocked, bytes neither pass nor
// are refused.
type relay struct {
	ln      net.Listener
	blocked sync.RWMutex // held for writing while it is
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ln: ln}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go r.copy(server, client)
			go r.copy(client, server)
		}
	}()
	return r
}

func (r *relay) copy(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		r.blocked.RLock()
		_, err = to.Write(buf[:n])
		r.blocked.RUnlock()
		if err != nil {
			return
		}
	}
}

func TestWindow_OutlastsARedisThatHangs(t *testing.T) {
	server := miniredis.RunT(t)
	way := newRelay(t, server.Addr())
	w := open(t, "redis://"+way.ln.Addr().String()).Window("w", 5, time.Hour)
	if got := allowed(t, w, "k", 2); got != 2 {
		t.Fatalf("%d passed, want 2", got)
	}
	way.blocked.Lock()
	began := time.Now()
	got := allowed(t, w, "k", 400)
	took := time.Since(began)
	way.blocked.Unlock()
	if got != 3 {
		t.Errorf("%d passed while it hung, want the 3 that were left", got)
	}
	if took > 20*time.Second { // 400 waits would be 120 s
		t.Errorf("400 hits took %s", took)
	}
	awaitUse(t, w, server)
	if got := allowed(t, w, "k", 5); got != 0 {
		t.Errorf("%d passed once it was back, want none", got)
	}
}

// awaitUse waits until hits are counted in the server again.
func awaitUse(t *testing.T, w *redis.Window, server *miniredis.Miniredis) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		key := fmt.Sprint("probe ", time.Now().UnixNano())
		w.Allow(t.Context(), key)
		if server.Exists("berth:window:w:" + key) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("redis is not used again")
		}
	}
}

func TestClient_SaysOnceThatRedisIsAwayAndOnceThatItIsBack(t *testing.T) {
	server := miniredis.RunT(t)
	var lines lineCounter
	c, err := redis.Open(t.Context(), "redis://"+server.Addr(), slog.New(slog.NewTextHandler(&lines, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := c.Window("w", 1_000_000, time.Hour)
	server.SetError("READONLY You can't write against a read only replica.")
	allowed(t, w, "k", 50)
	server.SetError("")
	awaitUse(t, w, server)
	for deadline := time.Now().Add(20 * time.Second); lines.count() < 2 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond) // it is used a moment before that is logged
	}
	if n := lines.count(); n != 2 {
		t.Errorf("%d lines logged, want one for each", n)
	}
}

// lineCounter counts the writes to it, one per line.
type lineCounter struct {
	mu sync.Mutex
	n  int
}

func (l *lineCounter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return len(p), nil
}

func (l *lineCounter) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

func TestWindow_TellsItsQuotaWithoutRedis(t *testing.T) {
	server := miniredis.RunT(t)
	w := open(t, "redis://"+server.Addr()).Window("w", 3, time.Hour)
	server.Close()
	for want := 2; want >= 0; want-- {
		if !w.Allow(t.Context(), "a") {
			t.Fatal("refused within the limit")
		}
		limit, left, reset := w.Quota(t.Context(), "a")
		if limit != 3 || left != want || reset <= 0 || reset > time.Hour {
			t.Errorf("the quota is %d of %d for %s, want %d", left, limit, reset, want)
		}
	}
	if _, left, reset := w.Quota(t.Context(), "b"); left != 3 || reset != 0 {
		t.Errorf("an unused quota is %d for %s", left, reset)
	}
}

func TestWindow_BeginsWithWhatAnotherProcessRemembers(t *testing.T) {
	before := open(t, redis.Embedded)
	w := before.Window("creates", 2, time.Hour)
	for _, key := range []string{"a", "a", "b"} {
		if !w.Allow(t.Context(), key) {
			t.Fatalf("a hit of %s within the limit is refused", key)
		}
	}
	next := open(t, redis.Embedded)
	next.Recall(before.Remembered())
	w = next.Window("creates", 2, time.Hour)
	if w.Allow(t.Context(), "a") {
		t.Error("a hit beyond the limit is allowed")
	}
	if _, left, reset := w.Quota(t.Context(), "a"); left != 0 || reset <= 0 || reset > time.Hour {
		t.Errorf("%d are left, and more after %s", left, reset)
	}
	if !w.Allow(t.Context(), "b") || w.Allow(t.Context(), "b") {
		t.Error("the other key does not have one left")
	}
	if !next.Window("claims", 1, time.Hour).Allow(t.Context(), "a") {
		t.Error("another window begins with hits")
	}
}
