package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/socket"
	"github.com/berth-host/berth/internal/wire"
)

// Tenant says how to treat the requests and answers of one stack.
type Tenant struct {
	Host    string // of the request, in lower case, without a port
	Domain  bool   // the host is its owner's, and not below the apps domain
	NoIndex bool   // search engines are asked not to list the answers
	Prefix  string // what was removed from the request's path, escaped; "" for nothing
}

// exchange is one request and its answer.
type exchange struct {
	u     *Upstream
	call  Call
	r     *wire.Request
	reply Reply
	of    Tenant
	head  Head // of the answer

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
	sent   bool        // the body went with the head
}

var (
	errStale        = errors.New("the pooled connection was closed")
	errUnsent       = errors.New("the pooled connection was closed before the request was sent")
	errSilentCaller = errors.New("no byte of the request's body came in time")
)

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

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// release gives the exchange back.
func (x *exchange) release() {
	*x = exchange{}
	exchanges.Put(x)
}

// Serve carries a request to the upstream and its answer back. A failure means that nothing
// has been passed on. If the sender leaves, it aborts the reply.
func (u *Upstream) Serve(call Call, of Tenant) *Failure {
	x := exchanges.Get().(*exchange)
	defer x.release()
	*x = exchange{u: u, call: call, r: call.Head(), reply: call.Reply(), of: of}
	x.hasBody = x.r.Length != 0
	x.expect = u.kind != Inner && x.r.Expects()
	x.upgrade = x.r.Upgrade()
	err := x.attempt(false)
	for again := 0; (errors.Is(err, errStale) || errors.Is(err, errUnsent)) && again < maxAgain; again++ {
		x.begun = x.begun || errors.Is(err, errStale) && !x.r.IsSafe()
		err = x.attempt(true)
	}
	switch {
	case err == nil:
		return nil
	case x.gone:
		x.reply.Abort()
		return nil
	}
	return x.failure(err)
}

// attempt runs the exchange over one connection. An error means that the
// caller has seen nothing yet.
func (x *exchange) attempt(fresh bool) error {
	ctx := x.call.Context()
	c, err := x.u.get(ctx, x.hasBody, fresh)
	if err != nil {
		x.gone = ctx.Err() != nil
		return noConnection{err}
	}
	x.c, x.heard, x.doubt, x.clean, x.sent = c, false, false, false, false
	x.stop = x.call.OnLeave(c.abort)
	x.announceLine(c.line)
	defer x.finish()
	unsent := x.send()
	if isTimeout(unsent) {
		return x.classify(unsent)
	}
	// A server may refuse a head that it has not read to its end, and close.
	err = x.receive()
	unsent = cmp.Or(unsent, c.fault())
	switch unsent {
	case socket.ErrSpoke:
		x.u.distrust()
		return errUnsent
	case socket.ErrGone:
		return errUnsent
	}
	x.doubt = x.doubt || unsent != nil
	if err != nil {
		return x.classify(cmp.Or(unsent, err))
	}
	if c.head.Status == statusSwitching {
		return x.tunnel()
	}
	x.relay()
	return nil
}

// repeatable reports whether the request may be sent again when a pooled connection
// turns out to have been closed.
func (x *exchange) repeatable() bool {
	if x.hasBody || x.upgrade != "" {
		return false
	}
	return x.r.IsSafe() || x.r.Method == "PUT" || x.r.Method == "DELETE"
}

// classify turns a failure before the first byte of the answer into errStale if the
// request may be sent again: the connection was kept and has been closed, or that of a node
// is new, and its server stops.
func (x *exchange) classify(err error) error {
	x.gone = x.call.Context().Err() != nil
	if (x.c.used || x.u.kind == Node) && !x.heard && x.repeatable() && !isTimeout(err) && !x.gone {
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
	c.limit(x.u.header)
	head := x.appendHead(c.bw.AvailableBuffer())
	if !x.hasBody {
		return c.sendWhole(head, nil)
	}
	if !x.expect {
		if whole := x.call.Body().Whole(); whole != nil {
			x.sent = true
			return c.sendWhole(head, whole)
		}
	}
	if err := c.send(head, nil); err != nil {
		return err
	}
	if !x.expect {
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
		if err := h.Read(x.c.br); err != nil {
			return err
		}
		x.doubt = x.doubt || h.Overpromises()
		switch {
		case h.Status == statusContinue:
			x.startUpload()
		case h.Status == statusSwitching, h.Status >= 200:
			return nil
		default:
			x.reply.Interim(h.Status, x.passedFields())
		}
	}
	return wire.BadAnswer("too many interim answers")
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
	case !x.hasBody, x.sent, x.u.header <= 0 && !x.expect:
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
	if w := x.call.Caller().Watch; w != nil {
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
		x.upload.cut(x.c)
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

// unread reports whether the connection to the sender must end with the answer, since the
// rest of the request's body would be taken for the next request.
func (x *exchange) unread() bool {
	return x.hasBody && !x.sent && (x.upload == nil || !x.upload.consumed.Load())
}

// startUpload starts sending the request's body, beside the answer.
func (x *exchange) startUpload() {
	if x.upload != nil || !x.hasBody || x.sent {
		return
	}
	body := x.call.Body()
	body.Begin()
	if x.u.header > 0 {
		x.c.SetWriteDeadline(time.Time{}) // of the head; from here on it is about whether bytes move
	}
	x.upload = newUpload(body, x.r.Length)
	go x.upload.copyBody(x.c)
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
