package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Traffic returns how many bytes the peer of a TCP socket has sent and received so far,
// and whether bytes wait for the peer: 0 and false for a closed or nil socket.
func Traffic(socket syscall.RawConn) (bytes uint64, waiting bool) {
	if socket == nil {
		return 0, false
	}
	var info *unix.TCPInfo
	var err error
	ask := func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }
	if socket.Control(ask) != nil || err != nil {
		return 0, false
	}
	return info.Bytes_acked + info.Bytes_received, info.Unacked > 0 || info.Notsent_bytes > 0
}
