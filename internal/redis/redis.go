// Package redis keeps in Redis what may be lost: the windows of the rate limits and the
// queue of webhook retries. All keys and scripts are here. Without a separate Redis the
// server runs one inside its process; while a given one does not answer, limits and
// retries are kept in memory. Code in this package touches Redis only; it
// knows no stacks and no requests.
package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
)

// Embedded is the address that stands for a server in this process.
const Embedded = "embedded"

// patience is how long Redis may delay one request; after that it counts as away until
// probe reaches it.
const patience = 300 * time.Millisecond

// probeEvery is how often a Redis that was away is checked.
const probeEvery = time.Second

// The keys. A window has one for each of its own keys.
const (
	probeKey     = "berth:probe"
	windowPrefix = "berth:window:"
)

// Client is a connection to a Redis server or to the embedded one.
type Client struct {
	rdb      *goredis.Client
	embedded *miniredis.Miniredis
	log      *slog.Logger
	patience time.Duration
	now      func() time.Time
	away     atomic.Bool
	stop     context.CancelFunc
	done     sync.WaitGroup

	windows  []*Window // that were made, before any is used
	recalled Hits      // of another process
}

// Open connects to the Redis at url (redis://…), or for Embedded runs one in this
// process. A server that does not answer is not an error: it may come later.
func Open(ctx context.Context, url string, log *slog.Logger) (*Client, error) {
	return open(ctx, url, log, patience, time.Now)
}

func open(ctx context.Context, url string, log *slog.Logger, patience time.Duration, now func() time.Time) (*Client, error) {
	c := &Client{log: log, patience: patience, now: now}
	options, err := c.options(url)
	if err != nil {
		return nil, err
	}
	goredis.SetLogger(driverLog{log})
	options.ContextTimeoutEnabled = true
	options.MaxRetries, options.DialerRetries = -1, 1
	options.PoolSize = 64
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = patience, patience, patience
	c.rdb = goredis.NewClient(options)
	background, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.done.Go(func() { c.tick(background) })
	c.probe(ctx)
	return c, nil
}

// driverLog receives what go-redis would write to standard error. The relevant parts
// are returned as errors too.
type driverLog struct{ log *slog.Logger }

// Printf is called by go-redis.
func (d driverLog) Printf(ctx context.Context, format string, args ...any) {
	d.log.DebugContext(ctx, "redis driver", "message", fmt.Sprintf(format, args...))
}

// options parses the address; for Embedded it starts the embedded server.
func (c *Client) options(url string) (*goredis.Options, error) {
	if url != Embedded {
		options, err := goredis.ParseURL(url)
		if err != nil {
			return nil, fmt.Errorf("write redis://host:port, or %s: %w", Embedded, err)
		}
		return options, nil
	}
	c.embedded = miniredis.NewMiniRedis()
	password := rand.Text()
	c.embedded.RequireAuth(password)
	if err := c.embedded.Start(); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	return &goredis.Options{Addr: c.embedded.Addr(), Password: password}, nil
}

// tick checks whether an absent Redis is back, and advances the clock of the embedded
// one, which does not expire keys by itself.
func (c *Client) tick(ctx context.Context) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if c.embedded != nil {
				c.embedded.FastForward(probeEvery)
			}
			if c.away.Load() {
				c.probe(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// probe finds out whether Redis accepts writes: a full one or a replica answers a ping
// but is of no use.
func (c *Client) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	err := c.rdb.Set(ctx, probeKey, "", probeEvery).Err()
	if was := c.away.Swap(err != nil); was && err == nil {
		c.log.Info("redis is back")
	} else if !was && err != nil {
		c.log.Warn("redis does not answer; limits and retries are kept in memory until it does", "error", err)
	}
}

// runScript evaluates a script on a key unless Redis is away; it returns false if it is.
func (c *Client) runScript(ctx context.Context, script *goredis.Script, key string, args ...any) (answer []string, ok bool) {
	ok = c.try(ctx, func(ctx context.Context) (err error) {
		answer, err = script.Run(ctx, c.rdb, []string{key}, args...).StringSlice()
		return err
	})
	return answer, ok
}

// try calls do unless Redis is away; it returns false if Redis is away, or goes away by
// this call.
func (c *Client) try(ctx context.Context, do func(context.Context) error) bool {
	if c.away.Load() {
		return false
	}
	ctx, cancel := c.inTime(ctx)
	defer cancel()
	err := do(ctx)
	if err != nil && !c.away.Swap(true) {
		c.log.Warn("redis failed; limits and retries are kept in memory until it answers", "error", err)
	}
	return err == nil
}

// ask evaluates a script on a key; a failure does not count.
func (c *Client) ask(ctx context.Context, script *goredis.Script, key string, args ...any) ([]string, error) {
	ctx, cancel := c.inTime(ctx)
	defer cancel()
	return script.Run(ctx, c.rdb, []string{key}, args...).StringSlice()
}

// inTime returns a context that limits the time of a call to Redis. If the caller's own
// context ends, that says nothing about Redis.
func (c *Client) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), c.patience)
}

// Close ends the connection, and the embedded server.
func (c *Client) Close() error {
	c.stop()
	c.done.Wait()
	err := c.rdb.Close()
	if c.embedded != nil {
		c.embedded.Close()
	}
	if errors.Is(err, goredis.ErrClosed) {
		return nil
	}
	return err
}
