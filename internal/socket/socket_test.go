package socket

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pair returns both ends of a connection, of which the second is an ordinary one.
func pair(t *testing.T) (*Conn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	one, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	other, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { one.Close(); other.Close() })
	require.NoError(t, one.SetDeadline(time.Now().Add(10*time.Second)))
	require.NoError(t, other.SetDeadline(time.Now().Add(10*time.Second)))
	return New(one.(*net.TCPConn)), other.(*net.TCPConn)
}

// large is more than a connection holds on its way.
func large() []byte {
	p := make([]byte, 16<<20)
	_, _ = rand.Read(p)
	return p
}

// received returns a channel that gets what other reads to its end.
func received(other io.Reader) <-chan []byte {
	all := make(chan []byte, 1)
	go func() {
		time.Sleep(20 * time.Millisecond) // so that the way is full
		p, _ := io.ReadAll(other)
		all <- p
	}()
	return all
}

func TestRead_WaitsForBytesAndTheEnd(t *testing.T) {
	c, other := pair(t)
	p := make([]byte, 10)
	n, err := c.Read(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	time.AfterFunc(20*time.Millisecond, func() { _, _ = io.WriteString(other, "hello") })
	n, err = c.Read(p)
	require.NoError(t, err)
	require.Equal(t, "hello", string(p[:n]))
	time.AfterFunc(20*time.Millisecond, func() { _ = other.CloseWrite() })
	n, err = c.Read(p)
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
}

func TestRead_EndsWithItsDeadlineAndTheConnection(t *testing.T) {
	c, other := pair(t)
	p := make([]byte, 10)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := c.Read(p)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	require.NoError(t, other.SetLinger(0))
	time.AfterFunc(20*time.Millisecond, func() { _ = other.Close() })
	_, err = c.Read(p)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	closed, _ := pair(t)
	time.AfterFunc(20*time.Millisecond, func() { _ = closed.Close() })
	_, err = closed.Read(p)
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestWriteParts_WritesAllInOrder(t *testing.T) {
	c, other := pair(t)
	all := received(other)
	body, want := large(), []byte("headtail")
	for _, parts := range [][][]byte{{[]byte("head")}, {nil, []byte("tail")}, {[]byte("head"), body, []byte("tail")}, {}, {nil}, {body[:1000]}} {
		n, err := c.WriteParts(parts...)
		require.NoError(t, err)
		require.Equal(t, len(bytes.Join(parts, nil)), n)
	}
	require.NoError(t, c.CloseWrite())
	want = append(want, bytes.Join([][]byte{[]byte("head"), body, []byte("tail"), body[:1000]}, nil)...)
	require.True(t, bytes.Equal(want, <-all))
}

func TestWrite_EndsWithItsDeadlineAndTheConnection(t *testing.T) {
	c, other := pair(t)
	body := large()
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Second)))
	n, err := c.Write(body)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Positive(t, n)
	require.Less(t, n, len(body))
	require.NoError(t, c.SetWriteDeadline(time.Time{}))
	require.NoError(t, other.SetLinger(0))
	time.AfterFunc(20*time.Millisecond, func() { _ = other.Close() })
	_, err = c.Write(body)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = c.Write(body)
	require.ErrorIs(t, err, syscall.EPIPE)
}

func TestWriteFirst_IsBeforeTheNextRead(t *testing.T) {
	c, other := pair(t)
	body := large()
	for _, first := range [][]byte{[]byte("ask"), body, []byte("again")} {
		go func() {
			got := make([]byte, len(first))
			_, err := io.ReadFull(other, got)
			if assert.NoError(t, err) && assert.True(t, bytes.Equal(first, got)) {
				_, _ = io.WriteString(other, "answer")
			}
		}()
		c.WriteFirst(first)
		p := make([]byte, 10)
		n, err := c.Read(p)
		require.NoError(t, err)
		require.NoError(t, c.Fault())
		require.Equal(t, "answer", string(p[:n]))
	}
}

// Somebody who answers without reading is heard, and the fault known.
func TestWriteFirst_ReadsWhatCameAllTheSame(t *testing.T) {
	c, other := pair(t)
	_, err := io.WriteString(other, "early")
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	c.WriteFirst([]byte("ask"))
	p := make([]byte, 10)
	n, err := c.Read(p)
	require.NoError(t, err)
	require.Equal(t, "early", string(p[:n]))
	require.ErrorIs(t, c.Fault(), syscall.EPIPE)
	c.WriteFirst(nil)
	require.NoError(t, c.Fault())
}

func TestWriteFirst_EndsWithTheDeadlines(t *testing.T) {
	for _, first := range [][]byte{[]byte("ask"), large()} {
		c, _ := pair(t)
		require.NoError(t, c.SetDeadline(time.Now().Add(50*time.Millisecond)))
		c.WriteFirst(first)
		_, err := c.Read(make([]byte, 10))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
}

// What has come before is not taken for an answer, nor waited for.
func TestWriteFirstIfSilent_WritesOnlyIfNothingHasCome(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(other *net.TCPConn) error
		fault  error
	}{
		"nothing": {func(*net.TCPConn) error { return nil }, nil},
		"bytes":   {func(other *net.TCPConn) error { _, err := io.WriteString(other, "early"); return err }, ErrSpoke},
		"its end": {(*net.TCPConn).CloseWrite, ErrGone},
		"a reset": {func(other *net.TCPConn) error { return errors.Join(other.SetLinger(0), other.Close()) }, ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			c, other := pair(t)
			require.NoError(t, tt.before(other))
			if tt.fault != nil { // it has arrived
				require.Eventually(t, func() bool {
					var err error
					require.NoError(t, c.raw.Control(func(fd uintptr) { _, err = Peek(fd, make([]byte, 1)) }))
					return err != syscall.EAGAIN
				}, 10*time.Second, time.Millisecond)
			}
			asked := make(chan string, 1)
			go func() {
				p := make([]byte, 10)
				n, _ := other.Read(p)
				asked <- string(p[:n])
				_, _ = io.WriteString(other, "answer")
			}()
			require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
			c.WriteFirstIfSilent([]byte("ask"))
			p := make([]byte, 10)
			n, err := c.Read(p)
			require.Equal(t, tt.fault, c.Fault())
			if tt.fault == nil {
				require.NoError(t, err)
				require.Equal(t, "answer", string(p[:n]))
				require.Equal(t, "ask", <-asked)
				return
			}
			require.Equal(t, io.EOF, err)
			require.NoError(t, c.Close())
			require.Empty(t, <-asked)
		})
	}
}

func TestPeek_LeavesWhatIsThere(t *testing.T) {
	c, other := pair(t)
	p := make([]byte, 1)
	look := func() (n int, err error) {
		require.NoError(t, c.raw.Control(func(fd uintptr) { n, err = Peek(fd, p) }))
		return n, err
	}
	_, err := look()
	require.ErrorIs(t, err, syscall.EAGAIN)
	_, err = io.WriteString(other, "x")
	require.NoError(t, err)
	require.NoError(t, other.CloseWrite())
	for range 2 {
		require.Eventually(t, func() bool { n, err := look(); return n == 1 && err == nil }, 10*time.Second, time.Millisecond)
	}
	_, err = c.Read(p)
	require.NoError(t, err)
	n, err := look()
	require.NoError(t, err)
	require.Zero(t, n)
}
