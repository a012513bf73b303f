package proxy_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/proxy"
)

// TestProxy_HoldsLittleOfWhatIsNotTaken lets one side send without end, and the other one read
// nothing. What has left the sender is in the kernel then, but for 64 KiB and what surrounds them.
func TestProxy_HoldsLittleOfWhatIsNotTaken(t *testing.T) {
	const most = 64<<10 + 32<<10
	chunk := "8000\r\n" + strings.Repeat("x", 0x8000) + "\r\n" // large, so that other chunks have as much around them
	flood := func(c net.Conn, sent *atomic.Int64) {
		for {
			for rest := chunk; rest != ""; {
				n, err := io.WriteString(c, rest[:min(len(rest), 512)]) // what is being written is not counted
				sent.Add(int64(n))
				if rest = rest[n:]; err != nil {
					return
				}
			}
		}
	}
	for name, head := range map[string]string{
		"with a length": "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n",
		"in chunks":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"until the end": "HTTP/1.1 200 OK\r\n\r\n",
	} {
		t.Run("an answer "+name, func(t *testing.T) {
			var sent atomic.Int64
			f := newFront(t, script(t, func(c net.Conn, _ *bufio.Reader, _ string) {
				io.WriteString(c, head)
				flood(c, &sent)
			}), proxy.Options{})
			c := dial(t, f.addr)
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+testHost+"\r\n\r\n")
			holdsAtMost(t, &sent, most)
		})
	}
	for name, head := range map[string]string{"with a length": "Content-Length: 1000000000", "in chunks": "Transfer-Encoding: chunked"} {
		t.Run("a request "+name, func(t *testing.T) {
			var sent atomic.Int64
			ended := make(chan struct{})
			f := newFront(t, script(t, func(_ net.Conn, br *bufio.Reader, _ string) {
				<-ended
				_, _ = io.Copy(io.Discard, br) // nobody is answered
			}), proxy.Options{})
			c := dial(t, f.addr)
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+testHost+"\r\n"+head+"\r\n\r\n")
			go flood(c, &sent)
			holdsAtMost(t, &sent, most)
			c.Close()
			close(ended)
		})
	}
}

// holdsAtMost waits until nothing moves, and asserts how much of what was sent is in no socket, and
// in no pipe between two.
func holdsAtMost(t *testing.T, sent *atomic.Int64, most int64) {
	t.Helper()
	last, same := int64(-1), 0
	for end := time.Now().Add(30 * time.Second); same < 20; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it takes all that is sent")
		}
		if now := sent.Load() + inKernel(t); now != last || sent.Load() < most {
			last, same = now, 0
		} else {
			same++
		}
	}
	held := sent.Load() - inKernel(t)
	t.Logf("%d bytes were sent, %d of them are with the proxy", sent.Load(), held)
	if sent.Load() < most || held > most {
		t.Errorf("it holds %d of %d bytes, want at most %d", held, sent.Load(), most)
	}
}

// inKernel returns how many bytes are in the sockets and pipes of this process.
func inKernel(t *testing.T) (n int64) {
	t.Helper()
	const inQueue, outQueue = unix.TIOCINQ, unix.TIOCOUTQ
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	pipes := map[string]bool{}
	for _, f := range files {
		fd, _ := strconv.Atoi(f.Name())
		what, _ := os.Readlink("/proc/self/fd/" + f.Name())
		switch {
		case fd <= 2:
		case strings.HasPrefix(what, "socket:"):
			n += queued(fd, inQueue) + queued(fd, outQueue)
		case strings.HasPrefix(what, "pipe:") && !pipes[what]:
			pipes[what] = true
			n += queued(fd, inQueue)
		}
	}
	return n
}

// queued returns how many bytes are in a queue of a file; 0 for one without, such as a listener.
func queued(fd int, queue uint) int64 {
	n, err := unix.IoctlGetInt(fd, queue)
	if err != nil {
		return 0
	}
	return max(int64(int32(n)), 0) // a listener may have an error there
}
