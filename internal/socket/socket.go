// Package socket reads and writes TCP connections at less cost than package net: by system calls
// that never wait and of which Go's scheduler is not told. What waits are goroutines, as usual.
package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// Conn is a TCP connection. One goroutine may read while another one writes.
type Conn struct {
	*net.TCPConn
	raw syscall.RawConn
	in  input
	out output

	first   bool  // the next Read writes out first
	careful bool  // unless something has come
	fault   error // why it could not; see Fault
}

// input is what Read does.
type input struct {
	p    []byte
	n    int
	err  error
	step func(fd uintptr) bool // kept to spare a closure a call, as is that of output
}

// maxParts is how many parts a write may have.
const maxParts = 3

// output is what Write does.
type output struct {
	parts [maxParts][]byte // what is left to write
	n     int
	err   error
	step  func(fd uintptr) bool
}

// New returns the connection over tcp.
func New(tcp *net.TCPConn) *Conn {
	c := &Conn{TCPConn: tcp}
	c.raw, _ = tcp.SyscallConn() // fails for nil only
	c.in.step, c.out.step = c.readNow, c.out.writeNow
	return c
}

// Read implements io.Reader.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.in.p = p
	err := c.raw.Read(c.in.step)
	if err == nil && c.first { // there was room for a part of it
		c.first = false
		if c.fault = c.finishWrite(); errors.Is(c.fault, os.ErrDeadlineExceeded) {
			err = c.fault
		} else {
			err = c.raw.Read(c.in.step)
		}
	}
	c.in.p, c.first = nil, false
	switch {
	case err != nil:
		return 0, err
	case c.in.err != nil:
		return 0, os.NewSyscallError("read", c.in.err)
	case c.in.n == 0:
		return 0, io.EOF
	}
	return c.in.n, nil
}

// Await calls step until it returns true, each time once a read may find something. The error is
// that of a deadline or of a closed connection.
func (c *Conn) Await(step func(fd uintptr) bool) error { return c.raw.Read(step) }

// WriteFirst has the next Read write up to three parts first. The parts must not change, and
// nothing else be written, until that Read has returned.
func (c *Conn) WriteFirst(parts ...[]byte) {
	c.out.begin(parts)
	c.first, c.careful, c.fault = true, false, nil
}

// WriteFirstIfSilent is like WriteFirst, but writes nothing if something has come from the other
// side: Fault is ErrSpoke or ErrGone then. Otherwise Read waits once it has written, since nothing
// can have come that it would not be woken for; that spares the read that finds nothing yet.
func (c *Conn) WriteFirstIfSilent(parts ...[]byte) {
	c.WriteFirst(parts...)
	c.careful = true
}

// Faults of WriteFirstIfSilent, with which nothing has been written.
var (
	ErrSpoke = errors.New("bytes have come that were not asked for")
	ErrGone  = errors.New("the other side has closed the connection")
)

// Fault returns why what WriteFirst or WriteFirstIfSilent was last given could not be written; nil
// if it was.
func (c *Conn) Fault() error { return c.fault }

// Write implements io.Writer.
func (c *Conn) Write(p []byte) (int, error) { return c.WriteParts(p) }

// WriteParts writes up to three parts one after the other, at once if there is room.
func (c *Conn) WriteParts(parts ...[]byte) (int, error) {
	c.out.begin(parts)
	err := c.finishWrite()
	return c.out.n, err
}

// finishWrite writes what is left, and waits for room.
func (c *Conn) finishWrite() error {
	err := c.raw.Write(c.out.step)
	if err == nil {
		err = c.out.end()
	}
	c.out.parts = [maxParts][]byte{}
	return err
}

// readNow writes what comes first, and reads. It returns false if it has to wait.
func (c *Conn) readNow(fd uintptr) bool {
	if c.first {
		if c.careful && !c.isSilent(fd) {
			c.first, c.out.parts = false, [maxParts][]byte{}
			c.in.n, c.in.err = 0, nil
			return true
		}
		if !c.out.writeNow(fd) {
			return true // Read waits for room
		}
		c.first, c.fault = false, c.out.end()
		if c.fault == nil && c.careful {
			return false // the answer wakes it
		}
	}
	c.in.n, c.in.err = Read(fd, c.in.p)
	return c.in.err != syscall.EAGAIN
}

// isSilent reports whether nothing has come, or else sets the fault.
func (c *Conn) isSilent(fd uintptr) bool {
	n, err := Peek(fd, c.in.p[:1])
	switch {
	case err == syscall.EAGAIN:
		return true
	case n > 0:
		c.fault = ErrSpoke
	default:
		c.fault = ErrGone
	}
	return false
}

func (o *output) begin(parts [][]byte) {
	o.n, o.err, o.parts = 0, nil, [maxParts][]byte{}
	copy(o.parts[:], parts)
}

// end returns the error of a write that writeNow has ended.
func (o *output) end() error {
	o.parts = [maxParts][]byte{}
	if o.err == nil {
		return nil
	}
	return os.NewSyscallError("write", o.err)
}

// writeNow writes what there is room for. It returns false if it has to wait.
func (o *output) writeNow(fd uintptr) bool {
	for len(o.parts[0])+len(o.parts[1])+len(o.parts[2]) > 0 {
		n, err := o.writeOnce(fd)
		if err == syscall.EAGAIN {
			return false
		}
		if err != nil {
			o.err = err
			return true
		}
		o.n += n
		for i := range o.parts {
			written := min(n, len(o.parts[i]))
			o.parts[i] = o.parts[i][written:]
			n -= written
		}
	}
	return true
}

func (o *output) writeOnce(fd uintptr) (int, error) {
	var list [maxParts]syscall.Iovec
	count := 0
	for _, p := range o.parts {
		if len(p) > 0 {
			list[count] = syscall.Iovec{Base: unsafe.SliceData(p), Len: uint64(len(p))}
			count++
		}
	}
	if count == 1 {
		return call(syscall.SYS_WRITE, fd, unsafe.Slice(list[0].Base, list[0].Len))
	}
	return result(func() (uintptr, syscall.Errno) {
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&list[0])), uintptr(count))
		return n, errno
	})
}

// Read reads what is there. The error is EAGAIN if there is nothing, and nil with 0 bytes at the
// end.
func Read(fd uintptr, p []byte) (int, error) { return call(syscall.SYS_READ, fd, p) }

// Peek looks at what is there, as Read reads it.
func Peek(fd uintptr, p []byte) (int, error) {
	return result(func() (uintptr, syscall.Errno) {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		return n, errno
	})
}

// call reads into p or writes it.
func call(trap, fd uintptr, p []byte) (int, error) {
	return result(func() (uintptr, syscall.Errno) {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		return n, errno
	})
}

// result repeats a system call that a signal interrupts.
func result(try func() (uintptr, syscall.Errno)) (int, error) {
	for {
		switch n, errno := try(); errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
