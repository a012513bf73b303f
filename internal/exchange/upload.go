package exchange

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/wire"
)

// upload is a request's body on its way to the upstream.
type upload struct {
	body     Body
	length   int64
	chunked  bool
	consumed atomic.Bool  // the caller's body has been read to its end
	asking   atomic.Bool  // it waits for the caller, not for the upstream
	moved    atomic.Int64 // when bytes last moved, in Unix nanoseconds
	traffic  uint64       // of the upstream's line when it was last looked at
	done     chan struct{}
	err      error // why it ended early; read it after done
}

// callerError is a failure of a body that the caller broke off or framed wrongly.
type callerError struct{ err error }

func (e *callerError) Error() string { return "read request body: " + e.err.Error() }
func (e *callerError) Unwrap() error { return e.err }

const (
	// stallLimit ends a body that continues after its answer is complete and has not
	// moved for this long.
	stallLimit = 5 * time.Second
	// restLimit is how long a caller may take to send the rest of a body that nobody
	// wants.
	restLimit = 5 * time.Second
)

func newUpload(body Body, length int64) *upload {
	u := &upload{body: body, length: length, chunked: length < 0, done: make(chan struct{})}
	u.touch()
	return u
}

// touch records that bytes have just moved.
func (u *upload) touch() { u.moved.Store(time.Now().UnixNano()) }

// copyBody copies the body.
func (u *upload) copyBody(c *conn) {
	buf := wire.Large.Get()
	if u.err = u.copy(c, *buf); u.err == nil && u.chunked {
		u.err = u.writeTrailer(c.bw)
	}
	wire.Large.Put(buf)
	close(u.done) // before abort wakes the exchange, which asks for the reason
	if errors.As(u.err, new(*callerError)) {
		c.abort() // the upstream must not take a part for the whole
	}
}

func (u *upload) copy(c *conn, buf []byte) error {
	left := u.length
	for {
		u.asking.Store(true)
		n, err := u.body.Read(buf)
		u.asking.Store(false)
		left -= int64(n)
		if err == io.EOF || !u.chunked && left == 0 && err == nil {
			u.consumed.Store(u.chunked || left == 0)
		}
		if n > 0 {
			u.body.Count(n)
			u.touch()
			if err := u.write(c.bw, buf[:n]); err != nil {
				return err
			}
			u.touch()
		}
		if err == io.EOF {
			if !u.chunked && left != 0 {
				return &callerError{io.ErrUnexpectedEOF}
			}
			return nil
		}
		if err != nil {
			return &callerError{err}
		}
	}
}

func (u *upload) write(bw *bufio.Writer, p []byte) error {
	if u.chunked {
		bw.WriteString(strconv.FormatInt(int64(len(p)), 16))
		bw.WriteString("\r\n")
	}
	bw.Write(p)
	if u.chunked {
		bw.WriteString("\r\n")
	}
	return bw.Flush() // the first error sticks
}

func (u *upload) writeTrailer(bw *bufio.Writer) error {
	bw.WriteString("0\r\n")
	for _, f := range u.body.Trailers() {
		if wire.TrailerAllowed(f.Key) {
			bw.Write(appendField(nil, f.Key, f.Value))
		}
	}
	bw.WriteString("\r\n")
	return bw.Flush()
}

// over reports whether the body was sent whole or has failed.
func (u *upload) over() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// callerError returns the fault of the caller that ended the upload, if any.
func (u *upload) callerError() error {
	var e *callerError
	if u.over() && errors.As(u.err, &e) {
		return fmt.Errorf("upload: %w", e)
	}
	return nil
}

// moves reports whether the upload gives the upstream more time to answer: some byte of
// it has moved less than limit ago. The upstream's line shows what it takes of a write
// under way.
func (u *upload) moves(c *conn, limit time.Duration) bool {
	if u.over() {
		return u.err == nil && time.Since(u.lastMove()) < limit
	}
	if bytes, _ := c.line.Traffic(); bytes != u.traffic {
		u.traffic = bytes
		u.touch()
	}
	return time.Since(u.lastMove()) < limit
}

// silent reports whether the upload waits for the caller.
func (u *upload) silent() bool { return !u.over() && u.asking.Load() }

func (u *upload) lastMove() time.Time { return time.Unix(0, u.moved.Load()) }

// settle waits for a body whose answer is already complete, as long as it moves, and
// reports whether all of it was sent.
func (u *upload) settle() bool {
	for rest := stallLimit; rest > 0; rest = stallLimit - time.Since(u.lastMove()) {
		select {
		case <-u.done:
			return u.err == nil
		case <-time.After(rest):
		}
	}
	return false
}

// cut ends the upload at once and waits until it has ended. What the caller still sends
// is lost.
func (u *upload) cut(c *conn) {
	c.abort()
	if u.consumed.Load() { // it reads no more, and the caller's connection may carry another request
		<-u.done
		return
	}
	u.body.SetReadDeadline(time.Unix(1, 0)) // wakes a read of the body; if it cannot, the caller's next byte does
	<-u.done
	u.body.SetReadDeadline(time.Now().Add(restLimit))
}
