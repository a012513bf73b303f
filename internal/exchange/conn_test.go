package exchange

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLook measures the processor time of a look at a silent connection,
// which integration/bench compares with a request's.
func BenchmarkLook(b *testing.B) {
	near, _ := ends(b)
	c := newConn(near)
	b.ReportAllocs()
	begun := processorTime(b)
	for b.Loop() {
		if c.look() != silent {
			b.Fatal("a silent connection is not")
		}
	}
	b.ReportMetric(float64(processorTime(b)-begun)/float64(b.N), "cpu-ns/op")
}

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// ends are both ends of a connection.
func ends(t testing.TB) (near, far net.Conn) {
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
	t.Cleanup(func() { near.Close() })
	far, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}

// The kernel reports a reset once; that must not go to a look, since the stream would seem to end.
func TestConn_AResetThatALookMeetsIsNoEnd(t *testing.T) {
	near, far := ends(t)
	c := newConn(near)
	if _, err := io.WriteString(far, "half"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if n, err := c.br.Read(b); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	if err := errors.Join(far.(*net.TCPConn).SetLinger(0), far.Close()); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); c.broken == nil; time.Sleep(time.Millisecond) {
		if c.readable() || time.Now().After(until) {
			t.Fatal("no reset arrived")
		}
	}
	if n, err := c.br.Read(b); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// What a service sent on a connection is seen even when the connection has been
// kept for too long to be used.
func TestUpstream_CatchesAServiceOnAConnectionThatIsTooOld(t *testing.T) {
	for name, close := range map[string]func(*Upstream){
		"before the next request": func(u *Upstream) {
			if c, err := u.get(t.Context(), false, false); err == nil {
				t.Errorf("got %v", c)
			}
		},
		"by the reaper": (*Upstream).reap,
	} {
		t.Run(name, func(t *testing.T) {
			near, far := ends(t)
			u := NewUpstream(func(context.Context) (net.Conn, error) { return nil, errors.New("no other") }, Service, Options{Log: slog.New(slog.DiscardHandler)})
			defer u.CloseIdle()
			c := newConn(near)
			u.put(c)
			c.until = time.Now()
			if _, err := io.WriteString(far, "stray"); err != nil {
				t.Fatal(err)
			}
			for c.look() != speaking {
				runtime.Gosched()
			}
			close(u)
			if !u.unpooled {
				t.Error("connections are kept on")
			}
			if c.look() != gone {
				t.Error("the connection is open")
			}
		})
	}
}
