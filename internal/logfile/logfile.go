// Package logfile keeps the logs of services as plain files of limited size: it
// appends, rotates to one older copy, and reads the last lines (docs/api.md, "Logs and
// events"). A line of a process starts with the time at which the engine saw it, so
// that a killed server continues exactly where it stopped; readers do not see the time.
// It touches only the files that it is given, and does not know whose they are.
package logfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// File is a log being written. Its methods may be called by several goroutines at once.
type File struct {
	mu     sync.Mutex
	f      *os.File
	path   string
	size   int64
	max    int64
	header []byte // written again at the head of each new file
}

// Create starts the log at path anew, in a new file: readers of the old one see it end.
// Beyond max bytes the file moves to path.1, replacing it, and a new one begins with
// header.
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

// Open continues the log at path, or begins one. It removes an incomplete last line, as
// a killed server leaves it. The time is that of the last line, zero if there is none.
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

// mend removes an incomplete last line and returns the size and the time of the last
// complete one.
func mend(f *os.File) (int64, time.Time, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, time.Time{}, err
	}
	end, err := behindNewline(f, info.Size(), 1)
	if err != nil {
		return 0, time.Time{}, err
	}
	if end != info.Size() {
		if err := f.Truncate(end); err != nil {
			return 0, time.Time{}, err
		}
	}
	at, err := timeOfLast(f, end)
	return end, at, err
}

// lastTime returns the time of the last line of the file at path, zero if it cannot be
// read.
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
	at, _ := timeOfLast(f, info.Size()) // zero with an error
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

// timeLayout has a fixed width, so that a line's time can be removed by length.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

// Write appends text as it is; it rotates first if the file would exceed its limit.
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

// rotate moves the file away and begins a new one. It can be called again after a
// failure, when the file may already have moved.
func (l *File) rotate() error {
	if err := os.Rename(l.path, l.path+rotated); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rotate log: %w", err)
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	n, err := f.Write(l.header)
	if err != nil {
		return errors.Join(fmt.Errorf("rotate log: %w", err), f.Close(), os.Remove(l.path))
	}
	old := l.f
	l.f, l.size = f, int64(n)
	if err := old.Close(); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	return nil
}

// Close closes the file and keeps its content.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}

// Tail writes the last n lines of the log at path to w, without the times of a
// process's lines, whatever their length and content. A missing log counts as empty.
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
	start, err := lastLines(f, info.Size(), n)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	return copyLines(w, io.NewSectionReader(f, start, info.Size()-start))
}

// copyLines copies lines without their times, and terminates the last one.
func copyLines(w io.Writer, r io.Reader) error {
	in := bufio.NewReaderSize(r, chunk)
	for begins := true; ; {
		piece, err := in.ReadSlice('\n')
		if err == io.EOF && begins && len(piece) == 0 {
			return nil
		}
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return fmt.Errorf("read log: %w", err)
		}
		if begins {
			_, piece = cutTime(piece)
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
		if err == io.EOF {
			_, err := w.Write([]byte{'\n'})
			return err
		}
		begins = err == nil
	}
}

// cutTime splits a process's line into its time and its text; it returns a line without
// a time whole.
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

// timeOfLast returns the time of the last line among f's first size bytes, zero if
// there is none.
func timeOfLast(f io.ReaderAt, size int64) (time.Time, error) {
	start, err := lastLines(f, size, 1)
	if err != nil {
		return time.Time{}, err
	}
	line := make([]byte, min(size-start, int64(len(timeLayout)+1)))
	if _, err := f.ReadAt(line, start); err != nil {
		return time.Time{}, err
	}
	at, _ := cutTime(line)
	return at, nil
}

// lastLines returns the offset of the last n lines among f's first size bytes.
func lastLines(f io.ReaderAt, size int64, n int) (int64, error) {
	if n <= 0 || size == 0 {
		return size, nil
	}
	return behindNewline(f, size-1, n) // the last line's own end is not counted
}

// chunk is how many bytes of a log are in memory at once.
const chunk = 64 << 10

// behindNewline returns the offset after the nth newline from the end among f's first
// size bytes, 0 if there are not so many.
func behindNewline(f io.ReaderAt, size int64, n int) (int64, error) {
	buf := make([]byte, min(size, chunk))
	for end := size; end > 0; {
		b := buf[:min(end, chunk)]
		end -= int64(len(b))
		if _, err := f.ReadAt(b, end); err != nil {
			return 0, err
		}
		for i := bytes.LastIndexByte(b, '\n'); i >= 0; i = bytes.LastIndexByte(b[:i], '\n') {
			if n--; n == 0 {
				return end + int64(i) + 1, nil
			}
		}
	}
	return 0, nil
}
