package api

import (
	"bytes"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/berth-host/berth/internal/sse"
)

// tail keeps the end of what is written to it until somebody takes it. Writing never
// waits, however slowly that happens.
type tail struct {
	most int           // bytes that it keeps; it may hold twice as many
	more chan struct{} // has a value when there may be something to take

	mu   sync.Mutex
	kept []byte
	cut  bool // not everything was kept
}

func newTail(most int) *tail { return &tail{most: most, more: make(chan struct{}, 1)} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*t.most { // not at every write, since each time moves the rest
		t.trim()
	}
	select {
	case t.more <- struct{}{}:
	default: // the value that is there stands for this, too
	}
	return len(p), nil
}

// trim drops what is too much from the beginning, up to the beginning of a character. The
// lock is held.
func (t *tail) trim() {
	extra := len(t.kept) - t.most
	if extra <= 0 {
		return
	}
	for extra < len(t.kept) && !utf8.RuneStart(t.kept[extra]) {
		extra++
	}
	t.kept = append(t.kept[:0], t.kept[extra:]...)
	t.cut = true
}

// take returns what is kept, and keeps it no more.
func (t *tail) take() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trim()
	kept := t.kept
	t.kept = nil
	return kept
}

// truncated reports whether something was dropped.
func (t *tail) truncated() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cut
}

// readable returns an output as text, with a replacement character for what is not UTF-8.
func readable(output []byte) string { return strings.ToValidUTF8(string(output), "\uFFFD") }

// mostLine is how long the beginning of a line may be before it is sent, in bytes.
const mostLine = 64 << 10

// lineSender sends an output as events.
type lineSender struct {
	out  sse.Writer
	rest []byte // the beginning of a line
	old  bool   // rest was there at the last tick
	err  error  // why an event was not sent; none is afterwards
}

// outputLine is the data of an event with a line of a command's output.
type outputLine struct {
	Line    string `json:"line"`
	Partial bool   `json:"partial,omitempty"` // no newline follows: the next event goes on with the line
}

// write sends the lines of a text. The beginning of another one waits for its end.
func (l *lineSender) write(text []byte) {
	l.rest = append(l.rest, text...)
	l.old = false
	for {
		end := bytes.IndexByte(l.rest, '\n')
		switch {
		case end >= 0:
			l.send(l.rest[:end], false)
			l.rest = l.rest[end+1:]
		case len(l.rest) > mostLine:
			l.sendPart(mostLine)
		default:
			return
		}
	}
}

// tick sends the beginning of a line that has waited since the tick before.
func (l *lineSender) tick() {
	if l.old {
		l.sendPart(len(l.rest))
	}
	l.old = len(l.rest) > 0
}

// flush sends all that waits.
func (l *lineSender) flush() {
	if len(l.rest) > 0 {
		l.send(l.rest, true)
		l.rest = nil
	}
}

// sendPart sends about so many bytes of the beginning of a line, without the beginning of a
// character.
func (l *lineSender) sendPart(size int) {
	for back := range min(utf8.UTFMax, size) {
		if at := size - back - 1; utf8.RuneStart(l.rest[at]) {
			if !utf8.FullRune(l.rest[at:size]) {
				size = at
			}
			break
		}
	}
	if size > 0 {
		l.send(l.rest[:size], true)
		l.rest = l.rest[size:]
	}
}

func (l *lineSender) send(line []byte, partial bool) {
	if l.err == nil {
		l.err = sendJSON(l.out, sse.Event{}, outputLine{readable(line), partial})
	}
}
