package sse

import "sync"

// MostOpen is how many streams may be open for one key at a time.
const MostOpen = 64

// Places limits the open streams for each key, for example a stack. In the zero value
// all places are free. Its methods may be called by several goroutines at once.
type Places struct {
	mu    sync.Mutex
	taken map[string]int
}

// Take takes one of a key's places until leave is called, once; ok is false if none is
// free.
func (p *Places) Take(key string) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[key] == MostOpen {
		return nil, false
	}
	if p.taken == nil {
		p.taken = map[string]int{}
	}
	p.taken[key]++
	return func() { p.leave(key) }, true
}

func (p *Places) leave(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[key]--; p.taken[key] == 0 {
		delete(p.taken, key)
	}
}
