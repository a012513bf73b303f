package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/plainjson"
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
