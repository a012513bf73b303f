package wire

// Frames parses a stream of WebSocket frames (RFC 6455, 5.2) far enough to know where
// each one ends.
type Frames struct {
	head []byte // of a frame whose header is incomplete
	left uint64 // payload bytes still to come
}

// Between reports whether the stream is between two frames.
func (f *Frames) Between() bool { return f.left == 0 && len(f.head) == 0 }

// Advance processes the stream's next bytes.
func (f *Frames) Advance(p []byte) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, uint64(len(p)))
			f.left -= n
			p = p[n:]
			continue
		}
		f.head = append(f.head, p[0])
		p = p[1:]
		if size, payload, ok := frameHeader(f.head); ok && len(f.head) == size {
			f.head, f.left = f.head[:0], payload
		}
	}
}

// frameHeader returns the length of a frame's header and of the payload after it; false
// while the header is incomplete.
func frameHeader(h []byte) (size int, payload uint64, ok bool) {
	if len(h) < 2 {
		return 0, 0, false
	}
	size, extra := 2, 0
	switch payload = uint64(h[1] & 0x7f); payload {
	case 126:
		extra = 2
	case 127:
		extra = 8
	}
	if len(h) < size+extra {
		return 0, 0, false
	}
	if extra > 0 {
		payload = 0
		for _, b := range h[2 : 2+extra] {
			payload = payload<<8 | uint64(b)
		}
	}
	if size += extra; h[1]&0x80 != 0 {
		size += 4
	}
	return size, payload, true
}
