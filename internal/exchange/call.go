package exchange

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/wire"
)

// Call is a request on its way to an upstream, and the way back to its sender. It carries one
// exchange. The methods of the answer are called by the goroutine that called Serve, and
// those of the body by another one, beside it.
type Call interface {
	// Head is the head of the request. It does not change.
	Head() *wire.Request
	// Caller is what is known of the sender.
	Caller() *Caller
	// Context ends once the sender has left.
	Context() context.Context
	// OnLeave calls abort once the sender has left, if that is before stop is called. Stop
	// reports whether it was.
	OnLeave(abort func()) (stop func() bool)

	// Body is the request's, if Head says that it has one.
	Body() Body
	// Reply is the way of the answer.
	Reply() Reply
}

// Body is the body of a request, without its framing.
type Body interface {
	io.Reader
	// Whole returns the body if all of it is there already, nil otherwise. Nothing else is
	// called after it was returned.
	Whole() []byte
	// Begin is called before the first Read, after which the answer may begin before the end.
	Begin()
	// Trailers are those of a body whose length was not known, once Read has returned io.EOF.
	Trailers() []wire.Field
	// SetReadDeadline ends a Read that is under way at a time.
	SetReadDeadline(t time.Time)
	// Count receives how many bytes have been read.
	Count(n int)
}

// Reply is the way of an answer to the sender of a request. Fields that apply to a single
// connection never come to it.
type Reply interface {
	// Interim passes on an answer such as 103, if the sender understands one.
	Interim(status int, fields []wire.Field)
	// Begin passes on the head of an answer. If last is set, the connection to the sender
	// ends with it.
	Begin(head *Head, last bool)
	// Write passes on a part of the body; it may be held back until Flush.
	io.Writer
	// Direct returns what moves bytes from a socket to the sender within the kernel, nil if
	// that is not possible.
	Direct() io.ReaderFrom
	// Flush passes on what was held back.
	Flush()
	// Trailers gives what follows a body whose length was not known.
	Trailers(fields []wire.Field)
	// Abort breaks the connection off after what was passed on, so that a part is not taken
	// for the whole. It may panic with http.ErrAbortHandler.
	Abort()
	// Switch answers 101 with the fields and the name of a protocol, and hands over the
	// connection, what was read from it already, and the counters of what passes through it.
	Switch(fields []wire.Field, protocol string) (*Switched, error)
}

// Head is the head of an answer as it is passed on.
type Head struct {
	Status int
	Fields []wire.Field
	Length int64 // of the body, -1 if it is not known
	Body   bool  // a body follows
	// Trailers are the names of those that are announced.
	Trailers []string
}

// Switched is a connection that speaks another protocol.
type Switched struct {
	Conn    net.Conn
	Read    io.Reader // of Conn, with what was read before
	In, Out *atomic.Uint64
}

// Caller is what the edge knows about the sender of a request.
type Caller struct {
	IP    string // address without port, for X-Forwarded-For
	Proto string // http or https, as the caller spoke it
	Hops  int    // how often nodes have forwarded the request; 0: it came from outside
	Watch Watch  // over the request; may be nil
}

// Watch observes a request on its way.
type Watch interface {
	// Service receives the line that carries the request to a process or a node, and nil
	// once it no longer does.
	Service(line Line)
}
