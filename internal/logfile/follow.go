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
	path string
	tail int
	f    *os.File // nil until the log exists
	at   int64    // how far f was read
	seen int64    // f's size when it was last read; the bytes from at on are not a complete line
}

// readAtOnce limits what one call of Next reads, in bytes.
const readAtOnce = 256 << 10

// Follow returns a Follower that begins with the last tail lines of the log at path,
// which need not exist yet.
func Follow(path string, tail int) *Follower { return &Follower{path: path, tail: tail} }

// Next returns the complete lines added since the last call, without the times of a
// process's lines; none if there are none. It continues across a rotation. If the log
// was begun anew, as each build does, anew is true and the lines are the new log's
// first.
func (l *Follower) Next() (lines []string, anew bool, err error) {
	if l.f == nil {
		lines, err = l.begin()
		return lines, false, err
	}
	if lines, err = l.more(); err != nil || len(lines) > 0 {
		return lines, false, err
	}
	anew, replaced, err := l.replaced()
	if err != nil || !replaced {
		return nil, false, err
	}
	// What was written before it was replaced, but after it was read above.
	if lines, err = l.more(); err != nil || len(lines) > 0 {
		return lines, false, err
	}
	if err := l.reopen(); err != nil {
		return nil, false, err
	}
	lines, err = l.more()
	return lines, anew, err
}

// Close closes the file.
func (l *Follower) Close() error {
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}

// begin opens the log, once it exists, and reads its last lines.
func (l *Follower) begin() ([]string, error) {
	if err := l.reopen(); err != nil || l.f == nil {
		return nil, err
	}
	info, err := l.f.Stat()
	if err != nil {
		return nil, fmt.Errorf("follow log: %w", err)
	}
	whole, err := behindNewline(l.f, info.Size(), 1)
	if err == nil {
		l.at, err = lastLines(l.f, whole, l.tail)
	}
	if err != nil {
		return nil, fmt.Errorf("follow log: %w", err)
	}
	return l.more()
}

// more reads the complete lines after those already read. It returns a line longer than
// readAtOnce in pieces.
func (l *Follower) more() ([]string, error) {
	info, err := l.f.Stat()
	if err != nil {
		return nil, fmt.Errorf("follow log: %w", err)
	}
	if size := info.Size(); size == l.seen || size <= l.at {
		return nil, nil
	}
	b := make([]byte, min(info.Size()-l.at, readAtOnce))
	n, err := l.f.ReadAt(b, l.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("follow log: %w", err)
	}
	l.seen = l.at + int64(n)
	end := bytes.LastIndexByte(b[:n], '\n') + 1
	if end == 0 && n == readAtOnce {
		end = n
	}
	l.at += int64(end)
	var lines []string
	for line := range bytes.Lines(b[:end]) {
		_, text := cutTime(bytes.TrimSuffix(line, []byte("\n")))
		lines = append(lines, string(text))
	}
	return lines, nil
}

// replaced reports whether another file has taken the log's place, and whether that one
// is a new log rather than the rest of this one.
func (l *Follower) replaced() (anew, replaced bool, err error) {
	mine, err := l.f.Stat()
	if err != nil {
		return false, false, fmt.Errorf("follow log: %w", err)
	}
	now, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && os.SameFile(mine, now)) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("follow log: %w", err)
	}
	older, err := os.Stat(l.path + rotated)
	return err != nil || !os.SameFile(mine, older), true, nil
}

// reopen opens the file now at the log's path, if there is one.
func (l *Follower) reopen() error {
	f, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("follow log: %w", err)
	}
	if l.f != nil {
		err = l.f.Close()
	}
	l.f, l.at, l.seen = f, 0, 0
	return err
}
