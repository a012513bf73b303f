package wire

import "sync"

// Buffers lends buffers of one size.
type Buffers struct{ pool sync.Pool }

// Large is for bodies, where fewer and larger reads cost less; Small is for streams that
// hold their buffer while nothing moves.
var (
	Large = newBuffers(64 << 10)
	Small = newBuffers(16 << 10)
)

func newBuffers(size int) *Buffers {
	return &Buffers{sync.Pool{New: func() any { b := make([]byte, size); return &b }}}
}

// Get lends a buffer.
func (p *Buffers) Get() *[]byte { return p.pool.Get().(*[]byte) }

// Put takes a buffer back.
func (p *Buffers) Put(b *[]byte) { p.pool.Put(b) }
