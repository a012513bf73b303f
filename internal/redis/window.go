package redis

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Window is an exact sliding window: at most a limit of hits for each key in
// any period (docs/api.md, "Rate limits").
//
// Redis counts for all processes that share it. Each process also remembers the hits
// that it allowed itself and checks the limit against them, so the limit holds while
// Redis is away, and after Redis lost data or was restored from an older copy.
type Window struct {
	client *Client
	name   string
	limit  int
	period time.Duration

	mu    sync.Mutex
	hits  map[string][]Hit // allowed by this process, oldest first
	swept time.Time
}

// Hit is one allowed hit.
type Hit struct {
	ID string
	// At is a time before the call to Redis, so that this process never remembers a hit
	// for longer than a Redis that has it.
	At      time.Time
	Counted bool // by Redis
}

// Hits are what a process remembers, by the window's name and key, oldest first.
type Hits map[string]map[string][]Hit

// Window returns the window of the given name; all processes on one Redis share
// it.
func (c *Client) Window(name string, limit int, period time.Duration) *Window {
	w := &Window{client: c, name: name, limit: limit, period: period, hits: c.recalled[name]}
	if w.hits == nil {
		w.hits = map[string][]Hit{}
	}
	c.windows = append(c.windows, w)
	return w
}

// Remembered returns the hits that this process allowed, for Recall by the next one.
func (c *Client) Remembered() Hits {
	all := Hits{}
	for _, w := range c.windows {
		w.mu.Lock()
		all[w.name] = maps.Clone(w.hits)
		w.mu.Unlock()
	}
	return all
}

// Recall makes the windows that are made from now on begin with the hits that another
// process allowed.
func (c *Client) Recall(hits Hits) { c.recalled = hits }

// count is atomic and reads Redis' clock, so processes need not agree on the time.
// Scores are microseconds, exact in a double.
var count = goredis.NewScript(`
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local period = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - period))
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
	return {'full'}
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[3])
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', period / 1000 + 1))
return {'counted'}
`)

// forget removes a hit.
var forget = goredis.NewScript(`
redis.call('ZREM', KEYS[1], ARGV[1])
return {}
`)

// look reads a window without changing it. It returns the number of hits in it and the
// microseconds until the oldest leaves it.
var look = goredis.NewScript(`
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local after = '(' .. string.format('%.0f', now - tonumber(ARGV[1]))
local oldest = redis.call('ZRANGEBYSCORE', KEYS[1], after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if #oldest == 0 then
	return {'0', '0'}
end
local left = tonumber(oldest[2]) + tonumber(ARGV[1]) - now
return {tostring(redis.call('ZCOUNT', KEYS[1], after, '+inf')), string.format('%.0f', left)}
`)

// Quota returns the limit, how many hits of key are left, and after what time there are
// more, 0 if none was used. It does not count a hit.
func (w *Window) Quota(ctx context.Context, key string) (limit, remaining int, reset time.Duration) {
	answer := []string{"0", "0"}
	if !w.client.away.Load() {
		if told, err := w.client.ask(ctx, look, w.key(key), w.period.Microseconds()); err == nil {
			answer = told
		}
	}
	used, _ := strconv.Atoi(answer[0]) // the script writes whole numbers
	micros, _ := strconv.ParseInt(answer[1], 10, 64)
	reset = time.Duration(micros) * time.Microsecond
	if own, left := w.own(key); own > used {
		used, reset = own, left
	}
	return w.limit, max(0, w.limit-used), reset
}

// own returns the number of hits that this process allowed, and the time until the
// oldest is a period old, 0 for none.
func (w *Window) own(key string) (int, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.client.now()
	hits := within(w.hits[key], now.Add(-w.period))
	if len(hits) == 0 {
		return 0, 0
	}
	return len(hits), hits[0].At.Add(w.period).Sub(now)
}

// Allow counts a hit of key and reports whether it is within the limit. A hit beyond
// the limit does not count.
func (w *Window) Allow(ctx context.Context, key string) bool {
	_, ok := w.Take(ctx, key)
	return ok
}

// Take is like Allow for a hit that may turn out not to count: giveBack removes it
// again, and is not nil if the hit is within the limit.
func (w *Window) Take(ctx context.Context, key string) (giveBack func(), ok bool) {
	h := Hit{ID: rand.Text(), At: w.client.now()}
	answer, there := w.client.runScript(ctx, count, w.key(key), w.limit, w.period.Microseconds(), h.ID)
	if there && answer[0] == "full" {
		return nil, false
	}
	h.Counted = there
	giveBack = func() { w.giveBack(context.WithoutCancel(ctx), key, h) }
	if !w.remember(key, h) {
		giveBack()
		return nil, false
	}
	return giveBack, true
}

func (w *Window) key(key string) string { return windowPrefix + w.name + ":" + key }

// giveBack removes a hit: first from memory, so that nobody is refused for a hit that
// Redis has already forgotten. If Redis is away, it keeps the hit until that is a
// period old.
func (w *Window) giveBack(ctx context.Context, key string, h Hit) {
	w.mu.Lock()
	w.hits[key] = slices.DeleteFunc(w.hits[key], func(other Hit) bool { return other.ID == h.ID })
	w.mu.Unlock()
	if h.Counted {
		w.client.runScript(ctx, forget, w.key(key), h.ID)
	}
}

// remember records a hit in memory, unless the hits of this process alone reach the
// limit.
func (w *Window) remember(key string, h Hit) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.client.now()
	w.sweep(now)
	hits := within(w.hits[key], now.Add(-w.period))
	w.hits[key] = hits
	if len(hits) >= w.limit {
		return false
	}
	place, _ := slices.BinarySearchFunc(hits, h.At, func(other Hit, at time.Time) int { return other.At.Compare(at) })
	w.hits[key] = slices.Insert(hits, place, h)
	return true
}

// sweep removes, once a period, the keys without a hit in it.
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

// within returns the hits after a time; hits are in order.
func within(hits []Hit, after time.Time) []Hit {
	for i, h := range hits {
		if h.At.After(after) {
			return hits[i:]
		}
	}
	return nil
}
