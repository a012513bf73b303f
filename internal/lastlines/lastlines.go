// Package lastlines keeps the end of an output, for the error that it explains. It does
// not depend on whose output it is.
package lastlines

import (
	"bytes"
	"strings"
)

// Buffer is an io.Writer that keeps the last lines written to it: as many whole ones as
// its limits allow, or the end of the last one if that alone is too long.
type Buffer struct {
	maxLines, maxBytes int
	kept               []byte
	newlines           int // in kept
}

// New returns a Buffer for at most so many lines, of so many bytes together. If the
// limits are equal, only the bytes count.
func New(maxLines, maxBytes int) *Buffer { return &Buffer{maxLines: maxLines, maxBytes: maxBytes} }

var newline = []byte{'\n'}

// Write never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p...)
	b.newlines += bytes.Count(p, newline)
	if len(b.kept) > 2*b.maxBytes || b.newlines > 2*b.maxLines { // not at every line, since each time moves the rest
		b.kept = append(b.kept[:0], b.lastText()...)
		b.newlines = bytes.Count(b.kept, newline)
	}
	return len(p), nil
}

// Empty reports whether nothing was written.
func (b *Buffer) Empty() bool { return len(b.kept) == 0 }

// String returns the kept lines, without the last newline. It replaces what is not
// UTF-8.
func (b *Buffer) String() string {
	return strings.ToValidUTF8(string(bytes.TrimSuffix(b.lastText(), newline)), "\uFFFD")
}

// lastText returns as much of the kept text as the limits allow.
func (b *Buffer) lastText() []byte {
	text := b.kept
	if extra := len(bytes.TrimSuffix(text, newline)) - b.maxBytes; extra > 0 {
		if i := bytes.IndexByte(text[extra-1:len(text)-1], '\n'); i >= 0 {
			extra += i
		}
		text = text[extra:]
	}
	begin := len(bytes.TrimSuffix(text, newline))
	for range b.maxLines {
		if begin = bytes.LastIndexByte(text[:begin], '\n'); begin < 0 {
			return text
		}
	}
	return text[begin+1:]
}
