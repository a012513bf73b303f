package proxy

import (
	"errors"
	"syscall"
)

// sight is what a look at a kept connection shows.
type sight int

const (
	silent   sight = iota // nothing to read: it may carry another exchange
	gone                  // its peer has closed it, or it is broken
	speaking              // bytes lie on it that no request asked for
)

// look reports what lies on a connection that no exchange uses. It neither
// waits nor reads.
func (c *conn) look() sight {
	n, err := c.peek()
	switch {
	case n > 0:
		return speaking
	case errors.Is(err, syscall.EAGAIN):
		return silent
	}
	return gone
}
