// Package pace bounds how long the body of a request may take to come, so that
// nobody holds a connection, and what waits behind it, by sending next to nothing.
package pace

import (
	"errors"
	"io"
	"time"
)

// What a body must bring. Any mobile connection manages it.
const (
	// Stall is how long nothing may come.
	Stall = time.Minute
	// Least is how many bytes a second must come on average once the body has
	// been waited for as long as Stall: one that trickles would take years.
	Least = 4 << 10
)

// Reader reads a body. It moves the connection's read deadline along with the
// bytes, so that a slow one is fine and one that stalls or trickles is not.
type Reader struct {
	body        io.Reader
	setDeadline func(time.Time) error

	read     int64
	waited   time.Duration // for the client, in all
	deadline time.Time     // that was set last
}

// NewReader returns a reader of a body; setDeadline sets the read deadline of the
// connection that it comes from. The last deadline stays.
func NewReader(body io.Reader, setDeadline func(time.Time) error) *Reader {
	return &Reader{body: body, setDeadline: setDeadline}
}

// Read is io.Reader. Its error is one of a deadline when too little came.
func (r *Reader) Read(p []byte) (int, error) {
	began := time.Now()
	if deadline := began.Add(r.mayWait()); deadline.Sub(r.deadline).Abs() > time.Second {
		if err := r.setDeadline(deadline); err != nil {
			return 0, err
		}
		r.deadline = deadline
	}
	n, err := r.body.Read(p)
	r.waited += time.Since(began)
	r.read += int64(n)
	return n, err
}

// mayWait is how long the next byte may take.
func (r *Reader) mayWait() time.Duration {
	earned := time.Duration(r.read) * time.Second / Least
	return min(Stall, Stall+earned-r.waited)
}

// Stalled tells whether a read failed because nothing, or too little, came for
// too long.
func Stalled(err error) bool {
	var late interface{ Timeout() bool } // not net.Error: connections in memory know less
	return errors.As(err, &late) && late.Timeout()
}
