package server

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/berth-host/berth/internal/wire"
)

// gate stands before everything that answers for the base URL's host. While another process
// takes the server's place, it holds requests back, and then has that one answer them.
type gate struct {
	here http.Handler

	mu      sync.Mutex
	held    held
	next    http.Handler  // answers instead; nil for nobody
	inside  int           // requests that here answers
	busy    busy          // of those, the ones with long work; see isLong
	changed chan struct{} // closed when any of the above changes; nil while nobody waits
}

// busy has the ids of requests.
type busy map[*http.Request]string

// held is which requests wait.
type held int

const (
	heldNone held = iota
	heldLong
	heldAll
)

func newGate(here http.Handler) *gate { return &gate{here: here, busy: busy{}} }

// ServeHTTP has a request answered once it may be.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	next, ok := g.enter(r)
	switch {
	case !ok: // its sender has left
	case next != nil:
		w.Header().Set("Connection", "close")
		next.ServeHTTP(w, r)
	default:
		defer g.leave(r)
		g.here.ServeHTTP(w, r)
	}
}

// enter waits until a request may be answered, and returns by whom instead, or nil. It returns
// false if its sender leaves first.
func (g *gate) enter(r *http.Request) (next http.Handler, ok bool) {
	long := isLong(r)
	for {
		g.mu.Lock()
		if g.next != nil {
			defer g.mu.Unlock()
			return g.next, true
		}
		if g.held == heldNone || g.held == heldLong && !long {
			defer g.mu.Unlock()
			g.inside++
			if long {
				g.busy[r] = r.Header.Get(wire.HeaderRequestID)
			}
			return nil, true
		}
		changed := g.change()
		g.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
			return nil, false
		}
	}
}

// leave counts a request no longer, which has been answered.
func (g *gate) leave(r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	delete(g.busy, r)
	g.note()
}

// rest ends the long work of the request with an id, whose answer alone is held from now on.
func (g *gate) rest(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.busy, func(_ *http.Request, of string) bool { return of == id })
	g.note()
}

// change returns what is closed at the next change. The caller holds mu.
func (g *gate) change() <-chan struct{} {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.changed
}

// note wakes whoever waits. The caller holds mu.
func (g *gate) note() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// hold makes requests wait from now on.
func (g *gate) hold(which held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = which
	g.note()
}

// passOn makes another handler answer all requests, and first those that wait.
func (g *gate) passOn(to http.Handler) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next = to
	g.note()
}

// awaitRest waits until no long work is under way, and reports whether that was before ctx
// ended.
func (g *gate) awaitRest(ctx context.Context) bool {
	return g.await(ctx, func() bool { return len(g.busy) == 0 })
}

// awaitUnderWay waits until the long work that is under way now has ended, whatever begins
// meanwhile, and reports whether that was before ctx ended.
func (g *gate) awaitUnderWay(ctx context.Context) bool {
	g.mu.Lock()
	now := maps.Clone(g.busy)
	g.mu.Unlock()
	return g.await(ctx, func() bool {
		maps.DeleteFunc(now, func(r *http.Request, _ string) bool { _, is := g.busy[r]; return !is })
		return len(now) == 0
	})
}

// awaitEmpty waits until no request is under way, and reports whether that was before ctx
// ended.
func (g *gate) awaitEmpty(ctx context.Context) bool {
	return g.await(ctx, func() bool { return g.inside == 0 })
}

func (g *gate) await(ctx context.Context, done func() bool) bool {
	for {
		g.mu.Lock()
		now, changed := done(), g.change()
		g.mu.Unlock()
		if now {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// smallBody is the largest size of a body that is not an upload, in bytes.
const smallBody = 64 << 10

// isLong reports whether a request may go on for long: an upload, which may wait for its turn
// after it has arrived, a call of a tool, a transfer of data and a command, until they are
// answered. Neither a stream of events nor wait=true counts, which end with what they have
// whenever the server asks.
func isLong(r *http.Request) bool {
	path := r.URL.Path
	switch {
	case r.ContentLength < 0, r.ContentLength > smallBody:
		return true
	case strings.HasSuffix(path, "/data"), strings.HasSuffix(path, "/source"), strings.HasSuffix(path, "/exec"):
		return true
	}
	return r.Method == http.MethodPost &&
		(path == pathMCP || path == "/v0/stacks" || strings.HasSuffix(path, "/deploy") || strings.HasSuffix(path, "/validate"))
}
