package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/docker"
)

// The pace of health checks: every 100 ms at first, slower for a program that
// takes its time. Whether the port is open at all is looked at more often: it
// costs next to nothing and is what a start waits for.
const (
	healthEvery    = 100 * time.Millisecond
	healthEveryMax = time.Second
	healthAnswer   = 5 * time.Second // for one answer
	portEvery      = 10 * time.Millisecond
)

// waitHealthy returns once the process answers its health check. When it does
// not in time, or exits, the error says why ("Health check after start").
func (p *process) waitHealthy(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, p.HealthTimeout)
	defer cancel()
	// A process that ends takes its address along, and a dial would hang.
	go p.onEnd(limited, cancel)
	check := p.newCheck()
	defer check.client.CloseIdleConnections()
	for pause := healthEvery; ; pause = min(pause*5/4, healthEveryMax) {
		next := time.Now().Add(pause)
		if check.once(limited) {
			return nil
		}
		if !check.waitUntil(limited, next) {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := p.Engine.Inspect(ctx, p.id)
	if err != nil {
		return err
	}
	if !c.Running {
		return p.exited(ctx, c)
	}
	return p.unhealthy(ctx, check)
}

// onEnd calls cancel when the process has ended, which the end of its log
// tells, unless ctx ends before.
func (p *process) onEnd(ctx context.Context, cancel func()) {
	select {
	case <-p.following().ended:
		cancel()
	case <-ctx.Done():
	}
}

// exited is the error of a process that ended before it was healthy.
func (p *process) exited(ctx context.Context, c docker.Container) error {
	select {
	case <-p.following().ended: // the log is complete
	case <-ctx.Done():
		return ctx.Err()
	}
	how := fmt.Sprintf("exited with code %d", c.ExitCode)
	switch {
	case c.OOMKilled:
		how = "ran out of memory and was killed"
	case c.Error != "":
		how = "could not be started (" + c.Error + ")"
	}
	return serviceError(p.service, "%q %s before it answered on port %d%s%s", p.service.Start, how, port(&p.service.Spec), p.lastLines(), p.hint())
}

// unhealthy is the error of a process that runs but did not pass in time.
func (p *process) unhealthy(ctx context.Context, check *check) error {
	limit := p.HealthTimeout
	if !check.opened {
		return serviceError(p.service, "not healthy within %s: %s%s%s", limit, p.listening(ctx), p.lastLines(), p.hint())
	}
	return serviceError(p.service, "not healthy within %s: %s%s%s", limit, check.last, p.lastLines(), p.hint())
}

// hint adds what to do about a log that names a lock: two generations shared
// one $DATA_DIR.
func (p *process) hint() string {
	text := strings.ToLower(p.lastLines())
	for _, sign := range []string{"database is locked", "resource temporarily unavailable", "could not lock", "lock file", "already locked", "already in use by another"} {
		if strings.Contains(text, sign) {
			return "\nthe log tells of a lock: if another generation holds $DATA_DIR, set strategy: recreate"
		}
	}
	return ""
}

// check is the health check of one process, from outside its container and
// with the public host.
type check struct {
	client *http.Client
	addr   string
	url    string
	host   string
	scheme string
	strict bool   // only 2xx and 3xx pass
	opened bool   // the port has accepted a connection
	last   string // what went wrong last
}

func (p *process) newCheck() *check {
	health := p.service.Health
	c := &check{
		addr:   p.addr(),
		host:   p.URLs.Host(p.st, p.service.Name),
		scheme: p.URLs.Base.Scheme,
		strict: health != "",
	}
	if health == "" {
		health = "/"
	}
	c.url = "http://" + c.addr + health
	c.client = &http.Client{
		Timeout:       healthAnswer,
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// once asks the process a single time.
func (c *check) once(ctx context.Context) bool {
	if !c.open(ctx) {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		c.last = "the health check's path cannot be requested: " + err.Error()
		return false
	}
	req.Host = c.host
	req.Header.Set("X-Forwarded-Proto", c.scheme)
	req.Header.Set("X-Forwarded-Host", c.host)
	req.Header.Set("User-Agent", "berth-health-check")
	resp, err := c.client.Do(req)
	if err != nil {
		if ctx.Err() == nil || c.last == "" {
			c.last = "it accepts connections on its port, but GET " + req.URL.RequestURI() + " got no HTTP answer (" + brief(err) + ")"
		}
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if c.strict && (resp.StatusCode < 200 || resp.StatusCode > 399) {
		c.last = "GET " + req.URL.RequestURI() + " answered " + resp.Status + "; the health check passes with 2xx or 3xx"
		return false
	}
	return true
}

// open tells whether the port accepts a connection.
func (c *check) open(ctx context.Context) bool {
	if strings.HasPrefix(c.addr, ":") {
		return false // no address: it ended at once, and this would be the host itself
	}
	dialer := net.Dialer{Timeout: healthAnswer}
	conn, err := dialer.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return false
	}
	c.opened = true
	return conn.Close() == nil
}

// waitUntil waits for the time of the next check, or less when the port opens
// before; false means that the time for all of it is over.
func (c *check) waitUntil(ctx context.Context, next time.Time) bool {
	for time.Now().Before(next) {
		pause := min(time.Until(next), portEvery)
		if c.opened {
			pause = time.Until(next)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
		if !c.opened && c.open(ctx) {
			return true
		}
	}
	return ctx.Err() == nil
}

// brief is the innermost cause of a failed request, without addresses that
// mean nothing outside.
func brief(err error) string {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "none in time"
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// listening says what the process listens on instead of its port.
func (p *process) listening(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, healthAnswer)
	defer cancel()
	name, want := p.service.Name, port(&p.service.Spec)
	wanted := fmt.Sprintf("it must listen on 0.0.0.0:$PORT (%d)", want)
	var table strings.Builder
	_, err := p.Engine.Output(ctx, p.id, docker.ExecSpec{Cmd: []string{"cat", "/proc/net/tcp", "/proc/net/tcp6"}}, &table, io.Discard)
	if err != nil {
		return name + " does not accept connections; " + wanted
	}
	sockets := listeners(table.String())
	if len(sockets) == 0 {
		return name + " listens on no port; " + wanted
	}
	return name + " listens on " + strings.Join(sockets, ", ") + "; " + wanted
}
