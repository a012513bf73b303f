package proxy

import (
	"net/http"
	"syscall"
	"testing"
	"time"
)

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
