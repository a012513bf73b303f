package proxy

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLook measures the processor time of a look at a silent connection,
// which integration/bench compares with a request's.
func BenchmarkLook(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer far.Close()
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
