// Package sse writes server-sent events for the dashboard and the API's streams. Only
// one goroutine may use a writer. Every call flushes, so that the next one notices a
// reader that has left. It does not depend on what the events say.
package sse

import (
	"bufio"
	"errors"
	"strings"
	"time"
)

// ContentType is the media type of a stream.
const ContentType = "text/event-stream"

// MostOpen is how many streams may be open for one stack or account at a time.
const MostOpen = 64

// BeatEvery is how often to call Beat on a silent stream, so that proxies keep the
// connection and a reader that has left is noticed.
const BeatEvery = 15 * time.Second

// ErrLeft means that the reader has left; a stream then ends quietly.
var ErrLeft = errors.New("the reader of the stream left")

// Writer writes the events of one stream.
type Writer struct{ out *bufio.Writer }

// NewWriter returns a Writer on the body of an answer.
func NewWriter(out *bufio.Writer) Writer { return Writer{out} }

// Event is one event. ID and Name are one line each, or "" for none.
type Event struct {
	ID   string // what a returning reader sends as Last-Event-ID
	Name string // "" makes it a message
	Data string // of any number of lines
}

// Send writes an event; its error is ErrLeft.
func (w Writer) Send(e Event) error {
	var b strings.Builder
	if e.ID != "" {
		b.WriteString("id: " + e.ID + "\n")
	}
	if e.Name != "" {
		b.WriteString("event: " + e.Name + "\n")
	}
	for line := range strings.SplitSeq(e.Data, "\n") {
		b.WriteString("data: " + line + "\n")
	}
	b.WriteString("\n")
	return w.write(b.String())
}

// Beat writes a comment, which readers skip; its error is ErrLeft.
func (w Writer) Beat() error { return w.write(": still here\n\n") }

func (w Writer) write(text string) error {
	_, _ = w.out.WriteString(text) // Flush returns its error too
	if err := w.out.Flush(); err != nil {
		return ErrLeft
	}
	return nil
}

// Accepted reports whether an Accept header asks for a stream by name.
func Accepted(accept string) bool {
	for item := range strings.SplitSeq(accept, ",") {
		media, _, _ := strings.Cut(item, ";")
		if strings.EqualFold(strings.TrimSpace(media), ContentType) {
			return true
		}
	}
	return false
}
