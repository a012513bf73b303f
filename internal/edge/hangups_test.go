package edge

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What cannot be watched, such as more than the kernel allows or what is watched already, is
// nowhere afterwards.
func TestHangups_KeepNothingThatTheyCannotWatch(t *testing.T) {
	h, err := newHangups()
	require.NoError(t, err)
	defer h.close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	first, second := &lane{}, &lane{}
	require.NoError(t, h.add(first, c.(*net.TCPConn)))
	require.ErrorIs(t, h.add(second, c.(*net.TCPConn)), unix.EEXIST)
	require.Len(t, h.lanes, 1)
	h.remove(first)
	require.Empty(t, h.lanes)
}
