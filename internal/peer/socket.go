package peer

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/streams"
)

// silence is how long the other side may leave bytes unacknowledged, in milliseconds.
const silence = 10_000

// limitSilence makes a connection fail once the other side is silent for too long.
func limitSilence(_, _ string, c syscall.RawConn) error {
	var err error
	if fault := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, silence)
	}); fault != nil {
		return fault
	}
	return err
}

// refused reports whether a connection failed because no server is there at the moment.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) || errors.Is(err, streams.ErrLeft)
}
