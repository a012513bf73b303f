package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/sse"
	"github.com/berth-host/berth/internal/stack"
)

// headerLastEventID is the id of the last event that a returning reader has seen.
const headerLastEventID = "Last-Event-ID"

// wantsStream reports whether a request asks for server-sent events.
func wantsStream(c *fiber.Ctx) bool { return sse.Accepted(c.Get(fiber.HeaderAccept)) }

// errStreams refuses another stream of a stack that already has as many as allowed.
var errStreams = &stack.Error{
	Kind: stack.TooMany, RetryAfter: time.Minute,
	Detail: fmt.Sprintf("%d streams of this stack's logs and events are open already; close one, or try again in a minute", sse.MostOpen),
}

// stream answers with the server-sent events that run writes, until run returns or its
// context ends because the reader has left or the server stops. Each stream reads logs
// and holds memory, so their number for each stack is limited.
func (a *API) stream(c *fiber.Ctx, run func(ctx context.Context, out sse.Writer) error) error {
	return a.server.Stream(c, c.Params("id"), errStreams, hangup(c.Context()), func(ctx context.Context, out sse.Writer) error {
		if err := out.Beat(); err != nil { // the headers go out at once
			return err
		}
		return run(ctx, out)
	})
}

// access is what a stream was opened with. It is checked again while the stream lasts:
// a token may be revoked, or a stack deleted.
type access struct {
	gate    gate
	token   string
	present bool
	id      string // of the stack
}

func (g gate) accessOf(c *fiber.Ctx) access {
	token, present := bearer(c)
	return access{g, token, present, c.Params("id")}
}

// check returns the stack while access is granted. The error says that the stack is
// deleted even if its account was deleted with it.
func (x access) check() (*stack.Stack, error) {
	s, _, err := x.gate.grant(x.token, x.present, x.id)
	if err != nil {
		if _, gone := x.gate.find(x.id); deleted(gone) {
			return nil, gone
		}
	}
	return s, err
}

// sendEnd tells the reader why check failed, and returns sse.ErrLeft. It returns an error
// that is not for the reader as it is.
func sendEnd(out sse.Writer, err error) error {
	known, ok := errors.AsType[*stack.Error](err)
	if !ok {
		return err
	}
	return cmp.Or(sendJSON(out, sse.Event{Name: "end"}, fiber.Map{"detail": known.Detail}), sse.ErrLeft)
}

func sendJSON(out sse.Writer, e sse.Event, data any) error {
	text, err := plainjson.Marshal(data)
	if err != nil {
		return err
	}
	e.Data = string(text)
	return out.Send(e)
}

// followEvents answers GET /v0/stacks/{id}/events with a stream: the events
// after the cursor, and then each as it is recorded.
func (a *API) followEvents(c *fiber.Ctx, after int64) error {
	if seen := c.Get(headerLastEventID); seen != "" {
		var err error
		if after, err = parseCursor(headerLastEventID, seen); err != nil {
			return err
		}
	}
	x := a.gate.accessOf(c)
	return a.stream(c, func(ctx context.Context, out sse.Writer) error {
		wake, stop := a.cfg.Store.Watch(x.id)
		defer stop()
		beat := time.NewTicker(sse.BeatEvery)
		defer beat.Stop()
		for {
			_, lost := x.check()
			if lost == nil || deleted(lost) {
				if err := a.sendEvents(ctx, out, x.id, &after); err != nil {
					return err
				}
			}
			if lost != nil {
				return sendEnd(out, lost)
			}
			select {
			case <-wake:
			case <-beat.C:
				if err := out.Beat(); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// deleted reports whether check failed because the stack is deleted: whoever followed
// it until then gets its last events.
func deleted(err error) bool {
	return stack.KindOf(err) == stack.NotFound
}

// sendEvents sends all events after the cursor and advances it.
func (a *API) sendEvents(ctx context.Context, out sse.Writer, id string, after *int64) error {
	for {
		events, err := a.cfg.Store.Events(ctx, id, *after, eventsPerRequest)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := sendJSON(out, sse.Event{ID: strconv.FormatInt(e.ID, 10), Name: string(e.Type)}, e); err != nil {
				return err
			}
			*after = e.ID
		}
		if len(events) < eventsPerRequest {
			return nil
		}
	}
}

// logLine is one line of a service's log in a stream.
type logLine struct {
	Service string `json:"service"`
	Line    string `json:"line"`
}

// news is an addition to one service's log.
type news struct {
	service string
	lines   []string
	anew    bool // a build begins its log anew, without what came before
}

// logFeed is one stream of logs. Services that a redeploy adds are followed
// from their first line.
type logFeed struct {
	access    access
	query     logQuery
	cfg       Config
	news      chan news
	followed  map[string]bool
	following sync.WaitGroup
}

// followLogs answers GET /v0/stacks/{id}/logs with a stream: the last lines,
// and then each as it is written.
func (a *API) followLogs(c *fiber.Ctx, q logQuery) error {
	f := &logFeed{
		access: a.gate.accessOf(c), query: q, cfg: a.cfg,
		news: make(chan news), followed: map[string]bool{},
	}
	return a.stream(c, f.streamLogs)
}

func (f *logFeed) streamLogs(ctx context.Context, out sse.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer f.following.Wait()
	defer cancel()
	wake, stop := f.cfg.Store.Watch(f.access.id)
	defer stop()
	beat := time.NewTicker(sse.BeatEvery)
	defer beat.Stop()
	for {
		s, err := f.access.check()
		if err != nil {
			return sendEnd(out, err)
		}
		f.followNew(ctx, s)
		if err := f.sendUntil(ctx, out, wake, beat.C); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// sendUntil sends lines until it is time to look at the stack again.
func (f *logFeed) sendUntil(ctx context.Context, out sse.Writer, wake <-chan struct{}, beat <-chan time.Time) error {
	for {
		select {
		case n := <-f.news:
			if err := n.send(out); err != nil {
				return err
			}
		case <-wake:
			return nil
		case <-beat:
			return out.Beat()
		case <-ctx.Done():
			return nil
		}
	}
}

// followNew begins to follow the services that are not yet followed.
func (f *logFeed) followNew(ctx context.Context, s *stack.Stack) {
	for _, name := range s.LogNames(f.query.kind) {
		if f.followed[name] || (f.query.service != "" && f.query.service != name) {
			continue
		}
		f.followed[name] = true
		f.following.Go(func() {
			err := f.cfg.Dir.FollowLogs(ctx, s, name, f.query.kind, f.query.tail, func(lines []string, anew bool) error {
				select {
				case f.news <- news{name, lines, anew}:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			if err != nil && ctx.Err() == nil {
				f.cfg.Log.Error("log not followed", "stack", s.ID, "service", name, "error", err)
			}
		})
	}
}

func (n news) send(out sse.Writer) error {
	if n.anew {
		if err := sendJSON(out, sse.Event{Name: "reset"}, fiber.Map{"service": n.service}); err != nil {
			return err
		}
	}
	for _, line := range n.lines {
		if err := sendJSON(out, sse.Event{}, logLine{n.service, safetext.String(strings.TrimSuffix(line, "\r"))}); err != nil {
			return err
		}
	}
	return nil
}
