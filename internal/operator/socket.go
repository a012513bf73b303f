package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketName is the name of the socket in the data directory.
const socketName = "admin.sock"

// Listen listens at the socket of a data directory, which only this process's user and root
// may open. The caller must ensure that no other server uses the directory: what an earlier one
// has left there is replaced.
func Listen(dir string) (net.Listener, error) {
	if err := os.Remove(filepath.Join(dir, socketName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	folder, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	// The kernel gives the file the mode that the socket has when it is bound.
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var chmod error
		err := raw.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmod)
	}}
	l, err := config.Listen(context.Background(), "unix", within(folder))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen at %s in %s: %w", socketName, dir, err), folder.Close())
	}
	return &listener{l, folder}, nil
}

// listener closes the folder after the socket, whose file it removes by it.
type listener struct {
	net.Listener
	folder *os.File
}

func (l *listener) Close() error { return errors.Join(l.Listener.Close(), l.folder.Close()) }

// dial connects to the server of a data directory.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	folder, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close() // nothing was written
	var d net.Dialer
	return d.DialContext(ctx, "unix", within(folder))
}

// openFolder opens a folder for within.
func openFolder(dir string) (*os.File, error) {
	return os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// within returns a short path of the socket: the kernel takes at most 107 bytes.
func within(folder *os.File) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), socketName)
}

// unknownUser stands for a user that the kernel does not name.
const unknownUser = -1

// uidOf returns the user of the process at the other end of a connection.
func uidOf(conn net.Conn) int {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return unknownUser
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return unknownUser
	}
	uid := unknownUser
	_ = raw.Control(func(fd uintptr) { // its error is that the connection is closed
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(peer.Uid)
		}
	})
	return uid
}
