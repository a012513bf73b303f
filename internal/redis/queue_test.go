package redis_test

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/berth-host/berth/internal/redis"
)

// start is a time at which a slot of a queue ends.
var start = time.Now().Truncate(time.Second)

func checkTake(t *testing.T, q *redis.Queue, now time.Time, want []string, wantNext time.Time) {
	t.Helper()
	due, next := q.Take(t.Context(), now)
	slices.Sort(due)
	if !slices.Equal(due, want) || !next.Equal(wantNext) {
		t.Errorf("Take after %s = %v, next %v, want %v, next %v", now.Sub(start), due, next, want, wantNext)
	}
}

// checkQueue puts three members in and takes them out again.
func checkQueue(t *testing.T, q *redis.Queue, between func()) {
	t.Helper()
	add := func(member string, after time.Duration) { q.Add(t.Context(), member, start.Add(after)) }
	add("c", 5*time.Second)
	add("a", time.Second)
	add("b", time.Second+time.Millisecond)
	between()
	checkTake(t, q, start, nil, start.Add(time.Second))
	checkTake(t, q, start.Add(time.Second), []string{"a"}, start.Add(1050*time.Millisecond))
	add("d", 2*time.Second)
	checkTake(t, q, start.Add(3*time.Second), []string{"b", "d"}, start.Add(5*time.Second))
	checkTake(t, q, start.Add(time.Hour), []string{"c"}, time.Time{})
	checkTake(t, q, start.Add(time.Hour), nil, time.Time{})
}

func TestQueue_GivesMembersWhenTheyAreDue(t *testing.T) {
	server := miniredis.RunT(t)
	checkQueue(t, openPatiently(t, server).Queue("q"), func() {
		if keys := slots(server); len(keys) != 3 {
			t.Errorf("redis holds %v, want three slots", keys)
		}
	})
	if keys := slots(server); len(keys) != 0 {
		t.Errorf("redis still holds %v", keys)
	}
}

func TestQueue_IsInRedis(t *testing.T) {
	server := miniredis.RunT(t)
	q := openPatiently(t, server).Queue("q")
	q.Add(t.Context(), "a", start.Add(time.Second))
	if _, err := server.Lpush(slots(server)[0], "put there"); err != nil {
		t.Fatal(err)
	}
	checkTake(t, q, start.Add(time.Second), []string{"a", "put there"}, time.Time{})
}

func TestQueue_GoesOnWithoutRedis(t *testing.T) {
	t.Run("that was never there", func(t *testing.T) {
		server := miniredis.RunT(t)
		addr := server.Addr()
		server.Close()
		checkQueue(t, open(t, "redis://"+addr).Queue("q"), func() {})
	})
	t.Run("that goes away", func(t *testing.T) {
		server := miniredis.RunT(t)
		checkQueue(t, open(t, "redis://"+server.Addr()).Queue("q"), server.Close)
	})
	t.Run("that comes back empty", func(t *testing.T) {
		server := miniredis.RunT(t)
		checkQueue(t, open(t, "redis://"+server.Addr()).Queue("q"), server.FlushAll)
	})
}

func TestQueue_AnotherProcessDoesNotTakeItsMembers(t *testing.T) {
	server := miniredis.RunT(t)
	openPatiently(t, server).Queue("q").Add(t.Context(), "a", start)
	checkTake(t, openPatiently(t, server).Queue("q"), start.Add(time.Hour), nil, time.Time{})
	key := slots(server)[0]
	if ttl := server.TTL(key); ttl <= 0 || ttl > 2*time.Minute || !strings.HasPrefix(key, "berth:queue:q:") {
		t.Errorf("%s is kept for %s, want it gone soon", key, ttl)
	}
}

func TestQueue_LosesNothingUnderParallelUse(t *testing.T) {
	q := open(t, redis.Embedded).Queue("q")
	const each, adders = 250, 8
	seen := map[string]int{}
	var all sync.WaitGroup
	for i := range adders {
		all.Go(func() {
			for n := range each {
				q.Add(t.Context(), strconv.Itoa(i*each+n), time.Now())
			}
		})
	}
	for deadline := time.Now().Add(time.Minute); len(seen) < each*adders && time.Now().Before(deadline); {
		due, _ := q.Take(t.Context(), time.Now())
		for _, member := range due {
			seen[member]++
		}
	}
	all.Wait()
	for member, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", member, n)
		}
	}
	if len(seen) != each*adders {
		t.Errorf("%d of %d members came", len(seen), each*adders)
	}
}

// slots are the keys of queues.
func slots(server *miniredis.Miniredis) []string {
	return slices.DeleteFunc(server.Keys(), func(key string) bool { return !strings.HasPrefix(key, "berth:queue:") })
}
