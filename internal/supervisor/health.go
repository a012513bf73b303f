package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
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

// headMax is how much of an answer is read to find its head, in bytes.
const headMax = 1 << 20

// waitHealthy returns once the process answers its health check. When it does
// not in time, or exits, the error says why (docs/manifest.md, "Health checks").
func (p *process) waitHealthy(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, p.cfg.HealthTimeout)
	defer cancel()
	// A process that ends takes its address along, and a dial would hang.
	go p.onEnd(limited, cancel)
	check := p.newCheck()
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
	c, err := p.cfg.Engine.Inspect(ctx, p.id)
	if err != nil {
		return err
	}
	if !c.Running {
		return p.exited(ctx, c)
	}
	return p.unhealthy(ctx, c, check)
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
	return p.endedError(ctx, c, fmt.Sprintf("before it answered on port %d", p.service.Spec.ListenPort()))
}

// stillRuns returns the error of a process that was healthy and has ended since.
func (p *process) stillRuns(ctx context.Context) error {
	c, err := p.cfg.Engine.Inspect(ctx, p.id)
	if err != nil || c.Running {
		return err
	}
	return p.endedError(ctx, c, "after it was healthy, before the generation went live")
}

// endedError says how a process ended, when, and with what in its log.
func (p *process) endedError(ctx context.Context, c docker.Container, when string) error {
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
	return serviceError(p.service, "%q %s %s%s%s", p.service.Spec.Start, how, when, p.lastLines(), p.hint())
}

// unhealthy is the error of a process that runs but did not pass in time.
func (p *process) unhealthy(ctx context.Context, c docker.Container, check *check) error {
	limit := p.cfg.HealthTimeout
	if check.host != nil {
		return fmt.Errorf("check the health of %s: %w", p.service.Spec.Name, check.host)
	}
	if !check.opened {
		return serviceError(p.service, "not healthy within %s: %s%s%s", limit, p.listening(ctx, c), p.lastLines(), p.hint())
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
	addr   string
	req    *http.Request
	strict bool   // only 2xx and 3xx pass
	opened bool   // the port has accepted a connection
	last   string // what went wrong last
	host   error  // why this host could not connect; nil when it could
}

func (p *process) newCheck() *check {
	host, path := p.cfg.URLs.Host(p.gen.st, p.service.Spec.Name), p.service.Spec.Health
	if path == "" {
		path = "/"
	}
	return &check{
		addr:   p.addr(),
		strict: p.service.Spec.Health != "",
		req: &http.Request{
			Method: http.MethodGet,
			URL:    &url.URL{Opaque: path}, // as it stands in the manifest
			Host:   host,
			Close:  true,
			Header: http.Header{
				"User-Agent":        {"berth-health-check"},
				"X-Forwarded-Host":  {host},
				"X-Forwarded-Proto": {p.cfg.URLs.Base.Scheme},
			},
		},
	}
}

// once asks the process a single time.
func (c *check) once(ctx context.Context) bool {
	conn, err := c.dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	resp, err := c.ask(conn)
	asked := "GET " + c.req.URL.RequestURI()
	switch {
	case err != nil && ctx.Err() != nil && c.last != "":
		return false // cut off by the end of the time for it all
	case err != nil:
		c.last = "it accepts connections on its port, but " + asked + " got no HTTP answer (" + brief(err) + ")"
		return false
	case c.strict && (resp.StatusCode < 200 || resp.StatusCode > 399):
		c.last = asked + " answered " + resp.Status + "; the health check passes with 2xx or 3xx"
		return false
	}
	return true
}

// ask sends the request and reads the head of the answer.
func (c *check) ask(conn net.Conn) (*http.Response, error) {
	if err := conn.SetDeadline(time.Now().Add(healthAnswer)); err != nil {
		return nil, err
	}
	if err := c.req.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(io.LimitReader(conn, headMax))
	for {
		resp, err := http.ReadResponse(reader, c.req)
		if err != nil || resp.StatusCode >= 200 {
			return resp, err // the body is of no interest, and the connection is closed
		}
	}
}

// dial connects to the process's port.
func (c *check) dial(ctx context.Context) (net.Conn, error) {
	if strings.HasPrefix(c.addr, ":") {
		return nil, errors.New("it has no address") // it ended at once; this would be the host itself
	}
	dialer := net.Dialer{Timeout: healthAnswer}
	conn, err := dialer.DialContext(ctx, "tcp", c.addr)
	c.opened = c.opened || err == nil
	c.host = nil
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		c.host = err
	}
	return conn, err
}

// open tells whether the port accepts a connection.
func (c *check) open(ctx context.Context) bool {
	conn, err := c.dial(ctx)
	return err == nil && conn.Close() == nil
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
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, net.ErrClosed) { // at its deadline
		return "none in time"
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it hung up"
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// listening says what the process listens on instead of its port.
func (p *process) listening(ctx context.Context, c docker.Container) string {
	name, want := p.service.Spec.Name, p.service.Spec.ListenPort()
	wanted := fmt.Sprintf("it must listen on 0.0.0.0:$PORT (%d)", want)
	table, ok := socketTables(c)
	if !ok {
		var err error
		if table, err = p.ownSocketTables(ctx); err != nil {
			return name + " does not accept connections; " + wanted
		}
	}
	sockets := listeners(table)
	if len(sockets) == 0 {
		return name + " listens on no port; " + wanted
	}
	return name + " listens on " + strings.Join(sockets, ", ") + "; " + wanted
}
