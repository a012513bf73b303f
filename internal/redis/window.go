package redis

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Window is an exact sliding window: at most a limit of hits for each key in
// any period ("Rate limits").
type Window struct {
	client *Client
	name   string
	limit  int
	period time.Duration

	mu    sync.Mutex
	hits  map[string][]hit // those that this process let through, for when Redis is away
	swept time.Time
}

// hit is one that was let through; Redis knows of it unless it was away.
type hit struct {
	at    time.Time
	alone bool
}

// Window returns the window of the given name; all processes on one Redis share
// it.
func (c *Client) Window(name string, limit int, period time.Duration) *Window {
	return &Window{client: c, name: name, limit: limit, period: period, hits: map[string][]hit{}}
}

// allow is atomic and reads Redis' own clock, so that processes need not agree
// on the time. Scores are microseconds, exact in a double.
var allow = goredis.NewScript(`
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local period = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - period))
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
	return 0
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[3])
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', period / 1000 + 1))
return 1
`)

// Allow counts a hit of key and tells whether it is within the limit. One that
// is not does not count.
func (w *Window) Allow(ctx context.Context, key string) bool {
	n, ok := w.client.run(ctx, allow, []string{"berth:window:" + w.name + ":" + key}, w.limit, w.period.Microseconds(), rand.Text())
	if ok && n == 0 {
		return false
	}
	return w.count(key, time.Now(), !ok)
}

// count keeps a hit in memory. One that Redis let through is kept in any case,
// unless there are hits that Redis does not know of: with those, and without
// Redis (alone), the limit is checked here.
func (w *Window) count(key string, now time.Time, alone bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep(now)
	hits := within(w.hits[key], now.Add(-w.period))
	check := alone || slices.ContainsFunc(hits, func(h hit) bool { return h.alone })
	if check && len(hits) >= w.limit {
		w.hits[key] = hits
		return false
	}
	w.hits[key] = append(hits, hit{now, alone})
	return true
}

// sweep forgets, once a period, the keys without a hit in it.
func (w *Window) sweep(now time.Time) {
	if now.Sub(w.swept) < w.period {
		return
	}
	w.swept = now
	for key, hits := range w.hits {
		if len(within(hits, now.Add(-w.period))) == 0 {
			delete(w.hits, key)
		}
	}
}

// within is the hits after a time; they are in order.
func within(hits []hit, after time.Time) []hit {
	for i, h := range hits {
		if h.at.After(after) {
			return hits[i:]
		}
	}
	return nil
}
