package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// tenant says how to treat the answers of one stack.
type tenant struct {
	host    string // of the request, in lower case, without a port
	domain  bool   // the host is its owner's, and not below the apps domain
	noindex bool
	prefix  string // what was removed from the request's path, escaped; "" for nothing
	tally   *tally // counts the request; nil if nobody does
}

// exchange is one request and its answer.
type exchange struct {
	u  *upstream
	w  http.ResponseWriter
	r  *http.Request
	of tenant

	// noWay answers, unless nil, when no connection can be had and nothing of the request
	// has been sent that may have changed anything.
	noWay func()

	hasBody bool
	upgrade string // protocols asked for, "" for none
	expect  bool   // the body waits for the upstream's 100 Continue

	c      *conn
	stop   func() bool // ends the watch over the caller
	heard  bool        // the upstream has sent a byte
	doubt  bool        // what it sent or received is inconsistent: its connection is not used again
	begun  bool        // an earlier attempt may have changed something
	gone   bool        // the caller left before it was answered
	ended  bool        // the answer was read to its end
	clean  bool        // the connection may be used again
	upload *upload     // nil until the body is on its way
}

var (
	errStale        = errors.New("the pooled connection was closed")
	errSilentCaller = errors.New("no byte of the request's body came in time")
)

// unreachable is a failure to get a connection.
type unreachable struct{ error }

const (
	maxInterims = 16
	// maxAgain is how often a request is sent again: once to a service, and more often to a
	// node, whose server may be on its way out.
	maxAgain = 3
	// expectWait is how long a body waits for 100 Continue before it is sent anyway:
	// not every server honours Expect.
	expectWait = time.Second
	// uploadLooks is how many times within the limit an upload is checked.
	uploadLooks = 20
)

// serve answers r from the upstream.
func (u *upstream) serve(w http.ResponseWriter, r *http.Request, of tenant) {
	u.serveOr(w, r, of, nil)
}

// serveOr answers r from the upstream, or has noWay do so, unless it is nil, if there is
// no connection: nothing of the request has been read then, and nothing sent that may have
// changed anything.
func (u *upstream) serveOr(w http.ResponseWriter, r *http.Request, of tenant, noWay func()) {
	if r.Method == http.MethodConnect {
		writePage(w, r, connectPage)
		return
	}
	x := &exchange{u: u, w: w, r: r, of: of, noWay: noWay}
	x.hasBody = r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
	if r.ProtoMajor == 1 && r.ProtoMinor >= 1 {
		x.expect = x.hasBody && u.kind != inner && hasToken(r.Header["Expect"], "100-continue")
		if !x.hasBody && hasToken(r.Header["Connection"], "upgrade") {
			x.upgrade = strings.Join(passedUpgrades(r.Header["Upgrade"]), ", ")
		}
	}
	err := x.attempt(false)
	for again := 0; errors.Is(err, errStale) && again < maxAgain; again++ {
		x.begun = !isSafe(r.Method)
		err = x.attempt(true)
	}
	if err != nil {
		x.fail(err)
	}
}

// attempt runs the exchange over one connection. An error means that the
// caller has seen nothing yet.
func (x *exchange) attempt(fresh bool) error {
	ctx := x.r.Context()
	c, err := x.u.get(ctx, fresh)
	if err != nil {
		x.gone = ctx.Err() != nil
		return unreachable{err}
	}
	x.c, x.heard, x.doubt, x.clean = c, false, false, false
	x.stop = context.AfterFunc(ctx, c.abort)
	x.announceLine(c.line)
	defer x.finish()
	unsent := x.send()
	if isTimeout(unsent) {
		return x.classify(unsent)
	}
	// A server may refuse a head that it has not read to its end, and close.
	x.doubt = unsent != nil
	if err := x.receive(); err != nil {
		return x.classify(cmp.Or(unsent, err))
	}
	if c.head.status == http.StatusSwitchingProtocols {
		return x.tunnel()
	}
	x.relay()
	return nil
}

// isSafe reports whether requests of a method change nothing.
func isSafe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions || method == http.MethodTrace
}

// repeatable reports whether the request may be sent again when a pooled connection
// turns out to have been closed.
func (x *exchange) repeatable() bool {
	if x.hasBody || x.upgrade != "" {
		return false
	}
	return isSafe(x.r.Method) || x.r.Method == http.MethodPut || x.r.Method == http.MethodDelete
}

// classify turns a failure before the first byte of the answer into errStale if the
// request may be sent again: the connection was kept and has been closed, or that of a node
// is new, and its server stops.
func (x *exchange) classify(err error) error {
	x.gone = x.r.Context().Err() != nil
	if (x.c.used || x.u.kind == node) && !x.heard && x.repeatable() && !isTimeout(err) && !x.gone {
		return errStale
	}
	if x.upload != nil {
		if e := x.upload.callerError(); e != nil {
			return e
		}
	}
	return err
}

// send writes the request's head and starts its body.
func (x *exchange) send() error {
	c := x.c
	if x.u.header > 0 {
		c.SetDeadline(time.Now().Add(x.u.header))
	}
	x.writeHead()
	if err := c.bw.Flush(); err != nil {
		return err
	}
	if x.hasBody && !x.expect {
		x.startUpload()
	}
	return nil
}

// receive reads heads up to the final one (or 101), and passes interim ones on.
func (x *exchange) receive() error {
	for range maxInterims {
		if err := x.await(); err != nil {
			return err
		}
		x.heard = true
		h := &x.c.head
		if err := h.read(x.c.br); err != nil {
			return err
		}
		x.doubt = x.doubt || h.overpromises()
		switch {
		case h.status == http.StatusContinue:
			x.startUpload()
		case h.status == http.StatusSwitchingProtocols, h.status >= 200:
			return nil
		default:
			x.relayInterim()
		}
	}
	return badAnswer("too many interim answers")
}

// await waits for the answer's first byte. The limit runs from the last byte of the
// request, so a body in motion extends it.
func (x *exchange) await() error {
	for {
		x.limitAwait()
		_, err := x.c.br.Peek(1)
		if err == nil {
			x.limitHead()
		}
		if err == nil || !isTimeout(err) {
			return err
		}
		switch {
		case x.expect && x.upload == nil:
			x.startUpload()
		case x.upload == nil:
			return err
		case x.upload.moves(x.c, x.u.header):
		case x.upload.silent():
			return errSilentCaller
		default:
			return err
		}
	}
}

// limitAwait sets the time at which await wakes up: when the time for 100 Continue or
// for the answer is over, and now and then while a body is on its way. Without a body,
// send has set it.
func (x *exchange) limitAwait() {
	switch {
	case x.upload == nil && x.expect:
		x.c.SetReadDeadline(time.Now().Add(expectWait))
	case x.upload == nil || x.u.header <= 0:
	case x.upload.over():
		x.c.SetReadDeadline(x.upload.lastMove().Add(x.u.header))
	default:
		x.c.SetReadDeadline(time.Now().Add(x.u.header / uploadLooks))
	}
}

// limitHead limits the head of an answer that has begun to the rest of the time for it.
func (x *exchange) limitHead() {
	switch {
	case !x.hasBody, x.u.header <= 0 && !x.expect:
	case x.u.header <= 0:
		x.c.SetReadDeadline(time.Time{})
	case x.upload == nil:
		x.c.SetReadDeadline(time.Now().Add(x.u.header))
	default:
		x.c.SetReadDeadline(x.upload.lastMove().Add(x.u.header))
	}
}

// announceLine passes the line to the watch over the request.
func (x *exchange) announceLine(line Line) {
	if w := callerOf(x.r).Watch; w != nil {
		w.Service(line)
	}
}

// finish gives the connection back or closes it. Afterwards nothing of the exchange is
// still running.
func (x *exchange) finish() {
	watching := x.stop()
	x.announceLine(nil)
	if x.c == nil { // a tunnel took it
		return
	}
	if x.upload != nil && !x.upload.over() {
		x.clean = false
		x.upload.cut(x.c, x.w)
	}
	beyond := x.c.br.Buffered() > 0
	if x.clean && watching && !beyond {
		x.u.put(x.c)
		return
	}
	if x.ended && beyond {
		x.u.distrust()
	}
	x.u.discard(x.c)
}

// fail answers with an error page, or not at all if the caller has left.
func (x *exchange) fail(err error) {
	if x.gone {
		panic(http.ErrAbortHandler)
	}
	if x.noWay != nil && !x.begun && errors.As(err, new(unreachable)) {
		x.u.log.InfoContext(x.r.Context(), "no way to a node", "host", x.r.Host, "error", err)
		x.noWay()
		return
	}
	pg := x.u.unreachablePage()
	switch {
	case errors.As(err, new(*callerError)):
		pg = brokenBodyPage
	case errors.Is(err, errSilentCaller):
		pg = silentPage
	case errors.As(err, new(unreachable)): // and a late connection is not a late answer
	case isTimeout(err) && x.u.kind != node: // a node has no limit for its answer; its connection broke
		pg = latePage
	case errors.As(err, new(badAnswer)):
		pg = invalidPage(err)
	}
	x.u.log.InfoContext(x.r.Context(), "request to a service failed", "host", x.r.Host, "status", pg.status, "error", err)
	x.closeIfUnread()
	writePage(x.w, x.r, pg)
}

// closeIfUnread closes the caller's connection after this answer if the request's body
// has not been read, since the rest would be taken for the next request.
func (x *exchange) closeIfUnread() {
	if x.hasBody && x.r.ProtoMajor == 1 && (x.upload == nil || !x.upload.consumed.Load()) {
		x.w.Header().Set("Connection", "close")
	}
}

// startUpload starts sending the request's body, beside the answer.
func (x *exchange) startUpload() {
	if x.upload != nil || !x.hasBody {
		return
	}
	// Without it net/http reads the whole body before it sends the answer's head.
	_ = http.NewResponseController(x.w).EnableFullDuplex() // HTTP/2 is duplex by itself
	if x.u.header > 0 {
		x.c.SetWriteDeadline(time.Time{}) // of the head; from here on it is about whether bytes move
	}
	x.upload = newUpload(x.r, x.of.tally.received())
	go x.upload.copyBody(x.c)
}

// unreachablePage is the answer for an upstream that gives none.
func (u *upstream) unreachablePage() page {
	if u.kind == node {
		return cutOffPage
	}
	return unreachablePage
}

func isTimeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// readError describes why an answer did not come or broke off.
func readError(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the service closed the connection: %w", err)
	}
	return err
}
