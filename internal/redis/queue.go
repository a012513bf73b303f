package redis

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// slot is the time resolution of a queue: members due within the same slot are returned
// together, at its end.
const slot = 50 * time.Millisecond

// leftover is how long Redis keeps the members of a dead process.
const leftover = time.Minute

// Queue holds members until they are due: webhook deliveries that wait for a retry
// (docs/api.md, "Webhook delivery"). They are in Redis under a name that only this
// process knows, so a restart drops them. The process remembers what it added, and uses
// that if Redis is away or comes back empty. Only one goroutine may call Take.
type Queue struct {
	client *Client
	prefix string // of the keys

	mu    sync.Mutex
	slots map[int64]*batch // by slot: the number of its end since 1970
	made  int              // batches so far
}

// batch is the members of a slot. A member added after they were taken begins another
// batch.
type batch struct {
	key     string // of the list in Redis; no two batches share one
	members []string
}

// Queue returns a new queue.
func (c *Client) Queue(name string) *Queue {
	return &Queue{client: c, prefix: "berth:queue:" + name + ":" + rand.Text() + ":", slots: map[int64]*batch{}}
}

// Add adds a member to the queue. Take returns it at most 50 ms after it is due.
func (q *Queue) Add(ctx context.Context, member string, due time.Time) {
	key := q.remember(ceil(due), member)
	q.client.try(ctx, func(ctx context.Context) error {
		pipe := q.client.rdb.TxPipeline()
		pipe.RPush(ctx, key, member)
		pipe.PExpire(ctx, key, time.Until(due)+leftover)
		_, err := pipe.Exec(ctx)
		return err
	})
}

// Take removes and returns all members that are due, in the order of their times, and
// returns when the next one is due: the zero time if there is none.
func (q *Queue) Take(ctx context.Context, now time.Time) (due []string, next time.Time) {
	for _, number := range q.past(now) {
		due = append(due, q.takeSlot(ctx, number)...)
	}
	return due, q.next()
}

// ceil returns the number of the slot that ends at a time or next after it.
func ceil(t time.Time) int64 {
	return (t.UnixNano() + int64(slot) - 1) / int64(slot)
}

// remember records a member and returns the key of its batch.
func (q *Queue) remember(number int64, member string) (key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.slots[number]
	if b == nil {
		q.made++
		b = &batch{key: q.prefix + strconv.Itoa(q.made)}
		q.slots[number] = b
	}
	b.members = append(b.members, member)
	return b.key
}

// past returns the slots that have ended, oldest first.
func (q *Queue) past(now time.Time) []int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	var numbers []int64
	for number := range q.slots {
		if !time.Unix(0, number*int64(slot)).After(now) {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// takeSlot removes a slot's members from Redis; it uses those in memory if Redis is
// away, has lost some of them, or has not received all of them yet.
func (q *Queue) takeSlot(ctx context.Context, number int64) []string {
	q.mu.Lock()
	b := q.slots[number]
	delete(q.slots, number)
	q.mu.Unlock()
	held, ok := q.pop(ctx, b.key)
	if !ok || len(held) < len(b.members) {
		return b.members
	}
	return held
}

func (q *Queue) pop(ctx context.Context, key string) (held []string, ok bool) {
	ok = q.client.try(ctx, func(ctx context.Context) error {
		pipe := q.client.rdb.TxPipeline()
		list := pipe.LRange(ctx, key, 0, -1)
		pipe.Del(ctx, key)
		_, err := pipe.Exec(ctx)
		held = list.Val()
		return err
	})
	return held, ok
}

func (q *Queue) next() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.slots) == 0 {
		return time.Time{}
	}
	next := slices.Min(slices.Collect(maps.Keys(q.slots)))
	return time.Unix(0, next*int64(slot))
}
