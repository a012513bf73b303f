package integration

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"

	limits "github.com/berth-host/berth/internal/redis"
)

// TestRedis_FaultsFallBackAndBack puts one real Redis into every state in which
// it is of no use. The limit holds in each, and Redis counts again afterwards.
func TestRedis_FaultsFallBackAndBack(t *testing.T) {
	t.Parallel()
	needBase(t)
	server, endpoint, err := runRedis()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, server.Terminate(context.Background(), testcontainers.StopTimeout(0)))
	})
	admin := goredis.NewClient(&goredis.Options{Addr: endpoint})
	defer admin.Close()
	do := func(args ...any) {
		t.Helper()
		require.NoError(t, admin.Do(t.Context(), args...).Err(), args)
	}
	docker, err := engine()
	require.NoError(t, err)
	defer docker.Close()
	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"read-only", func() { do("REPLICAOF", "127.0.0.1", "1") }, func() { do("REPLICAOF", "NO", "ONE") }},
		{"out of memory", func() { do("CONFIG", "SET", "maxmemory", "1") }, func() { do("CONFIG", "SET", "maxmemory", "0") }},
		{
			"hanging", func() { require.NoError(t, docker.ContainerPause(t.Context(), server.ID)) },
			func() { require.NoError(t, docker.ContainerUnpause(t.Context(), server.ID)) },
		},
		{"refused", func() { do("ACL", "SETUSER", "default", "-@all", "+acl|setuser") }, func() { do("ACL", "SETUSER", "default", "+@all") }},
		{"flushed", func() { do("FLUSHALL") }, func() {}},
	} {
		client, err := limits.Open(t.Context(), "redis://"+endpoint, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		const limit = 50
		window := client.Window(strings.ReplaceAll(fault.name, " ", "-"), limit, time.Hour)
		prefix := "berth:window:" + strings.ReplaceAll(fault.name, " ", "-") + ":"
		var key string
		hit := func(n int) (passed int) {
			for range n {
				if window.Allow(t.Context(), key) {
					passed++
				}
			}
			return passed
		}
		// A busy machine may make Redis answer too late, and so count as away already.
		eventually(t, fault.name+": Redis counts", func() error {
			key = fmt.Sprint(time.Now().UnixNano())
			require.Equal(t, 20, hit(20), fault.name)
			if n := admin.ZCard(t.Context(), prefix+key).Val(); n != 20 {
				return fmt.Errorf("it has %d of 20", n)
			}
			return nil
		})
		fault.begin()
		began := time.Now()
		require.Equal(t, 30, hit(300), "%s: the limit holds", fault.name)
		require.Less(t, time.Since(began), 80*time.Second, "%s: 300 waits would be 90 s", fault.name)
		fault.end()
		eventually(t, fault.name+": Redis counts again", func() error {
			probe := fmt.Sprint(time.Now().UnixNano())
			window.Allow(t.Context(), probe)
			if admin.Exists(t.Context(), prefix+probe).Val() != 1 {
				return fmt.Errorf("%s is not there", probe)
			}
			return nil
		})
		require.Equal(t, 0, hit(10), "%s: what was let through meanwhile is remembered", fault.name)
		require.LessOrEqual(t, admin.ZCard(t.Context(), prefix+key).Val(), int64(limit), "%s: refused hits do not count", fault.name)
		require.NoError(t, client.Close())
	}
}
