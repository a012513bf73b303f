package api

import (
	"errors"
	"io"

	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/slowbody"
)

type bodyKey struct{}

// bodyOf returns the body of the request. Only the request may read it.
func bodyOf(ctx *fasthttp.RequestCtx) *body { return ctx.UserValue(bodyKey{}).(*body) }

// body reads a request's body from the connection as it arrives. fasthttp's own stream
// reads on into the next request when read past its end, and takes the end of the
// connection for the end of the body. This one remembers the end and distinguishes the
// two.
type body struct {
	stream   *slowbody.Reader
	declared int64 // Content-Length, or -1 for a chunked body
	read     int64
	most     int64 // bytes that discard reads at most
	err      error // what ended the body; io.EOF when it came whole
}

// newBody returns the body of a request; discard reads at most so many bytes of it.
func newBody(ctx *fasthttp.RequestCtx, most int64) *body {
	stream := ctx.RequestBodyStream()
	if stream == nil {
		return &body{err: io.EOF}
	}
	return &body{
		most:     most,
		stream:   slowbody.NewReader(stream, ctx.Conn().SetReadDeadline),
		declared: int64(ctx.Request.Header.ContentLength()),
	}
}

// Abort makes a Read that waits, and each later one, fail.
func (b *body) Abort() {
	if b.stream != nil {
		b.stream.Abort()
	}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.stream.Read(p)
	b.read += int64(n)
	if errors.Is(err, io.EOF) && b.read < b.declared {
		err = io.ErrUnexpectedEOF
	}
	b.err = err
	return n, err
}

// broken returns why the body did not arrive whole; nil while more may arrive, and
// after its end.
func (b *body) broken() error {
	if errors.Is(b.err, io.EOF) {
		return nil
	}
	return b.err
}

// discard reads the rest of the body, unless there is too much, and reports whether the
// connection is now at the start of the next request.
func (b *body) discard() bool { return b.drain(b.most) }

// drain is like discard with another limit.
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
