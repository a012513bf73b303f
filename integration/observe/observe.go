// Package observe has what the tests of running servers watch them with. The tests of one
// server and of a cluster share it.
//
// Code in this package touches nothing but what it is given.
package observe

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// Record keeps what is written to it.
type Record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (r *Record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

// String returns all that was written.
func (r *Record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// Eventually repeats try until it returns nil, and fails the test after patience with the last
// error. The longer it has waited, the longer it waits for the next try, an eighth of that time:
// what tries cost, of the server and of the engine, the tests beside this one lack.
func Eventually(t *testing.T, patience time.Duration, what string, try func() error) {
	t.Helper()
	began := time.Now()
	for {
		err := try()
		if err == nil {
			return
		}
		waited := time.Since(began)
		if waited > patience {
			t.Fatalf("not in %s: %s: %v", patience, what, err)
		}
		time.Sleep(min(max(waited/8, 20*time.Millisecond), 250*time.Millisecond))
	}
}
