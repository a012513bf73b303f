package streams

import "sync"

// chunk is a piece of a buffer.
type chunk [4 << 10]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// buffer holds bytes in the order in which they came. An empty one holds no memory.
type buffer struct {
	parts      []*chunk
	start, end int // of the bytes in the first part, and in the last one
	size       int
}

func (b *buffer) write(p []byte) {
	b.size += len(p)
	for len(p) > 0 {
		if len(b.parts) == 0 || b.end == len(chunk{}) {
			b.parts, b.end = append(b.parts, chunks.Get().(*chunk)), 0
		}
		n := copy(b.parts[len(b.parts)-1][b.end:], p)
		b.end += n
		p = p[n:]
	}
}

// read moves bytes into p, as many as there are or p takes.
func (b *buffer) read(p []byte) (n int) {
	for n < len(p) && b.size > 0 {
		end := len(chunk{})
		if len(b.parts) == 1 {
			end = b.end
		}
		moved := copy(p[n:], b.parts[0][b.start:end])
		n += moved
		b.size -= moved
		if b.start += moved; b.start == end {
			b.drop()
		}
	}
	return n
}

// drop gives the first part back.
func (b *buffer) drop() {
	chunks.Put(b.parts[0])
	last := copy(b.parts, b.parts[1:])
	b.parts[last] = nil
	b.parts, b.start = b.parts[:last], 0
}

// clear drops everything.
func (b *buffer) clear() {
	for len(b.parts) > 0 {
		b.drop()
	}
	b.size = 0
}
