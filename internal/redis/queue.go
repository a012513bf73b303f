package redis

import (
	"context"
	"crypto/rand"
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

	mu      sync.Mutex
	batches []*batch // in the order of their slots
	made    int      // batches so far
}

// batch is the members of a slot. A member added after they were taken begins another
// batch.
type batch struct {
	end     time.Time // of the slot
	key     string    // of the list in Redis; no two batches share one
	members []string
}

// Queue returns a new queue.
func (c *Client) Queue(name string) *Queue {
	return &Queue{client: c, prefix: "berth:queue:" + name + ":" + rand.Text() + ":"}
}

// Add adds a member to the queue. Take returns it at most 50 ms after it is due.
func (q *Queue) Add(ctx context.Context, member string, due time.Time) {
	key := q.remember(member, due)
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
	for _, b := range q.past(now) {
		due = append(due, q.pop(ctx, b)...)
	}
	return due, q.next()
}

// Waiting returns what the process has added and not taken, with the times when it is due.
func (q *Queue) Waiting() map[string]time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := map[string]time.Time{}
	for _, b := range q.batches {
		for _, member := range b.members {
			waiting[member] = b.end
		}
	}
	return waiting
}

// remember records a member and returns the key of its batch: that of the slot that
// ends when it is due or next after that.
func (q *Queue) remember(member string, due time.Time) (key string) {
	end := due.Add(slot - 1).Truncate(slot)
	q.mu.Lock()
	defer q.mu.Unlock()
	place, found := slices.BinarySearchFunc(q.batches, end, func(b *batch, end time.Time) int { return b.end.Compare(end) })
	if !found {
		q.made++
		q.batches = slices.Insert(q.batches, place, &batch{end: end, key: q.prefix + strconv.Itoa(q.made)})
	}
	b := q.batches[place]
	b.members = append(b.members, member)
	return b.key
}

// past removes and returns the batches whose slots have ended, oldest first.
func (q *Queue) past(now time.Time) []*batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.batches) && !q.batches[n].end.After(now) {
		n++
	}
	ended := slices.Clone(q.batches[:n])
	q.batches = slices.Delete(q.batches, 0, n)
	return ended
}

// pop removes the members of a batch from Redis; it uses those in memory if Redis is
// away, has lost some of them, or has not received all of them yet.
func (q *Queue) pop(ctx context.Context, b *batch) []string {
	var held []string
	ok := q.client.try(ctx, func(ctx context.Context) error {
		pipe := q.client.rdb.TxPipeline()
		list := pipe.LRange(ctx, b.key, 0, -1)
		pipe.Del(ctx, b.key)
		_, err := pipe.Exec(ctx)
		held = list.Val()
		return err
	})
	if !ok || len(held) < len(b.members) {
		return b.members
	}
	return held
}

func (q *Queue) next() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batches) == 0 {
		return time.Time{}
	}
	return q.batches[0].end
}
