// Package logfile keeps the logs of services as plain files with a bound:
// appending, rotating to one older copy, and reading the last lines ("Logs and
// events" of shared/spec/api.md). A line of a process starts with the time at
// which the engine saw it, so that a server that was killed goes on exactly
// where it stopped; readers do not see it.
package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// File is a log that is being written. Its methods may be called from several
// goroutines.
type File struct {
	mu     sync.Mutex
	f      *os.File
	path   string
	size   int64
	max    int64
	header []byte // written again at the head of each new file
}

// Create starts the log at path anew, as a file of its own: whoever still
// reads the old one sees it end. Beyond max bytes the file moves to path.1,
// replacing it, and a new one begins with header.
func Create(path string, max int64, header string) (*File, error) {
	for _, old := range []string{path, path + rotated} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove the old log: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	return &File{f: f, path: path, max: max, header: []byte(header)}, nil
}

// Open goes on with the log at path, or begins one. A last line without its
// end, as a killed server leaves it, is cut off. The time is that of the last
// line, zero when there is none.
func Open(path string, max int64) (*File, time.Time, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("open log: %w", err)
	}
	size, last, err := mend(f)
	if err != nil {
		return nil, time.Time{}, errors.Join(fmt.Errorf("open log %s: %w", path, err), f.Close())
	}
	if last.IsZero() {
		last = lastTime(path + rotated)
	}
	return &File{f: f, path: path, size: size, max: max}, last, nil
}

const rotated = ".1"

// mend cuts an unfinished last line off and tells the size and the time of the
// last whole one.
func mend(f *os.File) (int64, time.Time, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, time.Time{}, err
	}
	end, err := lastNewline(f, info.Size())
	if err != nil {
		return 0, time.Time{}, err
	}
	if end != info.Size() {
		if err := f.Truncate(end); err != nil {
			return 0, time.Time{}, err
		}
	}
	lines, err := tail(f, end, 1)
	if err != nil || len(lines) == 0 {
		return end, time.Time{}, err
	}
	at, _ := cutTime(lines[0])
	return end, at, nil
}

// lastTime is the time of the last line of the file at path, zero when it
// cannot be told.
func lastTime(path string) time.Time {
	f, err := os.Open(path)
	if err != nil {
		return time.Time{}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return time.Time{}
	}
	lines, err := tail(f, info.Size(), 1)
	if err != nil || len(lines) == 0 {
		return time.Time{}
	}
	at, _ := cutTime(lines[0])
	return at
}

// Line appends one line that a process wrote at the given time.
func (l *File) Line(at time.Time, line []byte) error {
	b := make([]byte, 0, len(timeLayout)+len(line)+2)
	b = at.UTC().AppendFormat(b, timeLayout)
	b = append(b, ' ')
	b = append(b, line...)
	b = append(b, '\n')
	_, err := l.Write(b)
	return err
}

// timeLayout has a fixed width, so that a line's time can be cut off blindly.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

// Write appends text as it is, rotating first when it would grow the file
// beyond its bound.
func (l *File) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(p)) > l.max {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *File) rotate() error {
	if err := os.Rename(l.path, l.path+rotated); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	n, err := f.Write(l.header)
	if err := errors.Join(err, l.f.Close()); err != nil {
		return errors.Join(fmt.Errorf("rotate log: %w", err), f.Close())
	}
	l.f, l.size = f, int64(n)
	return nil
}

// Close closes the file. What was written stays.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}

// Tail writes the last n lines of the log at path to w, without the times of a
// process's lines. A log that does not exist is empty.
func Tail(w io.Writer, path string, n int) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	lines, err := tail(f, info.Size(), n)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	for _, line := range lines {
		_, text := cutTime(line)
		if _, err := w.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// cutTime splits a process's line into its time and its text; a line without a
// time comes back whole.
func cutTime(line []byte) (time.Time, []byte) {
	if len(line) <= len(timeLayout) || line[len(timeLayout)] != ' ' {
		return time.Time{}, line
	}
	at, err := time.Parse(timeLayout, string(line[:len(timeLayout)]))
	if err != nil {
		return time.Time{}, line
	}
	return at, line[len(timeLayout)+1:]
}

// tail returns the last n lines of the first size bytes of f, oldest first,
// without their ends.
func tail(f io.ReaderAt, size int64, n int) ([][]byte, error) {
	var text []byte
	for start := size; start > 0 && bytes.Count(text, []byte("\n")) <= n; {
		chunk := min(start, 64<<10)
		start -= chunk
		b := make([]byte, chunk, int(chunk)+len(text))
		if _, err := f.ReadAt(b, start); err != nil {
			return nil, err
		}
		text = append(b, text...)
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	if len(text) == 0 || n <= 0 {
		return nil, nil
	}
	lines := bytes.Split(text, []byte("\n"))
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return lines, nil
}

// lastNewline is the length of f's whole lines among its first size bytes.
func lastNewline(f io.ReaderAt, size int64) (int64, error) {
	for end := size; end > 0; {
		chunk := min(end, 64<<10)
		b := make([]byte, chunk)
		if _, err := f.ReadAt(b, end-chunk); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			return end - chunk + int64(i) + 1, nil
		}
		end -= chunk
	}
	return 0, nil
}
