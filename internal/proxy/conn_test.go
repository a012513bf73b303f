package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
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

// BenchmarkCount measures the processor time of counting a request that is answered in one
// piece, which integration/bench compares with a request's.
func BenchmarkCount(b *testing.B) {
	s, w, page := Service{meter: &meter{}}, nowhere{}, make([]byte, 1024)
	b.ReportAllocs()
	begun := processorTime(b)
	for b.Loop() {
		t := newTally(w, time.Now())
		t.forService(s)
		t.WriteHeader(http.StatusOK)
		if _, err := t.Write(page); err != nil {
			b.Fatal(err)
		}
		t.end()
	}
	b.ReportMetric(float64(processorTime(b)-begun)/float64(b.N), "cpu-ns/op")
}

// nowhere is a writer that costs nothing.
type nowhere struct{}

func (nowhere) Header() http.Header         { return nil }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}

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

// What a service sent on a connection is seen even when the connection has been
// kept for too long to be used.
func TestUpstream_CatchesAServiceOnAConnectionThatIsTooOld(t *testing.T) {
	for name, close := range map[string]func(*upstream){
		"before the next request": func(u *upstream) {
			if c, err := u.get(t.Context(), false); err == nil {
				t.Errorf("got %v", c)
			}
		},
		"by the reaper": (*upstream).reap,
	} {
		t.Run(name, func(t *testing.T) {
			near, far := ends(t)
			u := newUpstream(func(context.Context) (net.Conn, error) { return nil, errors.New("no other") }, service, Options{Log: slog.New(slog.DiscardHandler)})
			defer u.closeIdle()
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
