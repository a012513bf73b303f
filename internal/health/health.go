// Package health checks whether a program answers HTTP at an address, and says why not.
// It does not depend on stacks or containers. Code in this package dials the address that
// it is given and touches nothing else.
package health

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/hostfault"
	"github.com/berth-host/berth/internal/pause"
)

// The pace of health checks: every 100 ms at first, slower for a program that takes its
// time. Whether the port is open is checked more often: that costs next to nothing, and
// a start waits for it.
const (
	every     = 100 * time.Millisecond
	everyMax  = time.Second
	answer    = 5 * time.Second // for one answer
	portEvery = 10 * time.Millisecond
)

// headMax limits how much of an answer is read to find its head, in bytes.
const headMax = 1 << 20

// Request describes a health check (docs/manifest.md, "Health checks").
type Request struct {
	Addr   string // host:port; an empty host means that the program no longer has an address
	Host   string // its public host
	Scheme string // of its public URL, http or https
	Path   string // as it stands in the manifest; "" asks for / and takes every answer

	// Failing is called, from the checks, with what is wrong so far whenever that may have
	// changed. It may be nil.
	Failing func(Failure)
}

// Failure says why a program did not pass.
type Failure struct {
	Opened bool   // its port has accepted a connection
	Last   string // what went wrong last, once the port was open
	Host   error  // why this host could not connect; nil when it could
}

// Wait checks until the program passes, and then returns nil, or until ctx ends.
func Wait(ctx context.Context, r Request) *Failure {
	c := newCheck(r)
	for pause := every; ; pause = min(pause*5/4, everyMax) {
		next := time.Now().Add(pause)
		if c.once(ctx) {
			return nil
		}
		if !c.waitUntil(ctx, next) {
			return &c.failure
		}
	}
}

// check checks one program from outside its container, with the public host.
type check struct {
	addr    string
	req     *http.Request
	strict  bool // only 2xx and 3xx pass
	failing func(Failure)
	failure Failure
}

func newCheck(r Request) *check {
	failing := r.Failing
	if failing == nil {
		failing = func(Failure) {}
	}
	return &check{
		addr:    r.Addr,
		strict:  r.Path != "",
		failing: failing,
		req: &http.Request{
			Method: http.MethodGet,
			URL:    &url.URL{Opaque: cmp.Or(r.Path, "/")}, // as it stands in the manifest
			Host:   r.Host,
			Close:  true,
			Header: http.Header{
				"User-Agent":        {"berth-health-check"},
				"X-Forwarded-Host":  {r.Host},
				"X-Forwarded-Proto": {r.Scheme},
			},
		},
	}
}

// once checks the program a single time.
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
	case err != nil && ctx.Err() != nil && c.failure.Last != "":
		return false // cut off by the end of the time for it all
	case err != nil:
		c.fails("it accepts connections on its port, but " + asked + " got no HTTP answer (" + brief(err) + ")")
		return false
	case c.strict && (resp.StatusCode < 200 || resp.StatusCode > 399):
		c.fails(asked + " answered " + resp.Status + "; the health check passes with 2xx or 3xx")
		return false
	}
	return true
}

// fails notes what a check that reached the program has found wrong.
func (c *check) fails(why string) {
	c.failure.Last = why
	c.failing(c.failure)
}

// ask sends the request and reads the head of the answer.
func (c *check) ask(conn net.Conn) (*http.Response, error) {
	if err := conn.SetDeadline(time.Now().Add(answer)); err != nil {
		return nil, err
	}
	if err := c.req.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(io.LimitReader(conn, headMax))
	for {
		resp, err := http.ReadResponse(reader, c.req)
		if err != nil || resp.StatusCode >= 200 {
			return resp, err // the body does not matter, and the connection is closed
		}
	}
}

// dial connects to the program's port.
func (c *check) dial(ctx context.Context) (net.Conn, error) {
	if strings.HasPrefix(c.addr, ":") {
		return nil, errors.New("it has no address") // it ended at once; this would be the host itself
	}
	dialer := net.Dialer{Timeout: answer}
	conn, err := dialer.DialContext(ctx, "tcp", c.addr)
	c.failure.Host = nil
	if hostfault.NoDescriptor(err) {
		c.failure.Host = err
	}
	if err == nil && !c.failure.Opened {
		c.failure.Opened = true
		c.failing(c.failure) // its answer may take its time
	}
	return conn, err
}

// open reports whether the port accepts a connection.
func (c *check) open(ctx context.Context) bool {
	conn, err := c.dial(ctx)
	return err == nil && conn.Close() == nil
}

// waitUntil waits for the time of the next check, or less if the port opens before; it
// returns false if the time for all checks is over.
func (c *check) waitUntil(ctx context.Context, next time.Time) bool {
	for !c.failure.Opened && time.Now().Before(next) {
		if !pause.For(ctx, min(time.Until(next), portEvery)) {
			return false
		}
		if c.open(ctx) {
			return true
		}
	}
	return pause.For(ctx, time.Until(next))
}

// brief returns the innermost cause of a failed request, without addresses that mean
// nothing outside.
func brief(err error) string {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, net.ErrClosed) { // at its deadline
		return "it timed out"
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the program closed the connection"
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
