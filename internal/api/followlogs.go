package api

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/sse"
	"github.com/berth-host/berth/internal/stack"
)

// logLine is one line of a service's log in a stream.
type logLine struct {
	Service string `json:"service"`
	Line    string `json:"line"`
}

// logCursor says how far the reader of a stream is in the log of each service.
type logCursor map[string]logfile.Position

// String returns the cursor as the id of an event.
func (k logCursor) String() string {
	var b strings.Builder
	for _, service := range slices.Sorted(maps.Keys(k)) {
		b.WriteString(service + ":" + k[service].String() + ",")
	}
	return strings.TrimSuffix(b.String(), ",")
}

// parseLogCursor reads a Last-Event-ID; nil for none.
func parseLogCursor(text string) (logCursor, error) {
	if text == "" {
		return nil, nil
	}
	k := logCursor{}
	for item := range strings.SplitSeq(text, ",") {
		service, at, _ := strings.Cut(item, ":")
		p, err := logfile.ParsePosition(at)
		if err != nil {
			return nil, invalid("%s must be the id of an event of this stream, not %q; leave it out to begin with the last lines",
				headerLastEventID, shorten(text))
		}
		k[service] = p
	}
	return k, nil
}

// news is an addition to one service's log.
type news struct {
	service string
	added   logfile.News
}

// logFeed is one stream of logs. Services that a redeploy adds are followed too.
type logFeed struct {
	access    access
	query     logQuery
	resume    logCursor // where to begin; nil for the last lines
	cfg       Config
	news      chan news
	seen      logCursor // of the services that are followed
	followed  map[string]bool
	following sync.WaitGroup
}

// followLogs answers GET /v0/stacks/{id}/logs with a stream: the last lines, or those
// after the event that a returning reader has seen, and then each as it is written.
func (a *API) followLogs(c *fiber.Ctx, q logQuery) error {
	resume, err := parseLogCursor(c.Get(headerLastEventID))
	if err != nil {
		return err
	}
	f := &logFeed{
		access: a.gate.accessOf(c), query: q, resume: resume, cfg: a.cfg,
		news: make(chan news), seen: logCursor{}, followed: map[string]bool{},
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
	for first := true; ; first = false {
		s, err := f.access.check()
		if err != nil {
			return sendEnd(out, err)
		}
		f.followNew(ctx, s)
		if first {
			err = f.sendFirst(ctx, out)
		}
		if err == nil {
			err = f.sendUntil(ctx, out, wake, beat.C)
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// sendFirst waits until it is known where each log begins, and then sends the first
// lines: the id of the very first one has a place for each service.
func (f *logFeed) sendFirst(ctx context.Context, out sse.Writer) error {
	var first []news
	for len(f.seen) < len(f.followed) {
		select {
		case n := <-f.news:
			first = append(first, n)
			if _, known := f.seen[n.service]; !known {
				f.seen[n.service] = n.added.From
			}
		case <-ctx.Done():
			return nil
		}
	}
	for _, n := range first {
		if err := f.send(out, n); err != nil {
			return err
		}
	}
	return nil
}

// sendUntil sends lines until it is time to look at the stack again.
func (f *logFeed) sendUntil(ctx context.Context, out sse.Writer, wake <-chan struct{}, beat <-chan time.Time) error {
	for {
		select {
		case n := <-f.news:
			if err := f.send(out, n); err != nil {
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
		v := f.query.view
		if f.resume != nil {
			v.From = new(f.resume[name]) // of a service that was added since, all
		}
		f.following.Go(func() { f.follow(ctx, s, name, v) })
	}
}

// follow passes on what is added to a service's log; nothing if the log cannot be read.
func (f *logFeed) follow(ctx context.Context, s *stack.Stack, service string, v logfile.View) {
	begun := false
	emit := func(added logfile.News) error {
		select {
		case f.news <- news{service, added}:
			begun = true
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := f.cfg.Dir.FollowLogs(ctx, s, service, f.query.kind, v, emit)
	if err != nil && ctx.Err() == nil {
		f.cfg.Log.Error("log not followed", "stack", s.ID, "service", service, "error", err)
	}
	if !begun {
		_ = emit(logfile.News{}) // or sendFirst would wait for it
	}
}

// send sends an addition, each line with where the reader is after it.
func (f *logFeed) send(out sse.Writer, n news) error {
	f.seen[n.service] = n.added.From
	if n.added.Anew {
		if err := sendJSON(out, sse.Event{ID: f.seen.String(), Name: "reset"}, fiber.Map{"service": n.service}); err != nil {
			return err
		}
	}
	for _, line := range n.added.Lines {
		f.seen[n.service] = line.End
		text := safetext.String(strings.TrimSuffix(line.Text, "\r"))
		if err := sendJSON(out, sse.Event{ID: f.seen.String()}, logLine{n.service, text}); err != nil {
			return err
		}
	}
	return nil
}
