package edge

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"strconv"
)

// framing follows the bytes of an HTTP/1 connection to see each request's head as the
// caller sent it. net/http hides from handlers that a head had a Transfer-Encoding with
// HTTP/1.0 or beside a Content-Length; both can smuggle requests (RFC 9112, 6.1).
//
// A Read through it never goes beyond the end of a head or of a body. So when a handler
// begins, the head of its request is the last one that ended, and net/http has nothing
// of the body yet: begin learns the body's length from net/http itself. Only chunks are
// followed byte by byte. If a handler begins and no head has just ended, its request is
// something else, and is refused.
//
// net/http never reads twice at once. While a handler runs, it reads at most one byte
// behind the end of the body, to notice when the caller leaves. begin does not touch
// what such a read uses.
type framing struct {
	rest []byte // read beyond the end of a part; the next read returns it first

	part  part
	left  uint64 // of a body with a length, or of a chunk and the line end behind it
	line  [linePrefix]byte
	lineN int  // bytes of line that are set: how an unfinished line begins
	cr    bool // the unfinished line ends in CR so far

	ended            bool // a head has ended and its handler has not begun
	coding, declared bool // the head has a Transfer-Encoding, a Content-Length
}

// part is what the next byte of a connection belongs to.
type part int

const (
	requestLine part = iota // and the empty lines that net/http allows before it
	fields
	sized     // a body with a length
	chunkSize // the line before a chunk
	chunk
	trailers
	unknown // nothing is followed any more: net/http will close, or the connection was hijacked
)

// linePrefix is how many bytes of a line are kept: more than the longest relevant name,
// and more than the digits of a chunk's size.
const linePrefix = 24

// read reads from src like its Read, up to the end of a part.
func (f *framing) read(src io.Reader, p []byte) (int, error) {
	if len(f.rest) > 0 {
		n := f.advance(p[:copy(p, f.rest)])
		if f.rest = f.rest[n:]; len(f.rest) == 0 {
			f.rest = nil // or an idle connection would keep it
		}
		return n, nil
	}
	got, err := src.Read(p)
	n := f.advance(p[:got])
	if n < got {
		f.rest = bytes.Clone(p[n:got])
		return n, nil // an error comes again
	}
	return n, err
}

// between reports whether nothing of a next request has been read. It holds for HTTP/2, which
// has no framing.
func (f *framing) between() bool {
	return f == nil || f.part == requestLine && f.lineN == 0 && len(f.rest) == 0
}

// advance processes the next bytes, and returns how many of them belong to the current
// part.
func (f *framing) advance(p []byte) int {
	for i := 0; i < len(p); {
		switch f.part {
		case unknown:
			return len(p)
		case sized, chunk:
			n := min(f.left, uint64(len(p)-i))
			i += int(n)
			if f.left -= n; f.left > 0 {
				continue
			}
			if f.part == sized {
				f.part = requestLine
				return i
			}
			f.part = chunkSize
		default:
			n, whole := f.takeLine(p[i:])
			if i += n; whole && f.endLine() {
				return i
			}
		}
	}
	return len(p)
}

// takeLine keeps the beginning of a line, and reports whether the line ends in p.
func (f *framing) takeLine(p []byte) (n int, whole bool) {
	text, _, whole := bytes.Cut(p, []byte{'\n'})
	f.lineN += copy(f.line[f.lineN:], text)
	if len(text) > 0 {
		f.cr = text[len(text)-1] == '\r'
	}
	if !whole {
		return len(p), false
	}
	return len(text) + 1, true
}

// endLine processes a complete line, and reports whether a head or a body ends with it.
func (f *framing) endLine() bool {
	line, cr := f.line[:f.lineN], f.cr
	f.lineN, f.cr = 0, false
	empty := len(line) == 0 || len(line) == 1 && cr
	if !cr && (f.part == chunkSize || f.part == trailers) {
		f.part = unknown // net/http looks for the CR, behind the body if need be
	}
	switch f.part {
	case requestLine:
		if !empty {
			f.part, f.coding, f.declared = fields, false, false
		}
	case fields:
		if empty {
			f.part, f.ended = requestLine, true
			return true
		}
		f.takeName(line[:max(bytes.IndexByte(line, ':'), 0)])
	case chunkSize:
		f.beginChunk(line)
	case trailers:
		if empty {
			f.part = requestLine
			return true
		}
	}
	return false
}

// takeName records a field's name. A folded line has none: it begins with a space.
func (f *framing) takeName(name []byte) {
	switch len(name) {
	case len("Transfer-Encoding"):
		f.coding = f.coding || bytes.EqualFold(name, []byte("Transfer-Encoding"))
	case len("Content-Length"):
		f.declared = f.declared || bytes.EqualFold(name, []byte("Content-Length"))
	}
}

// beginChunk parses a chunk's size. net/http refuses a size that cannot be parsed here.
func (f *framing) beginChunk(line []byte) {
	digits := bytes.IndexFunc(line, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f') && (r < 'A' || r > 'F')
	})
	size, err := strconv.ParseUint(string(line[:max(digits, 0)]), 16, 64)
	switch {
	case err != nil || size > math.MaxInt64:
		f.part = unknown
	case size == 0:
		f.part = trailers
	default:
		f.part, f.left = chunk, size+2
	}
}

// begin is called when the handler of r begins. It reports whether the end of r can be
// trusted, and whether the connection has to close after it.
func (f *framing) begin(r *http.Request) (trusted, last bool) {
	if !f.ended || f.coding && !r.ProtoAtLeast(1, 1) {
		return false, true
	}
	f.ended = false
	switch {
	case r.ContentLength > 0:
		f.part, f.left = sized, uint64(r.ContentLength)
	case len(r.TransferEncoding) > 0:
		f.part = chunkSize
	}
	return true, f.coding && f.declared
}

// release stops following: the connection speaks another protocol from here on.
func (f *framing) release() { f.part = unknown }
