package logfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// Query says which lines to read of all that is kept of a log: of its current file and of
// the rotated copy.
type Query struct {
	Lines  int                    // how many at most
	Before *Position              // the last ones before this place; nil for the last of all
	After  *Position              // instead, the first ones after this place
	Match  func(text string) bool // only those that match; nil for all
	Whole  bool                   // without a last line that is not complete, as a Follower leaves it out
}

// Page is what a Query finds, the oldest line first. It covers the log from From to End:
// every line in between that matches is in Lines.
type Page struct {
	Lines []Line
	From  Position
	End   Position
	Older bool // there is more before From
	Newer bool // there is more after End
	Lost  bool // the place that was asked for is no longer kept
}

// Limits of one Read, in bytes: of the log that it reads, and of the text that it returns.
// Beyond them a Page covers less of the log.
const (
	mostRead = 32 << 20
	mostText = 256 << 10
)

// Read returns lines of the log at path. A line longer than readAtOnce counts as several
// lines, each of which is matched alone: to look over their edges would take more memory
// than one piece, and programs rarely write such a line. A missing log counts as empty.
func Read(path string, q Query) (Page, error) {
	k, err := openKept(path)
	if err != nil {
		return Page{}, fmt.Errorf("read log: %w", err)
	}
	defer k.close()
	if len(k.spans) == 0 {
		return Page{}, nil
	}
	if q.Whole {
		err = k.dropUnfinished()
	}
	var p Page
	if err == nil && q.After != nil {
		p, err = k.readAfter(q)
	} else if err == nil {
		p, err = k.readBefore(q)
	}
	if err != nil {
		return Page{}, fmt.Errorf("read log: %w", err)
	}
	return p, nil
}

// Copy writes all that is kept of the log at path to w, and terminates the last line of
// each file. A missing log counts as empty.
func Copy(w io.Writer, path string) error {
	k, err := openKept(path)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer k.close()
	for _, s := range k.spans {
		lines := io.NewSectionReader(s.f, s.head.size, s.size-s.head.size)
		if err := copyLines(w, lines, &printer{raw: s.head.raw}); err != nil {
			return err
		}
	}
	return nil
}

// kept is the files of one log that are there, the older first. Each begins where the one
// before it ends.
type kept struct {
	spans []span
	in    *bufio.Reader // that all of them are read with
}

// span is one file of a log, of which size bytes are read.
type span struct {
	f    *os.File
	head head
	size int64
}

// tries is how often the files are opened if the log is rotated meanwhile.
const tries = 3

// openKept opens the files of a log. A rotated copy that does not belong to the current
// file, or of which an earlier version did not note so, is left out.
func openKept(path string) (*kept, error) {
	k := &kept{in: bufio.NewReaderSize(nil, readAtOnce)}
	for range tries {
		k.close()
		if err := k.open(path+rotated, path); err != nil {
			k.close()
			return nil, err
		}
		if k.joined() {
			return k, nil
		}
	}
	_ = k.spans[0].f.Close() // it was only looked at
	k.spans = k.spans[1:]
	return k, nil
}

func (k *kept) open(paths ...string) error {
	for _, path := range paths {
		f, h, err := openFile(path)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		k.spans = append(k.spans, span{f: f, head: h})
		info, err := f.Stat()
		if err != nil {
			return err
		}
		k.last().size = info.Size()
	}
	return nil
}

// joined reports whether the second file, if there are two, goes on where the first ends.
func (k *kept) joined() bool {
	if len(k.spans) < 2 {
		return true
	}
	older, current := k.spans[0], k.spans[1]
	return older.head.log == current.head.log && older.end() == current.head.base
}

// close closes the files, which were only read.
func (k *kept) close() {
	for _, s := range k.spans {
		_ = s.f.Close()
	}
	k.spans = nil
}

func (k *kept) last() *span { return &k.spans[len(k.spans)-1] }

// dropUnfinished leaves out a last line that is not complete.
func (k *kept) dropUnfinished() (err error) {
	s := k.last()
	s.size, err = endOfLines(s.f, s.head.size, s.size)
	return err
}

// start and end are where the lines of the log begin and end.
func (k *kept) start() int64 { return k.spans[0].head.base + k.spans[0].head.size }
func (k *kept) end() int64   { return k.last().end() }
func (s span) end() int64    { return s.head.base + s.size }

// position returns the place after so many bytes of the log.
func (k *kept) position(at int64) Position { return Position{k.last().head.log, at} }

// has reports whether what comes after a place is kept, or will come.
func (k *kept) has(p Position) bool { return p.Log == k.last().head.log && p.At >= k.start() }

// readBefore reads the log block by block, from its end backwards.
func (k *kept) readBefore(q Query) (Page, error) {
	end := k.end()
	if q.Before != nil {
		if !k.has(*q.Before) {
			return Page{Lost: true}, nil
		}
		end = min(q.Before.At, end)
	}
	at, found := end, newest{most: q.Lines}
	for at > k.start() && at > end-mostRead && !found.full {
		block := newest{most: q.Lines}
		var err error
		if at, err = k.readBlock(at, q.Match, &block); err != nil {
			return Page{}, err
		}
		for _, line := range found.lines {
			block.add(line)
		}
		found = block
	}
	p := Page{Lines: found.lines, From: k.position(max(at, k.start())), End: k.position(end), Older: at > k.start(), Newer: end < k.end()}
	if found.full {
		p.From, p.Older = found.from, true
	}
	return p, nil
}

// readBlock adds the lines that match of the last readAtOnce bytes before a place, and
// returns where those bytes begin.
func (k *kept) readBlock(end int64, match func(string) bool, found *newest) (begin int64, err error) {
	s := k.spans[0]
	if len(k.spans) > 1 && end > k.spans[1].head.base+k.spans[1].head.size {
		s = k.spans[1]
	}
	to := min(end-s.head.base, s.size)
	from, err := endOfLines(s.f, s.head.size, max(to-readAtOnce, s.head.size))
	if err != nil {
		return 0, err
	}
	err = k.scan(s, from, to, func(line Line) bool {
		if match == nil || match(line.Text) {
			found.add(line)
		}
		return true
	})
	if from == s.head.size {
		return s.head.base, err // the end of the file before
	}
	return s.head.base + from, err
}

// newest keeps the last of the lines that are added.
type newest struct {
	most  int // how many
	lines []Line
	bytes int
	full  bool     // earlier ones were left out
	from  Position // where those end
}

func (n *newest) add(line Line) {
	n.lines = append(n.lines, line)
	n.bytes += len(line.Text)
	for len(n.lines) > n.most || n.bytes > mostText && len(n.lines) > 1 {
		n.bytes -= len(n.lines[0].Text)
		n.full, n.from = true, n.lines[0].End
		n.lines = n.lines[1:]
	}
}

// readAfter reads the log from a place on. If that is no longer kept, it begins with the
// oldest line.
func (k *kept) readAfter(q Query) (Page, error) {
	p := Page{From: k.position(min(q.After.At, k.end()))}
	if !k.has(*q.After) {
		p.From, p.Lost = k.position(k.start()), *q.After != Position{}
	}
	p.End = p.From
	text := 0
	full := func() bool {
		return len(p.Lines) >= q.Lines || text >= mostText || p.End.At-p.From.At >= mostRead
	}
	for _, s := range k.spans {
		if full() || p.End.At >= s.end() {
			continue
		}
		err := k.scan(s, max(p.End.At-s.head.base, s.head.size), s.size, func(line Line) bool {
			p.End = line.End
			if q.Match == nil || q.Match(line.Text) {
				p.Lines = append(p.Lines, line)
				text += len(line.Text)
			}
			return !full()
		})
		if err != nil {
			return Page{}, err
		}
		if !full() {
			p.End = k.position(s.end()) // after lines that are not shown
		}
	}
	p.Older, p.Newer = p.From.At > k.start(), p.End.At < k.end()
	return p, nil
}

// scan calls visit with the lines that a reader sees between two offsets of a file, until
// visit returns false.
func (k *kept) scan(s span, from, to int64, visit func(Line) bool) error {
	within, err := withinLine(s.f, s.head, from)
	if err != nil {
		return err
	}
	shows := printer{raw: s.head.raw, within: within}
	k.in.Reset(io.NewSectionReader(s.f, from, to-from))
	for at := s.head.base + from; ; {
		piece, err := k.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		at += int64(len(piece))
		if len(piece) > 0 {
			_, text, shown := shows.print(piece)
			if shown && !visit(Line{string(bytes.TrimSuffix(text, []byte("\n"))), k.position(at)}) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
	}
}

// withinLine reports whether an offset of a file is within one of its lines.
func withinLine(f io.ReaderAt, h head, at int64) (bool, error) {
	if at <= h.size {
		return false, nil
	}
	before := make([]byte, 1)
	_, err := f.ReadAt(before, at-1)
	return before[0] != '\n', err
}
