package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// LogLine is one line of a followed log.
type LogLine struct {
	Service string `json:"service"`
	Line    string `json:"line"`
}

// longestSilence is how long a stream may be silent: the server sends a sign of life
// every 15 s.
const longestSilence = time.Minute

// FollowLogs calls emit with each line of the logs: the last lines, or those behind the
// line of an id, and then each as it is written. It returns the id of the last line. The
// stream may end before the logs do, with or without an error: call FollowLogs again
// with that id, to miss nothing.
func (c *Client) FollowLogs(ctx context.Context, stack string, q LogQuery, id string, emit func(LogLine) error) (last string, err error) {
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := c.request(streaming, http.MethodGet, logsPath(stack), q.values(), nil)
	if err != nil {
		return id, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if id != "" {
		req.Header.Set("Last-Event-ID", id)
	}
	res, err := c.send(req)
	if err != nil {
		return id, cmp.Or(ctx.Err(), err)
	}
	defer res.Body.Close()
	silence := time.AfterFunc(longestSilence, cancel)
	defer silence.Stop()
	s := logStream{in: bufio.NewReader(lively{res.Body, silence}), id: id}
	err = s.read(emit)
	if broken, ok := errors.AsType[*brokenOff](err); ok {
		err = cmp.Or(ctx.Err(), error(&Unreachable{Server: c.Server(), Err: broken.err}))
	}
	return s.id, err
}

// lively is a body that puts off a timer whenever something arrives.
type lively struct {
	body  io.Reader
	timer *time.Timer
}

func (l lively) Read(p []byte) (int, error) {
	n, err := l.body.Read(p)
	l.timer.Reset(longestSilence)
	return n, err
}

// brokenOff is the error of a stream that ended in the middle.
type brokenOff struct{ err error }

func (e *brokenOff) Error() string { return e.err.Error() }

// logStream reads server-sent events.
type logStream struct {
	in *bufio.Reader
	id string // of the last event
}

// read reads events until the stream ends.
func (s *logStream) read(emit func(LogLine) error) error {
	var id, name, data string
	for {
		line, err := s.in.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &brokenOff{err}
		}
		switch field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if err := s.event(cmp.Or(id, s.id), name, data, emit); err != nil {
				return err
			}
			id, name, data = "", "", ""
		}
	}
}

// event takes one event; only those without a name are lines.
func (s *logStream) event(id, name, data string, emit func(LogLine) error) error {
	if name == "" && data != "" {
		var line LogLine
		if err := json.Unmarshal([]byte(data), &line); err != nil {
			return fmt.Errorf("read the stream of logs: %w", err)
		}
		if err := emit(line); err != nil {
			return err
		}
	}
	s.id = id
	return nil
}
