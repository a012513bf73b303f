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
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.last++
	l.number = h.last
	h.lanes[l.number] = l
	h.mu.Unlock()
	var added error
	err = raw.Control(func(fd uintptr) {
		added = h.raw.Control(func(epoll uintptr) {
			event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(l.number)), Pad: int32(l.number >> 32)}
			if e := unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, int(fd), &event); e != nil {
				err = fmt.Errorf("watch a connection: %w", e)
			}
		})
	})
	return errors.Join(err, added)
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
			h.tell(uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32)
		}
	}
}

func (h *hangups) tell(number uint64) {
	h.mu.Lock()
	l := h.lanes[number]
	h.mu.Unlock()
	if l != nil {
		l.hangUp()
	}
}

// close ends the goroutine.
func (h *hangups) close() { h.file.Close() }
