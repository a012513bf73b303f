package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

const (
	defaultTail = 200
	mostTail    = 1_000_000 // more lines than a log of the default size holds
	logBuffer   = 32 << 10
)

// logQuery holds the parameters of a request for logs.
type logQuery struct {
	service, kind string
	view          logfile.View
}

// logs answers GET /v0/stacks/{id}/logs, sending the log as it is read, without holding
// any of it. If the request accepts server-sent events, it follows the log.
func (a *API) logs(c *fiber.Ctx, s *stack.Stack, _ string) error {
	q, err := parseLogQuery(c, s)
	if err != nil {
		return err
	}
	if wantsStream(c) {
		return a.followLogs(c, q)
	}
	stream := a.openLogs(s, q)
	if err := stream.begin(); err != nil {
		stream.Close()
		return fmt.Errorf("read the logs of stack %s: %w", s.ID, err)
	}
	c.Set(fiber.HeaderContentType, fiber.MIMETextPlainCharsetUTF8)
	return c.SendStream(stream)
}

func parseLogQuery(c *fiber.Ctx, s *stack.Stack) (logQuery, error) {
	q := logQuery{service: c.Query("service"), kind: c.Query("kind", "run"), view: logfile.View{Tail: defaultTail}}
	if q.kind != "run" && q.kind != "build" {
		return q, invalid("kind must be run (process output) or build (install and build output), not %q", shorten(q.kind))
	}
	if text := c.Query("tail"); text != "" {
		tail, err := strconv.Atoi(text)
		if (err != nil && !errors.Is(err, strconv.ErrRange)) || tail < 0 {
			return q, invalid("tail must be a number of lines, 0 or more, not %q", shorten(text))
		}
		q.view.Tail = min(tail, mostTail)
	}
	var err error
	if q.view.Stamped, err = queryFlag(c, "timestamps"); err != nil {
		return q, err
	}
	if q.view.Stamped && q.kind != "run" {
		return q, invalid("timestamps are kept for run logs only; leave timestamps out, or ask for kind=run")
	}
	if names := s.LogNames(q.kind); q.service != "" && !slices.Contains(names, q.service) {
		return q, stack.NewError(stack.NotFound, fmt.Sprintf("the stack has no service %q; its services are %s",
			shorten(q.service), strings.Join(names, ", ")))
	}
	return q, nil
}

// logStream reads what the host writes on its own goroutine.
type logStream struct {
	text   *bufio.Reader
	pipe   *io.PipeReader
	cancel context.CancelFunc
}

func (a *API) openLogs(s *stack.Stack, q logQuery) *logStream {
	ctx, cancel := context.WithCancel(a.server.Context())
	r, w := io.Pipe()
	go func() {
		defer func() {
			if v := recover(); v != nil {
				w.CloseWithError(fmt.Errorf("panic: %v", v))
			}
		}()
		buffered := bufio.NewWriterSize(w, logBuffer)
		text := safetext.NewWriter(buffered)
		err := a.cfg.Dir.Logs(ctx, s, q.service, q.kind, q.view, text)
		w.CloseWithError(errors.Join(err, text.Close(), buffered.Flush()))
	}()
	return &logStream{bufio.NewReaderSize(r, logBuffer), r, cancel}
}

// begin waits for the first bytes or the end, so that an error before them still gets a
// status.
func (l *logStream) begin() error {
	_, err := l.text.Peek(1)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Read is io.Reader's.
func (l *logStream) Read(p []byte) (int, error) { return l.text.Read(p) }

// Close ends the reading; further writes of the host fail.
func (l *logStream) Close() error {
	l.cancel()
	return l.pipe.Close()
}
