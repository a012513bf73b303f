package proxy

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"
)

// spliceFrom is the size in bytes from which a splice costs less than reads and writes.
const spliceFrom = 16 << 10

// relay passes the answer on. Once the head is out, breaking off the caller's
// connection is the only way to report a failure.
func (x *exchange) relay() {
	h := &x.c.head
	x.copyFields(x.w.Header())
	x.closeIfUnread()
	body := h.hasBody(x.r.Method)
	x.w.WriteHeader(h.status)
	var err error
	if body {
		err = x.relayBody()
	}
	if err != nil {
		x.u.log.DebugContext(x.r.Context(), "answer broken off", "host", x.r.Host, "error", readError(err))
		x.flush() // the caller gets what came before the break
		panic(http.ErrAbortHandler)
	}
	x.ended = true
	x.clean = !h.close && !x.doubt && x.u.kind != inner && (!body || h.chunked || h.length >= 0)
	x.settleUpload()
}

// settleUpload decides about a body that outlives its answer: an upstream that accepted
// the request gets the rest of it, one that refused or closes does not.
func (x *exchange) settleUpload() {
	if !x.hasBody {
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
	if x.upload.consumed.Load() || x.c.head.status < 400 && x.clean {
		x.flush()
		x.clean = x.upload.settle() && x.clean
	}
}

// copyFields adds the answer's headers to the caller's.
func (x *exchange) copyFields(to http.Header) {
	h := &x.c.head
	values := make([]string, len(h.fields))
	_, hasID := to[HeaderRequestID]
	for i, f := range h.fields {
		if x.dropped(f, hasID) {
			continue
		}
		values[i] = f.value
		if have := to[f.key]; have != nil {
			to[f.key] = append(have, f.value)
		} else {
			to[f.key] = values[i : i+1 : i+1]
		}
	}
	if h.status < 200 {
		return
	}
	if h.length >= 0 && len(to["Content-Length"]) > 1 {
		to["Content-Length"] = to["Content-Length"][:1]
	}
	if to["Content-Type"] == nil {
		to["Content-Type"] = nil // keeps net/http from guessing one
	}
	if h.chunked {
		announceTrailers(to, h)
	}
	if x.of.noindex {
		to["X-Robots-Tag"] = noindex
	}
}

// dropped reports whether a header of the answer is not passed on.
func (x *exchange) dropped(f field, hasID bool) bool {
	h := &x.c.head
	switch f.key {
	case "Content-Length":
		return h.status < 200 || h.status == http.StatusNoContent
	case "Set-Cookie":
		return x.u.kind == service && refusedCookie(f.value, x.of)
	case HeaderRequestID:
		return hasID
	}
	return hopByHop(f.key) || h.hop != nil && slices.Contains(h.hop, f.key)
}

// announceTrailers announces the trailers that will follow.
func announceTrailers(to http.Header, h *head) {
	for _, f := range h.fields {
		if f.key != "Trailer" {
			continue
		}
		for name := range tokens([]string{f.value}) {
			if name = http.CanonicalHeaderKey(name); httpguts.ValidHeaderFieldName(name) && trailerAllowed(name) {
				to["Trailer"] = append(to["Trailer"], name)
			}
		}
	}
}

// relayInterim passes on an answer such as 103, whose headers are not the final ones.
func (x *exchange) relayInterim() {
	if !x.r.ProtoAtLeast(1, 1) {
		return
	}
	header := x.w.Header()
	saved := header.Clone()
	x.copyFields(header)
	x.w.WriteHeader(x.c.head.status)
	clear(header)
	maps.Copy(header, saved)
}

// relayBody copies the body and its trailers.
func (x *exchange) relayBody() error {
	c := x.c
	if rest := c.head.length; rest < 0 || int64(c.br.Buffered()) < rest {
		if x.u.header > 0 {
			c.SetReadDeadline(time.Time{}) // from here on the body takes as long as it takes
		}
		if !c.readable() {
			x.flush()
		}
	}
	pool := large
	if c.head.chunked {
		pool = small // it may be a stream of events that stays open for days
	}
	buf := pool.get()
	defer pool.put(buf)
	switch {
	case c.head.chunked:
		if err := x.relayReads(*buf, httputil.NewChunkedReader(c.br).Read); err != nil {
			return err
		}
		return x.relayTrailers()
	case c.head.length >= 0:
		return x.relayLength(*buf, c.head.length)
	}
	return x.relayReads(*buf, x.readReady)
}

// relayLength copies exactly length bytes.
func (x *exchange) relayLength(buf []byte, length int64) error {
	for length > 0 {
		if rf := x.splicer(length); rf != nil {
			n, err := rf.ReadFrom(&io.LimitedReader{R: x.c.Conn, N: length})
			if err == nil && n < length {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		want := buf[:min(int64(len(buf)), length)]
		n, err := x.readReady(want)
		if n > 0 {
			if _, werr := x.w.Write(want[:n]); werr != nil {
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

// splicer returns an io.ReaderFrom that lets the kernel move the rest of a body from
// one socket to the other as it comes; nil if that is impossible or too little is left.
func (x *exchange) splicer(length int64) io.ReaderFrom {
	if length < spliceFrom || x.c.br.Buffered() > 0 || x.r.ProtoMajor != 1 || x.r.TLS != nil {
		return nil
	}
	if _, ok := x.c.Conn.(*net.TCPConn); !ok {
		return nil
	}
	rf, _ := x.w.(io.ReaderFrom)
	return rf
}

// relayReads copies what read returns, up to io.EOF.
func (x *exchange) relayReads(buf []byte, read func([]byte) (int, error)) error {
	for {
		n, err := read(buf)
		if n > 0 {
			if _, werr := x.w.Write(buf[:n]); werr != nil {
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
	if buffered, _ := br.Peek(br.Buffered()); blockEnd(buffered) == 0 {
		x.flush()
	}
	text, err := readBlock(br)
	if err != nil {
		return err
	}
	fields, err := parseFields(nil, text)
	if err != nil {
		return err
	}
	if len(fields) > 0 {
		x.flush() // an answer that goes out whole gets a length, and then no trailers
	}
	for _, f := range fields {
		if trailerAllowed(f.key) {
			x.w.Header().Add(http.TrailerPrefix+f.key, f.value)
		}
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
		x.flush()
	}
}

func (x *exchange) flush() {
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
	}
}
