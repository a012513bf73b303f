package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/a-h/templ"
	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/sse"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/usage"
)

// feed is what one stream of server-sent events sends: the parts of a page whenever
// they change, and the lines of a log.
type feed struct {
	watch string // stack whose changes matter; "" for all
	parts func() ([]part, error)
	stack *stack.Stack // whose log is followed; nil for none
	log   logView
}

// part is a changing element of a page, by its id.
type part struct {
	id      string
	content templ.Component
}

// partsRest is the pause between two checks for changes.
const partsRest = 200 * time.Millisecond

// logBatch is new lines of a log.
type logBatch struct {
	HTML  string        `json:"html"`
	Anew  bool          `json:"anew"`            // the lines shown are removed first
	Older templ.SafeURL `json:"older,omitempty"` // page of the lines before these; "" if there are none
}

// errStreams refuses another stream of an account that already has as many as allowed.
var errStreams = &stack.Error{
	Kind: stack.TooMany, RetryAfter: time.Minute,
	Detail: fmt.Sprintf("%d pages of this account are open already; close some, or try again in a minute", sse.MostOpen),
}

// stream answers with server-sent events until the browser leaves, the session ends or
// the server stops. The number of streams for each account is limited.
func (w *pages) stream(c *fiber.Ctx, owner store.Session, f feed) error {
	token := w.cookie(c, sessionCookie)
	return w.server.Stream(c, owner.Account.ID, errStreams, nil, func(ctx context.Context, out sse.Writer) error {
		s := &streamer{web: w, feed: f, token: token, out: out, sent: map[string]string{}}
		return s.streamPage(ctx)
	})
}

// streamer is one stream under way.
type streamer struct {
	web   *pages
	feed  feed
	token string // of the session
	out   sse.Writer
	sent  map[string]string // parts as the browser has them, by id
}

// streamPage sends everything once, and then what changes. It returns sse.ErrLeft if the
// browser has left.
func (s *streamer) streamPage(ctx context.Context) error {
	wake, stop := s.web.cfg.Store.Watch(s.feed.watch)
	defer stop()
	beat := time.NewTicker(sse.BeatEvery)
	defer beat.Stop()
	measured := time.NewTicker(usage.Finest.Length)
	defer measured.Stop()
	news := s.followLog(ctx)
	due, waiting := time.NewTimer(0), true
	defer due.Stop()
	for {
		var err error
		select {
		case <-due.C:
			waiting = false
			err = s.sendParts()
		case <-measured.C:
			err = s.sendParts()
		case <-wake:
			if !waiting {
				waiting = true
				due.Reset(partsRest) // changes until then are sent together
			}
		case l := <-news:
			err = s.send("log", l)
		case <-beat.C:
			err = s.beat()
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// followLog sends the lines of the feed's log to the returned channel; nil if there is
// no log.
func (s *streamer) followLog(ctx context.Context) <-chan logBatch {
	if s.feed.stack == nil {
		return nil
	}
	news := make(chan logBatch)
	go func() {
		err := s.copyLog(ctx, news)
		if err != nil && ctx.Err() == nil {
			s.web.cfg.Log.Error("log not followed", "stack", s.feed.stack.ID, "service", s.feed.log.Service, "error", err)
		}
	}()
	return news
}

// copyLog sends the newest lines of the feed's log, which replace those on the page, and
// then what is added.
func (s *streamer) copyLog(ctx context.Context, news chan<- logBatch) error {
	st, l := s.feed.stack, s.feed.log
	send := func(p logfile.Page, anew bool) error {
		b, err := l.with(p).batch(ctx, st.ID, anew)
		if err != nil || (b.HTML == "" && !anew) {
			return err
		}
		select {
		case news <- b:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	first, err := s.web.readLog(ctx, st, l, true)
	if err == nil {
		err = send(first, true)
	}
	if err != nil {
		return err
	}
	return s.web.cfg.Logs.FollowLogs(ctx, st, l.Service, l.Kind, logfile.View{From: &first.End}, func(added logfile.News) error {
		return send(logfile.Page{Lines: added.Lines, From: added.From, Older: !added.Anew}, added.Anew)
	})
}

// sendParts sends the parts that differ from what the browser has. If the stack is
// gone, it sends the browser to the list of stacks.
func (s *streamer) sendParts() error {
	parts, err := s.feed.parts()
	if stack.KindOf(err) == stack.NotFound {
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
	if err := p.content.Render(s.web.server.Context(), &b); err != nil {
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

// beat keeps the connection alive, and ends the stream when the session has ended
// or the account is disabled.
func (s *streamer) beat() error {
	session, ok, err := s.web.cfg.Accounts.Session(s.web.server.Context(), s.token)
	if err != nil {
		return fmt.Errorf("look up the session: %w", err)
	}
	if !ok || session.Account.CheckEnabled() != nil {
		return sse.ErrLeft
	}
	return s.out.Beat()
}

// send writes one event; its data is JSON and so has no line breaks.
func (s *streamer) send(event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode %s: %w", event, err)
	}
	return s.out.Send(sse.Event{Name: event, Data: string(text)})
}
