package runtimes

import (
	"fmt"
	"regexp"
)

var valkey = Definition{
	Name:     "valkey",
	Also:     []string{"redis"},
	Versions: []string{"8"},
	Default:  "8",
	Aliases:  []string{"keydb", "dragonfly", "keyvalue"},
	Database: &Database{
		Title:     "Redis",
		Usual:     "cache",
		Port:      6379,
		Start:     "valkey-start",
		Ready:     "valkey-ready",
		Dump:      "valkey-dump",
		Load:      "valkey-load",
		Dumped:    "rdb",
		Format:    "an RDB file",
		Magic:     "REDIS",
		HowToDump: "this is not an RDB file; make one with: valkey-cli --rdb cache.rdb, or get one from the data of such a service",
		LoadFault: regexp.MustCompile(`(?m)^--- RDB ERROR DETECTED ---\n(.*)$`),
		Signal:    "SIGTERM",
		URL:       "REDIS_URL",
		Variables: valkeyVariables,
		Own: func(l Login) map[string]string {
			own := valkeyVariables(l)
			own["REDISCLI_AUTH"] = l.Password // as valkey-cli reads it
			return own
		},
		Drivers: []string{
			"redis", "ioredis", "bullmq", "bull", "connect-redis", "@keyv/redis", "iovalkey",
			"valkey", "django-redis", "rq", "aioredis",
			"github.com/redis/go-redis/v9", "github.com/go-redis/redis/v8", "github.com/valkey-io/valkey-go", "github.com/gomodule/redigo",
			"sidekiq", "predis/predis", "ext-redis",
		},
	},
}

func valkeyVariables(l Login) map[string]string {
	return map[string]string{"REDIS_URL": fmt.Sprintf("redis://default:%s@%s:%d", l.Password, l.Host, l.Port)}
}
