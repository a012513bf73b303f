// Package lastlines keeps the end of an output, for the error that it explains, has the
// words that introduce it there, and shortens such errors. It does not depend on whose
// output it is.
package lastlines

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Buffer is an io.Writer that keeps the last lines written to it: as many whole ones as
// its limits allow, or the end of the last one if that alone is too long. Blank lines at
// the end do not count.
type Buffer struct {
	name, nothing      string // for Phrase
	maxLines, maxBytes int
	kept               []byte
	newlines           int // in kept
}

// OfOutput returns a Buffer for at most so many bytes of a command's output.
func OfOutput(maxBytes int) *Buffer {
	return &Buffer{name: "output", nothing: "; it wrote nothing", maxLines: maxBytes, maxBytes: maxBytes}
}

// OfLog returns a Buffer for at most so many lines of a program's log, of so many bytes
// together.
func OfLog(maxLines, maxBytes int) *Buffer {
	return &Buffer{name: "log", nothing: "; it wrote nothing to its log", maxLines: maxLines, maxBytes: maxBytes}
}

var newline = []byte{'\n'}

// Write never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p...)
	b.newlines += bytes.Count(p, newline)
	if len(b.kept) > 3*b.maxBytes || b.newlines > 3*b.maxLines { // not at every line, since each time moves the rest
		text := bytes.TrimRightFunc(b.kept, unicode.IsSpace)
		blank := b.kept[len(text):] // counts if more follows
		b.kept = slices.Concat(cut(text, b.maxLines, b.maxBytes), cut(blank, b.maxLines, b.maxBytes))
		b.newlines = bytes.Count(b.kept, newline)
	}
	return len(p), nil
}

// String returns the kept lines, without empty ones around them. It replaces what is not
// UTF-8.
func (b *Buffer) String() string {
	text := cut(bytes.TrimRightFunc(b.kept, unicode.IsSpace), b.maxLines, b.maxBytes)
	return strings.ToValidUTF8(string(bytes.TrimLeft(text, "\r\n")), "\uFFFD")
}

// Phrase returns the kept lines in words that follow an error, such as "; the end of its
// output:\n" and the lines, or says that there are none.
func (b *Buffer) Phrase() string {
	text := b.String()
	if text == "" {
		return b.nothing
	}
	return introduction(b.name) + "\n" + text
}

func introduction(name string) string { return "; the end of its " + name + ":" }

// Headline returns the first line of an error, without the words that introduce the end
// of a command's output.
func Headline(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSuffix(line, introduction("output"))
}

// Tail returns the last whole lines of a text that fit into so many bytes, or the end of
// the last one if that alone is too long.
func Tail(text string, maxBytes int) string { return string(cut([]byte(text), maxBytes, maxBytes)) }

// escapes matches terminal sequences for movement and colour as package safetext writes
// them out.
var escapes = regexp.MustCompile(`\\x1b(\[[0-?]*[ -/]*[@-~])?`)

const middle = "\n[the middle is left out]\n"

// Shorten returns an error's text if it has at most so many characters, or else as many:
// its first line, or the beginning of that if it takes more than half of them, and the
// text's end, without cutting an escape in half.
func Shorten(text string, chars int) string {
	if utf8.RuneCountInString(text) <= chars {
		return text
	}
	first, _, _ := strings.Cut(text, "\n")
	head := outside(text, offset(text, min(utf8.RuneCountInString(first), chars/2)), 0)
	rest := chars - utf8.RuneCountInString(text[:head]+middle)
	tail := offset(text, utf8.RuneCountInString(text)-rest)
	return text[:head] + middle + text[outside(text, tail, 1):]
}

// offset returns where in text so many characters end.
func offset(text string, chars int) int {
	at := 0
	for range chars {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}

// outside returns an offset itself, or where the escape that it cuts begins, or ends for
// edge 1.
func outside(text string, at, edge int) int {
	for _, e := range escapes.FindAllStringIndex(text, -1) {
		if e[0] < at && at < e[1] {
			return e[edge]
		}
	}
	return at
}

// cut returns as much of the end of a text as the limits allow.
func cut(text []byte, maxLines, maxBytes int) []byte {
	if extra := len(bytes.TrimSuffix(text, newline)) - maxBytes; extra > 0 {
		if i := bytes.IndexByte(text[extra-1:len(text)-1], '\n'); i >= 0 {
			extra += i
		}
		for extra < len(text) && !utf8.RuneStart(text[extra]) {
			extra++
		}
		text = text[extra:]
	}
	begin := len(bytes.TrimSuffix(text, newline))
	for range maxLines {
		if begin = bytes.LastIndexByte(text[:begin], '\n'); begin < 0 {
			return text
		}
	}
	return text[begin+1:]
}
