package streams_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/berth-host/berth/internal/streams"
)

// soon limits what should happen at once.
const soon = 10 * time.Second

// pair is a session with both its sides.
type pair struct {
	client, server *streams.Session
	under          net.Conn // the client's connection
	accepted       chan *streams.Conn
}

// newPair connects over the loopback.
func newPair(t testing.TB) *pair {
	t.Helper()
	near, far := connect(t)
	p := &pair{under: near, accepted: make(chan *streams.Conn, 1000)}
	p.server = streams.Serve(far, func(c *streams.Conn) { p.accepted <- c })
	p.client = streams.Client(near)
	return p
}

// connect returns both ends of a TCP connection, which end with the test.
func connect(t testing.TB) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// open returns both ends of a new stream.
func (p *pair) open(t testing.TB) (near, far *streams.Conn) {
	t.Helper()
	opened, err := p.client.Open()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case far = <-p.accepted:
	case <-time.After(soon):
		t.Fatal("the stream does not reach the server")
	}
	for _, end := range []*streams.Conn{opened, far} {
		end.SetDeadline(time.Now().Add(soon))
	}
	return opened, far
}

func TestConn_IsANetConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		near, far := newPair(t).open(t)
		near.SetDeadline(time.Time{})
		far.SetDeadline(time.Time{})
		return orderly{near, near}, orderly{far, far}, func() { near.Close(); far.Close() }, nil
	})
}

// orderly closes as TCP does, with an end of what was written.
type orderly struct {
	net.Conn
	stream *streams.Conn
}

func (o orderly) Close() error {
	o.stream.CloseWrite()
	return o.stream.Close()
}

func TestConn_EndsEachDirectionByItself(t *testing.T) {
	near, far := newPair(t).open(t)
	io.WriteString(near, "question")
	near.CloseWrite()
	if got, err := io.ReadAll(far); string(got) != "question" || err != nil {
		t.Errorf("the other end read %q, %v", got, err)
	}
	if _, err := near.Write([]byte("more")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a write after the end: %v, want EPIPE", err)
	}
	io.WriteString(far, "answer")
	far.CloseWrite()
	far.Close()
	if got, err := io.ReadAll(near); string(got) != "answer" || err != nil {
		t.Errorf("this end read %q, %v", got, err)
	}
}

func TestConn_ThatIsClosedEarlyIsNoEnd(t *testing.T) {
	near, far := newPair(t).open(t)
	io.WriteString(far, "half an ans")
	far.Close()
	got, err := io.ReadAll(near)
	if string(got) != "half an ans" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %q, %v; want what was written, then ECONNRESET", got, err)
	}
	if _, err := near.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a write: %v, want ECONNRESET", err)
	}
	if n, err := near.Peek(); n != 0 || err != nil {
		t.Errorf("a look: %d, %v; want 0, nil", n, err)
	}
}

func TestConn_BreaksWithItsConnection(t *testing.T) {
	p := newPair(t)
	near, far := p.open(t)
	p.under.Close()
	for name, end := range map[string]*streams.Conn{"near": near, "far": far} {
		if _, err := end.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a read ended with %v, want a failure that is no end", name, err)
		}
	}
	if _, err := p.client.Open(); err == nil {
		t.Error("a stream was opened on a broken connection")
	}
}

func TestConn_ThatNobodyReadsWaitsAndHoldsUpNoOther(t *testing.T) {
	p := newPair(t)
	full, unread := p.open(t)
	full.SetWriteDeadline(time.Now().Add(3 * time.Second))
	written, err := full.Write(make([]byte, 8<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) || written != 256<<10 {
		t.Fatalf("a write to who does not read: %d bytes, %v; want 256 KiB, then the deadline", written, err)
	}
	other, far := p.open(t)
	go io.Copy(far, far)
	checkEcho(t, other, randomBytes(4<<20))

	full.SetWriteDeadline(time.Now().Add(soon))
	go func() { full.Write([]byte("the rest")); full.CloseWrite() }()
	got, err := io.ReadAll(unread)
	if err != nil || len(got) != written+len("the rest") {
		t.Errorf("read %d bytes, %v; want all %d", len(got), err, written+len("the rest"))
	}
}

func TestConn_LooksWithoutReading(t *testing.T) {
	near, far := newPair(t).open(t)
	if _, err := near.Peek(); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("nothing to read: %v, want EAGAIN", err)
	}
	io.WriteString(far, "x")
	for n := 0; n == 0; n, _ = near.Peek() {
		time.Sleep(time.Millisecond)
	}
	if bytes, waiting := near.Traffic(); bytes != 1 || waiting {
		t.Errorf("traffic is %d, %v; want 1 byte, nothing waiting", bytes, waiting)
	}
	if n, err := near.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("after the look a read: %d, %v", n, err)
	}
}

func TestConn_ShowsThatAWriteWaits(t *testing.T) {
	near, _ := newPair(t).open(t)
	done := make(chan struct{})
	go func() { near.Write(make([]byte, 1<<20)); close(done) }()
	for _, waiting := near.Traffic(); !waiting; _, waiting = near.Traffic() {
		time.Sleep(time.Millisecond)
	}
	near.Close()
	<-done
}

func TestSession_CarriesManyStreamsAtOnce(t *testing.T) {
	p := newPair(t)
	var all sync.WaitGroup
	for range 100 {
		near, far := p.open(t)
		near.SetDeadline(time.Now().Add(6 * soon))
		far.SetDeadline(time.Now().Add(6 * soon))
		go func() { io.Copy(far, far); far.CloseWrite(); far.Close() }()
		all.Go(func() { checkEcho(t, near, randomBytes(1+rand.IntN(1<<20))) })
	}
	all.Wait()
}

// checkEcho sends p in pieces, and expects it back.
func checkEcho(t *testing.T, c *streams.Conn, p []byte) {
	t.Helper()
	go func() {
		for rest := p; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(64<<10))
			if _, err := c.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
		c.CloseWrite()
	}()
	got := make([]byte, len(p))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, p) {
		t.Errorf("%d bytes came back changed: %v", len(p), err)
	}
	c.Close()
}

func randomBytes(n int) []byte {
	p := make([]byte, n)
	var seed [32]byte
	rand.NewChaCha8(seed).Read(p)
	return p
}

func TestSession_EndsWithItsLastStream(t *testing.T) {
	p := newPair(t)
	first, _ := p.open(t)
	second, far := p.open(t)
	first.Close()
	io.WriteString(second, "still there")
	if got, err := io.ReadAll(io.LimitReader(far, 11)); string(got) != "still there" || err != nil {
		t.Errorf("after the first stream's end: %q, %v", got, err)
	}
	second.Close()
	if _, err := p.client.Open(); !errors.Is(err, streams.ErrLeft) {
		t.Errorf("after the last stream: %v, want ErrLeft", err)
	}
	waitDone(t, p.server)
}

func TestSession_ThatIsLeftKeepsItsStreams(t *testing.T) {
	p := newPair(t)
	near, far := p.open(t)
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	p.server.Leave(ctx)
	if ctx.Err() != nil {
		t.Fatal("the client does not answer that it leaves")
	}
	waitDone(t, p.server)
	if _, err := p.client.Open(); !errors.Is(err, streams.ErrLeft) {
		t.Errorf("a stream after it: %v, want ErrLeft", err)
	}
	go io.Copy(far, far)
	checkEcho(t, near, []byte("goes on"))
}

func TestSession_LeaveHandlesWhatWasOpenedBefore(t *testing.T) {
	for range 50 {
		p := newPair(t)
		first, _ := p.open(t)
		const several = 20
		for range several {
			if _, err := p.client.Open(); err != nil {
				t.Fatal(err)
			}
		}
		p.server.Leave(t.Context())
		if got := len(p.accepted); got != several {
			t.Fatalf("%d streams were handled when Leave returned, want %d", got, several)
		}
		first.Close()
	}
}

func waitDone(t *testing.T, s *streams.Session) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(soon):
		t.Error("the session does not end")
	}
}

// Frames as the other side may send them, in spite of the protocol.
func TestSession_EndsAtAViolation(t *testing.T) {
	open1 := frame(1, 0, 1)
	violations := map[string][]byte{
		"an unknown kind":               append(open1, frame(9, 0, 1)...),
		"kind zero":                     append(open1, frame(0, 0, 1)...),
		"a stream that was not opened":  frame(3, 0, 7),
		"a stream that is opened twice": append(open1, open1...),
		"more data than the window":     append(open1, append(frame(2, 256<<10+1, 1), make([]byte, 256<<10+1)...)...),
		"more credit than the window":   append(open1, frame(5, 1, 1)...),
	}
	for name, sent := range violations {
		t.Run(name, func(t *testing.T) {
			near, far := connect(t)
			session := streams.Serve(far, func(*streams.Conn) {})
			near.SetDeadline(time.Now().Add(soon))
			near.Write(sent)
			waitDone(t, session)
			if _, err := io.ReadAll(near); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection stays open")
			}
		})
	}
}

func TestSession_OfAClientIsOpenedNoStreams(t *testing.T) {
	near, far := connect(t)
	session := streams.Client(near)
	far.Write(frame(1, 0, 1))
	waitDone(t, session)
	if _, err := session.Open(); err == nil || errors.Is(err, streams.ErrLeft) {
		t.Errorf("after the server opened a stream: %v, want the violation", err)
	}
}

// frame returns a frame's head.
func frame(kind byte, size int, id uint32) []byte {
	return []byte{kind, byte(size >> 16), byte(size >> 8), byte(size), byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
}

// FuzzSession sends anything to a server whose streams are read, written and closed. It must
// neither panic nor hang, and what it accepts must stay within the window.
func FuzzSession(f *testing.F) {
	f.Add(append(append(frame(1, 0, 1), frame(2, 3, 1)...), "abc\x03\x00\x00\x00\x00\x00\x00\x01"...))
	f.Add(append(frame(1, 0, 1), frame(4, 0, 1)...))
	f.Add(frame(6, 0, 0))
	f.Add(append(append(frame(1, 0, 5), frame(3, 0, 5)...), frame(2, 1, 5)...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		near, far := net.Pipe()
		var users sync.WaitGroup
		session := streams.Serve(far, func(c *streams.Conn) {
			users.Go(func() {
				defer c.Close()
				if n, _ := io.Copy(c, c); n > int64(len(sent)) {
					panic(fmt.Sprintf("%d bytes were read of %d", n, len(sent)))
				}
			})
		})
		go io.Copy(io.Discard, near)
		near.Write(sent)
		near.Close()
		waitDone(t, session)
		users.Wait()
	})
}

func BenchmarkSession(b *testing.B) {
	p := newPair(b)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		near, far := p.openIn(b)
		go io.Copy(far, far)
		page := make([]byte, 1<<10)
		for pb.Next() {
			near.Write(page)
			if _, err := io.ReadFull(near, page); err != nil {
				b.Error(err)
				return
			}
		}
		near.Close()
	})
}

// openIn is open for a benchmark's goroutines, whose streams may be accepted in any order.
func (p *pair) openIn(b *testing.B) (near, far *streams.Conn) {
	near, err := p.client.Open()
	if err != nil {
		b.Error(err)
		return nil, nil
	}
	return near, <-p.accepted
}
