// Package logfile keeps the logs of services as plain files of limited size: it
// appends, rotates to one older copy, and reads the last lines (docs/api.md, "Logs and
// events") or pages of all that is kept (page.go). A line of a run log starts with a
// stamp: the time at which the engine saw it, so that a killed server continues exactly
// where it stopped, and its generation. Each file starts with a head, which says how much
// of the log came before, so that a reader finds its place again after a rotation. Readers
// see neither, unless they ask for the stamps. It touches only the files that it is given,
// and does not know whose they are.
package logfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/failpoint"
)

// File is a log being written. Its methods may be called by several goroutines at once.
type File struct {
	mu     sync.Mutex
	f      *os.File
	path   string
	head   head
	size   int64
	empty  int64 // size without lines
	max    int64
	header []byte // written at the head of each file but the first
}

// Create starts a log of lines without stamps at path anew, in a new file: readers of
// the old one see it end. Beyond max bytes the file moves to path.1, replacing it, and a
// new one begins with header.
func Create(path string, max int64, header string) (*File, error) {
	for _, old := range []string{path, path + rotated} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove the old log: %w", err)
		}
	}
	l := &File{path: path, head: newHead(true), max: max, header: []byte(header)}
	if err := l.begin(nil); err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	return l, nil
}

// Continue continues a log that Create began, or creates it. It removes an incomplete last line.
func Continue(path string, max int64, header string) (*File, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return Create(path, max, header)
	}
	l, _, err := Open(path, max)
	if err != nil {
		return nil, err
	}
	l.header = []byte(header)
	return l, nil
}

// begin puts a new file in the log's place, which begins with text.
func (l *File) begin(text []byte) error {
	f, size, err := beginFile(l.path, &l.head, text)
	if err == nil {
		l.f, l.size, l.empty = f, size, size
	}
	return err
}

// Open continues the log at path, or begins a run log. It removes an incomplete last
// line, as a killed server leaves it. The time is that of the last line of a process,
// zero if there is none.
func Open(path string, max int64) (*File, time.Time, error) {
	older, err := lookAt(path + rotated)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("open log: %w", err)
	}
	l := &File{path: path, max: max}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if l.head = newHead(false); older != nil {
			l.head = older.head.next(older.size)
		}
		if err := l.begin(nil); err != nil {
			return nil, time.Time{}, fmt.Errorf("begin log: %w", err)
		}
		return l, older.lastTime(), nil
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("open log: %w", err)
	}
	l.f = f
	last, err := l.mend()
	if err != nil {
		return nil, time.Time{}, errors.Join(fmt.Errorf("open log %s: %w", path, err), f.Close())
	}
	if last.IsZero() {
		last = older.lastTime()
	}
	return l, last, nil
}

// mend removes an incomplete last line and returns the time of the last line of a
// process.
func (l *File) mend() (last time.Time, err error) {
	if l.head, err = readHead(l.f); err != nil {
		return time.Time{}, err
	}
	info, err := l.f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	l.size, err = endOfLines(l.f, l.head.size, info.Size())
	if err == nil && l.size != info.Size() {
		err = l.f.Truncate(l.size)
	}
	if err != nil {
		return time.Time{}, err
	}
	l.empty = l.head.size
	return lastTime(l.f, l.head, l.size)
}

// past is what is known of the rotated copy of a log, nil if there is none.
type past struct {
	head head
	size int64
	last time.Time // of the last line of a process
}

// lastTime returns the time of the last line, zero without a copy.
func (p *past) lastTime() time.Time {
	if p == nil {
		return time.Time{}
	}
	return p.last
}

// lookAt looks at the rotated copy of a log.
func lookAt(path string) (*past, error) {
	f, h, err := openFile(path)
	if f == nil || err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p := &past{head: h, size: info.Size()}
	p.last, err = lastTime(f, h, p.size)
	return p, err
}

// lastTime returns the time of the last line of a process among f's first size bytes,
// zero if there is none.
func lastTime(f io.ReaderAt, h head, size int64) (last time.Time, err error) {
	if h.raw {
		return time.Time{}, nil
	}
	err = linesBack(f, h.size, size, func(_ int64, begins []byte) bool {
		s, _ := cutStamp(begins)
		if s.kind == ofHost || s.kind == ofMark {
			return true
		}
		last = s.at
		return false
	})
	return last, err
}

// Line appends a line that a process of a generation wrote at the given time.
func (l *File) Line(at time.Time, generation int, line []byte) error {
	return l.stamped(stamp{at, ofProcess, generation}, line)
}

// Note appends a line of the host about a process, for every reader.
func (l *File) Note(at time.Time, generation int, text string) error {
	return l.stamped(stamp{at, ofHost, generation}, []byte(text))
}

// Mark appends a line about where a process starts or ends, for readers who ask for the
// stamps.
func (l *File) Mark(at time.Time, generation int, text string) error {
	return l.stamped(stamp{at, ofMark, generation}, []byte(text))
}

func (l *File) stamped(s stamp, line []byte) error {
	b := s.append(make([]byte, 0, longestStamp+len(line)+1))
	_, err := l.Write(append(append(b, line...), '\n'))
	return err
}

// Write appends text as it is; it rotates first if the file would exceed its limit.
func (l *File) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > l.empty && l.size+int64(len(p)) > l.max {
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
	failpoint.Here("log-moved")
	old, was := l.f, l.head
	l.head = l.head.next(l.size)
	if err := l.begin(l.header); err != nil {
		l.head = was
		return fmt.Errorf("rotate log: %w", err)
	}
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

// View says what to read of a log.
type View struct {
	Tail    int  // how many last lines to begin with
	Stamped bool // with the time and generation of each line, and with marks

	// From is where to begin instead, nil for the last lines: after this position, or with
	// the oldest line that is still there.
	From *Position
}

// Tail writes the last lines of the current file of the log at path to w, whatever their
// length and content. A missing log counts as empty.
func Tail(w io.Writer, path string, v View) error {
	f, h, err := openFile(path)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if f == nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	start, err := lastLines(f, h, info.Size(), v)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	return copyLines(w, io.NewSectionReader(f, start, info.Size()-start), &printer{raw: h.raw, stamped: v.Stamped})
}

// copyLines copies what a printer shows of lines, and terminates the last one.
func copyLines(w io.Writer, r io.Reader, p *printer) error {
	in := bufio.NewReaderSize(r, chunk)
	for {
		piece, err := in.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return fmt.Errorf("read log: %w", err)
		}
		if len(piece) > 0 {
			prefix, text, shown := p.print(piece)
			if err := writeShown(w, prefix, text, shown); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return p.end(w)
		}
	}
}

func writeShown(w io.Writer, prefix string, text []byte, shown bool) error {
	if !shown {
		return nil
	}
	if prefix != "" {
		if _, err := io.WriteString(w, prefix); err != nil {
			return err
		}
	}
	_, err := w.Write(text)
	return err
}

// end terminates a line that was not whole.
func (p *printer) end(w io.Writer) error {
	if !p.within || p.hidden {
		return nil
	}
	_, err := w.Write([]byte{'\n'})
	return err
}

// lastLines returns the offset of the last lines that a view shows among f's first size
// bytes.
func lastLines(f io.ReaderAt, h head, size int64, v View) (int64, error) {
	start, left := size, v.Tail
	if left <= 0 {
		return size, nil
	}
	err := linesBack(f, h.size, size, func(at int64, begins []byte) bool {
		start = at
		if h.raw || v.Stamped || !isMark(begins) {
			left--
		}
		return left > 0
	})
	return start, err
}

// endOfLines returns the offset after the last newline between two offsets, or from.
func endOfLines(f io.ReaderAt, from, to int64) (int64, error) {
	buf := make([]byte, min(to-from, chunk))
	for end := to; end > from; {
		b := buf[:min(end-from, chunk)]
		end -= int64(len(b))
		if _, err := f.ReadAt(b, end); err != nil {
			return 0, err
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] == '\n' {
				return end + int64(i) + 1, nil
			}
		}
	}
	return from, nil
}
