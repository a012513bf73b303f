package streams

import (
	"encoding/binary"
	"fmt"
)

// kind is what a frame says.
type kind byte

const (
	open   kind = iota + 1 // by the client: a new stream, whose id is the next higher one
	data                   // size bytes of it follow
	end                    // no more data follow
	reset                  // the stream is broken off
	credit                 // size bytes have been read
	leave                  // by the server: open no more streams; by the client: none follow
)

const (
	headSize = 8
	maxData  = 16 << 10  // of one frame, so that streams take turns
	window   = 256 << 10 // of data on the way or unread, in each direction of a stream
)

func appendHead(to []byte, k kind, id uint32, size int) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(k)<<24|uint32(size))
	return binary.BigEndian.AppendUint32(to, id)
}

// frames parses the bytes of a connection.
type frames struct {
	head  [headSize]byte
	have  int // bytes of head
	left  int // data of the frame that are still to come
	taker *Conn
}

// badFrame says how the other side violates the protocol.
type badFrame string

func (b badFrame) Error() string { return "streams: " + string(b) }

// parse processes the next bytes, whichever frames they begin and end in.
func (f *frames) parse(s *Session, p []byte) error {
	for len(p) > 0 {
		if f.left == 0 {
			n := copy(f.head[f.have:], p)
			p = p[n:]
			if f.have += n; f.have < headSize {
				return nil
			}
			f.have = 0
			if err := f.begin(s); err != nil {
				return err
			}
			continue
		}
		n := min(f.left, len(p))
		if f.taker != nil && !f.taker.take(p[:n]) {
			return badFrame("more data than the window has room for")
		}
		f.left -= n
		p = p[n:]
	}
	return nil
}

// begin processes a head.
func (f *frames) begin(s *Session) error {
	word, id := binary.BigEndian.Uint32(f.head[:]), binary.BigEndian.Uint32(f.head[4:])
	k, size := kind(word>>24), int(word&0xffffff)
	switch k {
	case open:
		return s.accept(id)
	case leave:
		s.hearLeave()
		return nil
	}
	c, err := s.find(id)
	switch {
	case err != nil:
		return err
	case k == data:
		f.left, f.taker = size, c
	case k < open || k > leave:
		return badFrame(fmt.Sprintf("frame of an unknown kind %d", k))
	case c == nil: // it has been closed here
	case k == end:
		c.hearEnd()
	case k == reset:
		c.hearReset()
	default:
		return c.hearCredit(size)
	}
	return nil
}
