package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
)

// gate stands before everything that answers for the base URL's host. While another process
// takes the server's place, it holds requests back, and then has that one answer them.
type gate struct {
	here http.Handler

	mu      sync.Mutex
	held    held
	next    http.Handler  // answers instead; nil for nobody
	inside  int           // requests that here answers
	busy    int           // of those, the ones with long work; see isLong
	changed chan struct{} // closed when any of the above changes; nil while nobody waits
}

// held is which requests wait.
type held int

const (
	heldNone held = iota
	heldLong
	heldAll
)

func newGate(here http.Handler) *gate { return &gate{here: here} }

// ServeHTTP has a request answered once it may be.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	long := isLong(r)
	next, ok := g.enter(r.Context(), long)
	switch {
	case !ok: // its sender has left
	case next != nil:
		w.Header().Set("Connection", "close")
		next.ServeHTTP(w, r)
	default:
		rested := func() {}
		if long {
			rested = sync.OnceFunc(func() { g.leave(0, 1) })
			defer rested()
		}
		defer g.leave(1, 0)
		if isUpload(r) {
			r.Body = &upload{r.Body, rested}
		}
		g.here.ServeHTTP(w, r)
	}
}

// enter waits until a request may be answered, and returns by whom instead, or nil. It returns
// false if ctx ends first.
func (g *gate) enter(ctx context.Context, long bool) (next http.Handler, ok bool) {
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
				g.busy++
			}
			return nil, true
		}
		changed := g.change()
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// leave counts requests less.
func (g *gate) leave(inside, busy int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside -= inside
	g.busy -= busy
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
	return g.await(ctx, func() bool { return g.busy == 0 })
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

// isLong reports whether a request may go on for long: an upload until it has arrived, a
// transfer of data and a command until they have ended. Neither a stream of events nor
// wait=true counts, which end with what they have whenever the server asks.
func isLong(r *http.Request) bool {
	path := r.URL.Path
	return isUpload(r) || isTransfer(path) || strings.HasSuffix(path, "/exec")
}

func isTransfer(path string) bool {
	return strings.HasSuffix(path, "/data") || strings.HasSuffix(path, "/source")
}

// isUpload reports whether a request has long work until its body has arrived.
func isUpload(r *http.Request) bool {
	return (r.ContentLength < 0 || r.ContentLength > smallBody) && !isTransfer(r.URL.Path)
}

// upload is a body that calls arrived once it has been read to its end.
type upload struct {
	io.ReadCloser
	arrived func()
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if err != nil {
		u.arrived()
	}
	return n, err
}
