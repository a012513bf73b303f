package edge

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups tells lanes when their callers end the sending side of their connections, or
// leave. The kernel says so once, whatever bytes lie on the connection unread, and it takes
// one goroutine for all of them.
type hangups struct {
	file *os.File // of epoll
	raw  syscall.RawConn

	mu    sync.Mutex
	last  uint64
	lanes map[uint64]*lane
}

func newHangups() (*hangups, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or os.NewFile does not watch it
		return nil, errors.Join(err, unix.Close(fd))
	}
	h := &hangups{file: os.NewFile(uintptr(fd), "epoll"), lanes: map[uint64]*lane{}}
	if h.raw, err = h.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, h.file.Close())
	}
	go h.run()
	return h, nil
}

// add tells l when its caller leaves, until remove. The kernel forgets a connection that is
// closed.
func (h *hangups) add(l *lane, tcp *net.TCPConn) error {
	h.mu.Lock()
	h.last++
	l.number = h.last
	h.lanes[l.number] = l
	h.mu.Unlock()
	if err := h.control(l, tcp, unix.EPOLL_CTL_ADD, unix.EPOLLRDHUP); err != nil {
		h.remove(l)
		return fmt.Errorf("watch a connection: %w", err)
	}
	return nil
}

// watchInput has l told, or not told any more, also when there is something to read, and when
// more comes.
func (h *hangups) watchInput(l *lane, on bool) error {
	events := uint32(unix.EPOLLRDHUP)
	if on {
		events |= unix.EPOLLIN
	}
	return h.control(l, l.c.TCPConn, unix.EPOLL_CTL_MOD, events)
}

// control says which events the kernel tells of.
func (h *hangups) control(l *lane, tcp *net.TCPConn, op int, events uint32) error {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	event := unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(uint32(l.number)), Pad: int32(l.number >> 32)}
	var closed, failed error
	err = raw.Control(func(fd uintptr) {
		closed = h.raw.Control(func(epoll uintptr) { failed = unix.EpollCtl(int(epoll), op, int(fd), &event) })
	})
	return errors.Join(err, closed, failed)
}

// remove stops telling l.
func (h *hangups) remove(l *lane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.lanes, l.number)
}

func (h *hangups) run() {
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := h.raw.Read(func(fd uintptr) bool {
			var err error
			n, err = unix.EpollWait(int(fd), events, 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		if err != nil {
			return // closed
		}
		for i := range max(n, 0) {
			h.tell(uint64(uint32(events[i].Fd))|uint64(uint32(events[i].Pad))<<32, events[i].Events == unix.EPOLLIN)
		}
	}
}

func (h *hangups) tell(number uint64, input bool) {
	h.mu.Lock()
	l := h.lanes[number]
	h.mu.Unlock()
	switch {
	case l == nil:
	case input:
		l.ahead.tell()
	default:
		l.hangUp()
	}
}

// close ends the goroutine.
func (h *hangups) close() { h.file.Close() }
