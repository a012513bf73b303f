// Package safetext makes text from strangers safe to show on a terminal. A terminal
// executes control characters: they can move the cursor, change the title, or make it
// answer as if someone typed. The package writes them out (\x1b, \r, \u009b); every
// other byte stays as it is, including newlines and tabs. A carriage return before a
// newline is part of the line's end and is removed. Code in this package does no I/O.
package safetext

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// String returns s with control characters other than newlines and tabs written
// out.
func String(s string) string {
	text, _ := escape(nil, []byte(s), true)
	return string(text)
}

// Writer passes on what is written to it, with control characters other than
// newlines and tabs written out.
type Writer struct {
	w    io.Writer
	held []byte // the beginning of a character, or a carriage return that may end a line
	out  []byte
}

// NewWriter returns a Writer that writes to w. Close writes the last bytes.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write passes p on. Up to three of its last bytes wait for the ones after them.
func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.held, p...)
	var rest []byte
	w.out, rest = escape(w.out[:0], text, false)
	w.held = append(w.held[:0], rest...)
	if _, err := w.w.Write(w.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close passes on the bytes that wait. It does not close the underlying writer.
func (w *Writer) Close() error {
	text, _ := escape(nil, w.held, true)
	w.held = nil
	_, err := w.w.Write(text)
	return err
}

// escape appends text to dst, escaped. If text is not the last, it returns an end that
// cannot be judged yet as rest.
func escape(dst, text []byte, last bool) (escaped, rest []byte) {
	for len(text) > 0 {
		c := text[0]
		if ' ' <= c && c < 0x7f || c == '\n' || c == '\t' {
			dst, text = append(dst, c), text[1:]
			continue
		}
		if !last && (c == '\r' && len(text) == 1 || !utf8.FullRune(text)) {
			return dst, text
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case c == '\r' && size < len(text) && text[size] == '\n':
		case c == '\r':
			dst = append(dst, `\r`...)
		case c < utf8.RuneSelf, size == 1 && c < 0xa0: // a terminal that is not set to UTF-8 takes these too
			dst = fmt.Appendf(dst, `\x%02x`, c)
		case r < 0xa0:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = append(dst, text[:size]...)
		}
		text = text[size:]
	}
	return dst, nil
}
