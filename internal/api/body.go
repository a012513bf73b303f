package api

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

type bodyKey struct{}

// bodyOf is the body of the request, which only it may read.
func bodyOf(ctx *fasthttp.RequestCtx) *body { return ctx.UserValue(bodyKey{}).(*body) }

// body reads a request's body from the connection as it arrives. fasthttp's
// own stream would go on into the next request when read past its end, and
// takes the end of the connection for the end of the body; this one remembers
// the end and tells the two apart.
type body struct {
	stream   io.Reader
	conn     net.Conn
	declared int64 // Content-Length, or -1 for a chunked body
	read     int64
	err      error         // what ended the body; io.EOF when it came whole
	waited   time.Duration // for the client, in all
	patience time.Time     // the read deadline that was set last
}

// bodyPace is how many bytes a second a body must bring on average once it has
// been waited for as long as bodyStall: one that trickles would hold its
// connection for years. Any mobile connection manages it.
const bodyPace = 4 << 10

func newBody(ctx *fasthttp.RequestCtx) *body {
	b := &body{conn: ctx.Conn(), declared: int64(ctx.Request.Header.ContentLength())}
	b.stream = ctx.RequestBodyStream()
	if b.stream == nil {
		b.declared, b.err = 0, io.EOF
	}
	return b
}

// Read moves the connection's read deadline along with the bytes, so that a
// slow upload is fine and one that stalls or trickles is not.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	began := time.Now()
	if deadline := began.Add(b.mayWait()); deadline.Sub(b.patience).Abs() > time.Second {
		b.patience = deadline
		b.err = b.conn.SetReadDeadline(b.patience)
		if b.err != nil {
			return 0, b.err
		}
	}
	n, err := b.stream.Read(p)
	b.waited += time.Since(began)
	b.read += int64(n)
	if errors.Is(err, io.EOF) && b.read < b.declared {
		err = io.ErrUnexpectedEOF
	}
	b.err = err
	return n, err
}

// mayWait is how long the next byte may take.
func (b *body) mayWait() time.Duration {
	earned := time.Duration(b.read) * time.Second / bodyPace
	return min(bodyStall, bodyStall+earned-b.waited)
}

// broken is why the body did not come whole; nil while more may come, and
// after its end.
func (b *body) broken() error {
	if errors.Is(b.err, io.EOF) {
		return nil
	}
	return b.err
}

// stalled tells whether the body broke because nothing, or too little, came for
// too long.
func (b *body) stalled() bool {
	var network net.Error
	return errors.As(b.err, &network) && network.Timeout()
}

// drain reads the rest of the body, if it is at most limit bytes, and tells
// whether the connection now stands at the start of the next request.
func (b *body) drain(limit int64) bool {
	if b.declared-b.read > limit {
		return false
	}
	_, err := io.Copy(io.Discard, io.LimitReader(b, limit))
	if err == nil && b.err == nil {
		_, _ = b.Read(make([]byte, 1)) // the end itself, when the limit was met exactly
	}
	return errors.Is(b.err, io.EOF)
}
