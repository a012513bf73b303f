// Package hostfault recognises errors of system calls that are passing faults of this
// machine, such as a full disk, rather than of the file or container they concern.
package hostfault

import (
	"errors"
	"slices"
	"strings"
	"syscall"
)

// NoSpace is the error of a full disk.
const NoSpace = syscall.ENOSPC

// scarce are the errors of a machine that has run out of something, or whose disk fails.
var scarce = []syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN,
	NoSpace, syscall.EDQUOT, syscall.EIO, syscall.EROFS,
}

// away are the errors of a disk that is not there at the moment.
var away = []syscall.Errno{
	syscall.ESTALE, syscall.ETIMEDOUT, syscall.ENOTCONN, syscall.ENODEV, syscall.ENXIO, syscall.EINTR,
}

// Is reports whether an error of a system call is a fault of this machine.
func Is(err error) bool {
	is := func(fault syscall.Errno) bool { return errors.Is(err, fault) }
	return slices.ContainsFunc(scarce, is) || slices.ContainsFunc(away, is)
}

// NoDescriptor reports whether an error is that no file or connection can be opened
// because too many are open.
func NoDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// In reports whether the text of another program's error says that a machine has run out
// of something, or that its disk fails.
func In(text string) bool {
	return slices.ContainsFunc(scarce, func(fault syscall.Errno) bool { return strings.Contains(text, fault.Error()) })
}
