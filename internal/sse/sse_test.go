package sse_test

import (
	"bufio"
	"errors"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/sse"
)

func TestSend_WritesWhatTheFormatAsks(t *testing.T) {
	for want, e := range map[string]sse.Event{
		"data: a\n\n":                                   {Data: "a"},
		"data: a\ndata: \ndata: b\n\n":                  {Data: "a\n\nb"},
		"id: 7\nevent: stack.live\ndata: {}\n\n":        {ID: "7", Name: "stack.live", Data: "{}"},
		"event: end\ndata: \n\n":                        {Name: "end"},
		"id: 8\ndata: the id of a message, no name\n\n": {ID: "8", Data: "the id of a message, no name"},
	} {
		var b strings.Builder
		if err := sse.NewWriter(bufio.NewWriter(&b)).Send(e); err != nil || b.String() != want {
			t.Errorf("%+v is written as %q, %v; want %q", e, b.String(), err, want)
		}
	}
}

// broken is a connection that the other side closed.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestWriter_NoticesAReaderThatLeft(t *testing.T) {
	w := sse.NewWriter(bufio.NewWriter(broken{}))
	if err := w.Beat(); !errors.Is(err, sse.ErrLeft) {
		t.Errorf("the error is %v", err)
	}
	if err := w.Send(sse.Event{Data: strings.Repeat("x", 1<<20)}); !errors.Is(err, sse.ErrLeft) {
		t.Errorf("the error is %v", err)
	}
}

func TestAccepted_NeedsTheTypeByName(t *testing.T) {
	for accept, want := range map[string]bool{
		"text/event-stream":                        true,
		"application/json, Text/Event-Stream;q=.5": true,
		"":                   false,
		"*/*":                false,
		"text/*":             false,
		"text/event-streams": false,
	} {
		if got := sse.Accepted(accept); got != want {
			t.Errorf("Accepted(%q) = %v", accept, got)
		}
	}
}
