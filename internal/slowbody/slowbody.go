// Package slowbody limits how long the body of a request may take to arrive, so that
// nobody can hold a connection, and what waits behind it, by sending next to nothing.
// It does not depend on HTTP: it touches only the given reader and its connection's
// read deadline.
package slowbody

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// The minimum speed of a body. Any mobile connection manages it.
const (
	// Stall is how long a body may send nothing.
	Stall = time.Minute
	// Least is the number of bytes a second that must arrive on average, once the
	// body has been waited for as long as Stall: a trickle would take years.
	Least = 4 << 10
)

// Reader reads a body. It moves the connection's read deadline along with the bytes, so
// that a slow body passes and one that stalls or trickles does not.
type Reader struct {
	body   io.Reader
	read   int64
	waited time.Duration // for bytes, in all

	mu          sync.Mutex // held while the deadline is set
	setDeadline func(time.Time) error
	deadline    time.Time // the one set last
	aborted     bool
}

// NewReader returns a reader of body, which fails if too little arrives, with the error
// of the deadline; see Stalled. setDeadline sets the read deadline of the body's
// connection. The last deadline is left set.
func NewReader(body io.Reader, setDeadline func(time.Time) error) *Reader {
	return &Reader{body: body, setDeadline: setDeadline}
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	began := time.Now()
	if err := r.limit(began.Add(r.mayWait())); err != nil {
		return 0, err
	}
	n, err := r.body.Read(p)
	r.waited += time.Since(began)
	r.read += int64(n)
	return n, err
}

// limit sets the deadline of a read.
func (r *Reader) limit(deadline time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.aborted {
		return os.ErrDeadlineExceeded
	}
	if deadline.Sub(r.deadline).Abs() <= time.Second {
		return nil
	}
	r.deadline = deadline
	return r.setDeadline(deadline)
}

// Abort ends a Read that waits, and makes it and each later one fail as if nothing had arrived
// for too long.
func (r *Reader) Abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aborted = true
	_ = r.setDeadline(time.Now().Add(abortWithin)) // its error is that the connection is closed
}

// abortWithin is how soon Abort ends a Read: a connection in memory heeds no deadline that has
// passed already when it is set.
const abortWithin = 10 * time.Millisecond

// mayWait returns how long the next byte may take.
func (r *Reader) mayWait() time.Duration {
	earned := time.Duration(r.read/Least) * time.Second
	return min(Stall, Stall+earned-r.waited)
}

// Stalled reports whether a read failed because nothing, or too little, arrived
// for too long.
func Stalled(err error) bool {
	var late interface{ Timeout() bool } // not net.Error: connections in memory know less
	return errors.As(err, &late) && late.Timeout()
}
