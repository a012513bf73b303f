package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Follower reads a log while it is being written. The caller must close it.
type Follower struct {
	path  string
	view  View
	f     *os.File // nil until the log exists
	head  head     // of f
	print printer
	at    int64 // how far f was read
	seen  int64 // f's size when it was last read; the bytes from at on are not a complete line
}

// News is what was added to a log.
type News struct {
	From  Position // after what came before
	Lines []Line
	Anew  bool // the log was begun anew, as each build does: the lines are the first
}

// Line is one line of a log, or a piece of a long one, as a view shows it.
type Line struct {
	Text string
	End  Position // from which to go on after it
}

// Texts returns the texts of the lines.
func (n News) Texts() []string {
	texts := make([]string, len(n.Lines))
	for i, line := range n.Lines {
		texts[i] = line.Text
	}
	return texts
}

// readAtOnce limits what one call of Next reads, in bytes.
const readAtOnce = 256 << 10

// Follow returns a Follower that begins with the lines of a view of the log at path, which
// need not exist yet.
func Follow(path string, v View) *Follower { return &Follower{path: path, view: v} }

// Next returns the complete lines added since the last call, none if there are none. It
// continues across rotations.
func (l *Follower) Next() (News, error) {
	anew := false
	if l.f == nil {
		var err error
		if anew, err = l.begin(); err != nil || l.f == nil {
			return News{From: l.position()}, err
		}
	}
	news, err := l.more(false)
	news.Anew = anew
	if err != nil || len(news.Lines) > 0 || anew {
		return news, err
	}
	replaced, err := l.replaced()
	if err != nil || !replaced {
		return news, err
	}
	// What was written before it was replaced, but after it was read above.
	if news, err = l.more(true); err != nil || len(news.Lines) > 0 {
		return news, err
	}
	if anew, err = l.open(l.position()); err != nil {
		return news, err
	}
	news, err = l.more(false)
	news.Anew = anew
	return news, err
}

// Close closes the file.
func (l *Follower) Close() error {
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}

// position returns where the next line begins.
func (l *Follower) position() Position {
	switch {
	case l.f != nil:
		return Position{l.head.log, l.head.base + l.at}
	case l.view.From != nil:
		return *l.view.From
	}
	return Position{}
}

// begin opens the log, once it exists, where the view begins. It reports whether the log
// is another one than that of the position from which to go on.
func (l *Follower) begin() (anew bool, err error) {
	if l.view.From != nil {
		return l.open(*l.view.From)
	}
	if l.f, l.head, err = openFile(l.path); err != nil || l.f == nil {
		return false, wrap(err)
	}
	l.print = printer{raw: l.head.raw, stamped: l.view.Stamped}
	size, err := l.size()
	if err == nil {
		size, err = endOfLines(l.f, l.head.size, size)
	}
	if err == nil {
		l.at, err = lastLines(l.f, l.head, size, l.view)
	}
	return false, wrap(err)
}

// open opens the file of the log that has a position, or the oldest that comes after it,
// and reports whether the position is in a log that was there before.
func (l *Follower) open(p Position) (anew bool, err error) {
	f, h, err := openFile(l.path)
	if f == nil || err != nil {
		return false, wrap(err)
	}
	if h.log != p.Log || p.At < h.base {
		older, o, err := openFile(l.path + rotated)
		switch {
		case err != nil:
			return false, wrap(errors.Join(err, f.Close()))
		case older != nil && o.log == h.log:
			f, older, h = older, f, o
		}
		if older != nil {
			_ = older.Close() // it was only looked at
		}
	}
	if l.f != nil {
		_ = l.f.Close() // it was only read
	}
	l.f, l.head, l.at, l.seen = f, h, h.size, 0
	l.print = printer{raw: h.raw, stamped: l.view.Stamped}
	if h.log == p.Log {
		err = l.skipTo(p.At - h.base)
	}
	return h.log != p.Log && p.At > 0, wrap(err)
}

// skipTo sets where to go on in a file that was just opened. An offset behind its end, of
// a line that was not complete when the server was killed, becomes the end.
func (l *Follower) skipTo(at int64) error {
	size, err := l.size()
	if err != nil {
		return err
	}
	l.at = max(l.at, min(at, size))
	l.print.within, err = withinLine(l.f, l.head, l.at)
	return err
}

// size returns the size of the file.
func (l *Follower) size() (int64, error) {
	info, err := l.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// more reads the complete lines after those already read; with all, also a line that is
// not complete. It returns a line longer than readAtOnce in pieces.
func (l *Follower) more(all bool) (News, error) {
	news := News{From: l.position()}
	size, err := l.size()
	if err != nil {
		return news, wrap(err)
	}
	if size <= l.at || size == l.seen && !all {
		return news, nil
	}
	b := make([]byte, min(size-l.at, readAtOnce))
	n, err := l.f.ReadAt(b, l.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return news, wrap(err)
	}
	l.seen = l.at + int64(n)
	end := bytes.LastIndexByte(b[:n], '\n') + 1
	if end == 0 && (n == readAtOnce || all) {
		end = n
	}
	for piece := range bytes.Lines(b[:end]) {
		l.at += int64(len(piece))
		if prefix, text, shown := l.print.print(piece); shown {
			line := prefix + string(bytes.TrimSuffix(text, []byte("\n")))
			news.Lines = append(news.Lines, Line{line, l.position()})
		}
	}
	return news, nil
}

// replaced reports whether another file has taken the place of the one that is read.
func (l *Follower) replaced() (bool, error) {
	mine, err := l.f.Stat()
	if err != nil {
		return false, wrap(err)
	}
	now, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && !os.SameFile(mine, now), wrap(err)
}

// wrap says what failed; it returns nil for no error.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("follow log: %w", err)
}
