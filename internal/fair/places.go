package fair

import "sync"

// Places limits how much each key may have open at a time, for example the streams of a
// stack. Its methods may be called by several goroutines at once.
type Places struct {
	most  int
	mu    sync.Mutex
	taken map[string]int
}

// NewPlaces limits each key to most places.
func NewPlaces(most int) *Places { return &Places{most: most, taken: map[string]int{}} }

// Take takes one of a key's places until leave is called, once; ok is false if none is
// free.
func (p *Places) Take(key string) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[key] == p.most {
		return nil, false
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
