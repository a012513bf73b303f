package proxy

import "sync"

// bufferPool lends buffers of one size.
type bufferPool struct{ pool sync.Pool }

// large is for bodies, where fewer and larger reads cost less; small is for
// streams that hold their buffer while nothing moves.
var (
	large = newBufferPool(64 << 10)
	small = newBufferPool(16 << 10)
)

func newBufferPool(size int) *bufferPool {
	return &bufferPool{sync.Pool{New: func() any { b := make([]byte, size); return &b }}}
}

func (p *bufferPool) get() *[]byte  { return p.pool.Get().(*[]byte) }
func (p *bufferPool) put(b *[]byte) { p.pool.Put(b) }
