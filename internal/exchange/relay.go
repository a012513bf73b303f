package exchange

import (
	"io"
	"net/http/httputil"
	"net/textproto"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/berth-host/berth/internal/wire"
)

// The statuses of which an exchange makes something.
const (
	statusContinue  = 100
	statusSwitching = 101
	statusNoContent = 204
	// A 304 has neither the length nor the type of the body that the caller has (RFC 9110,
	// 15.4.5), as net/http has it.
	statusNotModified = 304
)

// spliceFrom is the size in bytes from which a splice costs less than reads and writes.
const spliceFrom = 16 << 10

// relay passes the answer on. Once the head is out, breaking off the caller's
// connection is the only way to report a failure.
func (x *exchange) relay() {
	h := &x.c.head
	body := h.HasBody(x.r.Method)
	x.head = Head{Status: h.Status, Fields: x.passedFields(), Length: h.Length, Body: body}
	if h.Chunked {
		x.head.Trailers = announcedTrailers(h)
	}
	if h.Status == statusNoContent || h.Status == statusNotModified {
		x.head.Length = -1
	}
	x.reply.Begin(&x.head, x.unread())
	var err error
	if body {
		err = x.relayBody()
	}
	if err != nil {
		x.u.log.DebugContext(x.call.Context(), "answer broken off", "host", x.r.Host, "error", readError(err))
		x.reply.Abort()
		return
	}
	x.ended = true
	x.clean = !h.Close && !x.doubt && x.u.kind != Inner && (!body || h.Chunked || h.Length >= 0)
	x.settleUpload()
}

// settleUpload decides about a body that outlives its answer: an upstream that accepted
// the request gets the rest of it, one that refused or closes does not.
func (x *exchange) settleUpload() {
	if !x.hasBody || x.sent {
		return
	}
	if x.upload == nil {
		x.clean = false
		return
	}
	if x.upload.over() {
		x.clean = x.clean && x.upload.err == nil
		return
	}
	if x.upload.consumed.Load() || x.c.head.Status < 400 && x.clean {
		x.reply.Flush()
		x.clean = x.upload.settle() && x.clean
	}
}

// passedFields returns the answer's fields that are passed on. They are good until the next
// answer of the connection.
func (x *exchange) passedFields() []wire.Field {
	h := &x.c.head
	passed := x.c.passed[:0]
	for i := range h.Fields {
		if f := &h.Fields[i]; !x.drops(f) {
			passed = append(passed, *f)
		}
	}
	if x.of.NoIndex && h.Status >= 200 {
		passed = append(passed, wire.Field{Key: headerRobots, Value: "noindex"})
	}
	x.c.passed = passed
	return passed
}

const headerRobots = "X-Robots-Tag"

// drops reports whether a header of the answer is not passed on as it is.
func (x *exchange) drops(f *wire.Field) bool {
	switch f.Key {
	case "Content-Length":
		return true
	case "Content-Type":
		return x.c.head.Status == statusNotModified
	case "Set-Cookie":
		return x.u.kind == Service && wire.RefusedCookie(f.Value, x.of.Host, x.of.Domain)
	case headerRobots:
		return x.of.NoIndex && x.c.head.Status >= 200
	}
	return x.c.head.IsHop(f.Key)
}

// announcedTrailers returns the names of the trailers that will follow.
func announcedTrailers(h *wire.Answer) (names []string) {
	for i := range h.Fields {
		if h.Fields[i].Key != "Trailer" {
			continue
		}
		for name := range wire.Tokens([]string{h.Fields[i].Value}) {
			if name = textproto.CanonicalMIMEHeaderKey(name); httpguts.ValidHeaderFieldName(name) && wire.TrailerAllowed(name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// relayBody copies the body and its trailers.
func (x *exchange) relayBody() error {
	c := x.c
	if rest := c.head.Length; rest >= 0 && int64(c.br.Buffered()) >= rest {
		return x.relayBuffered(int(rest))
	}
	if x.u.header > 0 {
		c.SetReadDeadline(time.Time{}) // from here on the body takes as long as it takes
	}
	if !c.readable() {
		x.reply.Flush()
	}
	pool := wire.Large
	if c.head.Chunked {
		pool = wire.Small // it may be a stream of events that stays open for days
	}
	buf := pool.Get()
	defer pool.Put(buf)
	switch {
	case c.head.Chunked:
		if err := x.relayReads(*buf, httputil.NewChunkedReader(c.br).Read); err != nil {
			return err
		}
		return x.relayTrailers()
	case c.head.Length >= 0:
		return x.relayLength(*buf, c.head.Length)
	}
	return x.relayReads(*buf, x.readReady)
}

// relayBuffered passes on a body that is in the buffer.
func (x *exchange) relayBuffered(length int) error {
	body, _ := x.c.br.Peek(length)
	_, err := x.reply.Write(body)
	x.c.br.Discard(length)
	return err
}

// relayLength copies exactly length bytes.
func (x *exchange) relayLength(buf []byte, length int64) error {
	if buffered := x.c.br.Buffered(); buffered > 0 && x.splicer(length-int64(buffered)) != nil {
		if err := x.relayBuffered(buffered); err != nil {
			return err
		}
		length -= int64(buffered)
	}
	for length > 0 {
		if rf := x.splicer(length); rf != nil && x.c.br.Buffered() == 0 {
			n, err := rf.ReadFrom(&io.LimitedReader{R: x.c.socket.TCPConn, N: length})
			if err == nil && n < length {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		want := buf[:min(int64(len(buf)), length)]
		n, err := x.readReady(want)
		if n > 0 {
			if _, werr := x.reply.Write(want[:n]); werr != nil {
				return werr
			}
		}
		length -= int64(n)
		if length == 0 {
			return nil
		}
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		x.flushUnlessMore(n == len(want))
	}
	return nil
}

// splicer returns an io.ReaderFrom that lets the kernel move the rest of a body, of which nothing
// is in the buffer, from one socket to the other as it comes; nil if that is impossible or too
// little is left.
func (x *exchange) splicer(length int64) io.ReaderFrom {
	if length < spliceFrom || x.c.socket == nil {
		return nil
	}
	return x.reply.Direct()
}

// relayReads copies what read returns, up to io.EOF.
func (x *exchange) relayReads(buf []byte, read func([]byte) (int, error)) error {
	for {
		n, err := read(buf)
		if n > 0 {
			if _, werr := x.reply.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		x.flushUnlessMore(n == len(buf))
	}
}

// relayTrailers reads what follows the last chunk.
func (x *exchange) relayTrailers() error {
	br := x.c.br
	if buffered, _ := br.Peek(br.Buffered()); wire.BlockEnd(buffered) == 0 {
		x.reply.Flush()
	}
	text, err := wire.ReadBlock(br)
	if err != nil {
		return err
	}
	fields, err := wire.ParseFields(nil, text)
	if err != nil {
		return err
	}
	if len(fields) > 0 {
		x.reply.Flush() // an answer that goes out whole gets a length, and then no trailers
	}
	fields = slices.DeleteFunc(fields, func(f wire.Field) bool { return !wire.TrailerAllowed(f.Key) })
	if len(fields) > 0 {
		x.reply.Trailers(fields)
	}
	return nil
}

// readReady reads what is in the buffer and what can be read after it without waiting;
// it waits only for the first byte.
func (x *exchange) readReady(p []byte) (int, error) {
	br := x.c.br
	buffered := br.Buffered() > 0
	n, err := br.Read(p)
	if !buffered || err != nil || n == len(p) || !x.c.readable() {
		return n, err
	}
	more, err := br.Read(p[n:])
	return n + more, err
}

// flushUnlessMore flushes unless more can be read without waiting. A read that did not
// fill its buffer has emptied the socket.
func (x *exchange) flushUnlessMore(filled bool) {
	if !filled || !x.c.readable() {
		x.reply.Flush()
	}
}
