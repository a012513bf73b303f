package redis_test

import (
	"net"
	"testing"

	"github.com/berth-host/berth/internal/redis"
)

func TestCheck_SaysWhetherRedisAcceptsWrites(t *testing.T) {
	if err := open(t, redis.Embedded).Check(t.Context()); err != nil {
		t.Error(err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, "redis://"+nobody.Addr().String()).Check(t.Context()); err == nil {
		t.Error("nobody answers, and there is no error")
	}
}
