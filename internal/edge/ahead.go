package edge

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berth-host/berth/internal/socket"
	"github.com/berth-host/berth/internal/wire"
)

// ahead reads what a caller over TLS sends behind its request while that is served, since the
// kernel cannot know that a caller has said farewell within TLS. Requests that are answered soon
// cost no more than a timer: only for one that takes longer the kernel is asked to say when bytes
// come, which are then decrypted.
type ahead struct {
	lane  *lane
	timer *time.Timer // to the first look; nil before the first request
	come  atomic.Bool // bytes have come for which a read waits

	mu       sync.Mutex // held while something is read
	on       bool       // a request is under way, of which everything has been read
	watching bool       // the kernel says when bytes come
}

// lookAfter is from when on a request takes long.
const lookAfter = 50 * time.Millisecond

// start is called when a request has been read to its end, its body included. From then on have
// and buf of the lane belong to ahead, until end. Both do nothing for nil.
func (a *ahead) start() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.on = true
	if a.timer == nil {
		a.timer = time.AfterFunc(lookAfter, a.look)
	} else {
		a.timer.Reset(lookAfter)
	}
}

// end is called when the request has been answered.
func (a *ahead) end() {
	if a == nil || a.timer == nil {
		return
	}
	a.timer.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.on = false
	a.unwatch()
}

// look reads what there is, of which TLS may hold a part already, and has the kernel say when more
// comes.
func (a *ahead) look() {
	a.mu.Lock()
	if a.on && !a.watching {
		a.watching = a.lane.srv.lanes.hangups.watchInput(a.lane, true) == nil // else it is closed
	}
	a.mu.Unlock()
	a.read()
}

// unwatch is called with mu.
func (a *ahead) unwatch() {
	if a.watching {
		a.watching = false
		_ = a.lane.srv.lanes.hangups.watchInput(a.lane, false) // an error says that it is closed
	}
}

// tell is called when bytes have come. It does not wait: TLS may have something to write for them,
// which takes as long as the caller likes. Meanwhile one read more waits, whatever comes.
func (a *ahead) tell() {
	if a.come.CompareAndSwap(false, true) {
		go a.read()
	}
}

// read reads what has come.
func (a *ahead) read() {
	if a.hasLeft() {
		a.lane.hangUp()
	}
}

// hasLeft takes what there is, as far as there is room, and reports whether it is the end.
func (a *ahead) hasLeft() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.come.Store(false)
	if !a.on {
		return false
	}
	l, lent := a.lane, a.lane.buf == nil
	if lent {
		l.buf = wire.Large.Get()
		l.have = (*l.buf)[:0]
	}
	l.c.now = true
	err := a.fill()
	l.c.now = false
	if err == nil {
		a.unwatch() // there is no room for more
		return false
	}
	if lent && len(l.have) == 0 { // else the body of the request may still be in it
		l.dropBuffer()
	}
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// fill reads behind what the lane has, to the end of its buffer.
func (a *ahead) fill() error {
	l := a.lane
	for len(l.have) < cap(l.have) {
		n, err := l.nc.Read(l.have[len(l.have):cap(l.have)])
		l.have = l.have[:len(l.have)+n]
		if err != nil {
			return err
		}
	}
	return nil
}

// readNow reads what is there. If that is nothing, the error is os.ErrDeadlineExceeded, after
// which TLS goes on as before.
func (c *conn) readNow(p []byte) (n int, err error) {
	if !c.seat.come() {
		return 0, net.ErrClosed
	}
	raw, err := c.TCPConn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { n, failed = socket.Read(fd, p) })
	switch {
	case err != nil:
		return 0, err
	case failed == syscall.EAGAIN:
		return 0, os.ErrDeadlineExceeded
	case failed != nil:
		return 0, os.NewSyscallError("read", failed)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
