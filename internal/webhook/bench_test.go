package webhook

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// BenchmarkDispatcher delivers events to a receiver in the same process.
func BenchmarkDispatcher(b *testing.B) {
	s := openStore(b)
	d := New(config(s))
	begin(b, d)
	var left atomic.Int64
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if left.Add(-1) == 0 {
			close(done)
		}
	}))
	defer server.Close()
	left.Store(int64(b.N))
	k := hook(b, s, server.URL)
	b.ResetTimer()
	for n := b.N; n > 0; n -= 500 {
		var events []stack.Event
		for range min(n, 500) {
			events = append(events, extended())
		}
		for pendingOf(d) > 5000 {
			time.Sleep(time.Millisecond)
		}
		record(b, s, k, events...)
	}
	<-done
}
