package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/a-h/templ"
	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/sse"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// feed is what one stream of server-sent events tells: the parts of a page
// whenever they have changed, and the lines of a log.
type feed struct {
	watch string // stack whose changes matter; "" for all
	parts func() ([]part, error)
	stack *stack.Stack // whose log is followed; nil for none
	log   logView
}

// part is an element of a page that changes, by its id.
type part struct {
	id      string
	content templ.Component
}

// partsRest is the time between two looks at what changed.
const partsRest = 200 * time.Millisecond

// lines are new lines of a log.
type lines struct {
	Lines []string `json:"lines"`
	Anew  bool     `json:"anew"` // what is there goes first
}

// errStreams refuses a stream of an account that has as many as it may have.
var errStreams = &stack.Error{
	Kind: stack.TooMany, RetryAfter: time.Minute,
	Detail: fmt.Sprintf("%d pages of this account are open already; close some, or try again in a minute", sse.MostOpen),
}

// stream answers with server-sent events until the browser leaves, the session
// ends or the server stops. An account has only so many at a time.
func (w *Web) stream(c *fiber.Ctx, owner store.Session, f feed) error {
	if c.Method() == fiber.MethodHead {
		streamHead(c)
		return nil // fasthttp would end the answer with bytes that a HEAD must not have
	}
	leave, ok := w.streams.Take(owner.Account.ID)
	if !ok {
		return errStreams
	}
	streamHead(c)
	token := w.cookie(c, sessionCookie)
	c.Context().SetBodyStreamWriter(func(out *bufio.Writer) { // runs in any case, and at once
		defer leave()
		ctx, cancel := context.WithCancel(w.base)
		defer cancel()
		defer func() {
			if v := recover(); v != nil {
				w.Log.Error("stream panicked", "error", fmt.Sprint(v), "trace", string(debug.Stack()))
			}
		}()
		s := &streamer{Web: w, feed: f, token: token, out: sse.NewWriter(out), sent: map[string]string{}}
		if err := s.run(ctx); err != nil {
			w.Log.Error("stream broke", "error", err)
		}
	})
	return nil
}

func streamHead(c *fiber.Ctx) {
	c.Set(fiber.HeaderContentType, sse.ContentType)
	c.Set("X-Accel-Buffering", "no") // asks a proxy in front to pass events on at once
}

// streamer is one stream under way.
type streamer struct {
	*Web
	feed
	token string // of the session
	out   sse.Writer
	sent  map[string]string // parts as the browser has them, by id
}

// run tells everything once, and then what changes. A browser that left is no
// error.
func (s *streamer) run(ctx context.Context) error {
	wake, stop := s.Store.Watch(s.watch)
	defer stop()
	beat := time.NewTicker(sse.BeatEvery)
	defer beat.Stop()
	news := s.followLog(ctx)
	due, waiting := time.NewTimer(0), true
	defer due.Stop()
	for {
		var err error
		select {
		case <-due.C:
			waiting = false
			err = s.sendParts()
		case <-wake:
			if !waiting {
				waiting = true
				due.Reset(partsRest) // what comes until then goes together
			}
		case l := <-news:
			err = s.send("log", l)
		case <-beat.C:
			err = s.beat()
		case <-s.released:
			return nil
		}
		switch {
		case errors.Is(err, sse.ErrLeft):
			return nil
		case err != nil:
			return err
		}
	}
}

// followLog sends the lines of the feed's log; nil when there is none.
func (s *streamer) followLog(ctx context.Context) <-chan lines {
	if s.stack == nil {
		return nil
	}
	news := make(chan lines)
	go func() {
		anew := true // the first lines replace those that the page came with
		err := s.Host.FollowLogs(ctx, s.stack, s.log.Service, s.log.Kind, logLines, func(text []string, begun bool) error {
			select {
			case news <- lines{readableAll(text), anew || begun}:
				anew = false
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil && ctx.Err() == nil {
			s.Log.Error("log not followed", "stack", s.stack.ID, "service", s.log.Service, "error", err)
		}
	}()
	return news
}

// sendParts sends those parts that are not as the browser has them. When the
// stack is gone, it sends the browser to the list.
func (s *streamer) sendParts() error {
	parts, err := s.parts()
	var known *stack.Error
	if errors.As(err, &known) && known.Kind == stack.NotFound {
		if err := s.send("go", "/dashboard"); err != nil {
			return err
		}
		return sse.ErrLeft
	}
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := s.sendPart(p); err != nil {
			return err
		}
	}
	return nil
}

func (s *streamer) sendPart(p part) error {
	var b bytes.Buffer
	if err := p.content.Render(s.base, &b); err != nil {
		return fmt.Errorf("render %s: %w", p.id, err)
	}
	html := b.String()
	if s.sent[p.id] == html {
		return nil
	}
	s.sent[p.id] = html
	return s.send("part", struct {
		ID   string `json:"id"`
		HTML string `json:"html"`
	}{p.id, html})
}

// beat keeps the connection busy, and ends the stream with the session.
func (s *streamer) beat() error {
	_, ok, err := s.Accounts.Session(s.base, s.token)
	if err != nil {
		return fmt.Errorf("look up the session: %w", err)
	}
	if !ok {
		return sse.ErrLeft
	}
	return s.out.Beat()
}

// send writes one event; its data is JSON and so has no line ends.
func (s *streamer) send(event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode %s: %w", event, err)
	}
	return s.out.Send(sse.Event{Name: event, Data: string(text)})
}
