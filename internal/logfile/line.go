package logfile

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"
)

// A line of a run log begins with a stamp: the time, the kind of the line, and the
// generation with a space. The kind stands at a fixed place.
const (
	ofProcess = '+' // written by a process
	ofHost    = '=' // written by the host, for every reader
	ofMark    = '!' // written by the host where a process starts or ends, for stamped views
	unmarked  = ' ' // of a version that did not keep generations; nothing follows
)

// timeLayout has a fixed width.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

// shownTime is how a stamped view shows a time, in UTC.
const shownTime = "2006-01-02T15:04:05.000Z"

// stamp is what is known of a line besides its text. A line without a stamp has the kind
// 0.
type stamp struct {
	at         time.Time
	kind       byte
	generation int // 0 if it is not known
}

// append appends the stamp as it stands in a file.
func (s stamp) append(b []byte) []byte {
	b = s.at.UTC().AppendFormat(b, timeLayout)
	b = append(b, s.kind)
	b = strconv.AppendInt(b, int64(s.generation), 10)
	return append(b, ' ')
}

// String returns the stamp as a stamped view shows it.
func (s stamp) String() string {
	at, generation := "-", "-"
	if s.kind != 0 {
		at = s.at.Format(shownTime)
	}
	if s.generation > 0 {
		generation = strconv.Itoa(s.generation)
	}
	return fmt.Sprintf("%s gen %s ", at, generation)
}

// longestStamp is how many bytes of a line its stamp takes at most.
const longestStamp = len(timeLayout) + 21

// cutStamp splits a line into its stamp and its text.
func cutStamp(line []byte) (stamp, []byte) {
	if len(line) <= len(timeLayout) {
		return stamp{}, line
	}
	s, rest := stamp{kind: line[len(timeLayout)]}, line[len(timeLayout)+1:]
	var err error
	if s.at, err = time.Parse(timeLayout, string(line[:len(timeLayout)])); err != nil {
		return stamp{}, line
	}
	switch s.kind {
	case unmarked:
		return s, rest
	case ofProcess, ofHost, ofMark:
		end := bytes.IndexByte(rest[:min(len(rest), longestStamp-len(timeLayout))], ' ')
		if s.generation, err = strconv.Atoi(string(rest[:max(end, 0)])); err == nil {
			return s, rest[end+1:]
		}
	}
	return stamp{}, line
}

// isMark reports whether a line that begins with these bytes is a mark.
func isMark(begins []byte) bool {
	if len(begins) <= len(timeLayout) || begins[len(timeLayout)] != ofMark {
		return false
	}
	s, _ := cutStamp(begins)
	return s.kind == ofMark
}

// printer turns the pieces of a log's lines into what a view shows.
type printer struct {
	raw     bool // the lines are without stamps
	stamped bool // the view is
	within  bool // the next piece continues a line
	hidden  bool // that line is not shown
}

// print returns what to show of the next piece of a log: the prefix of a line that begins
// with the piece, and the text. It returns shown as false for a piece to leave out.
func (p *printer) print(piece []byte) (prefix string, text []byte, shown bool) {
	begins := !p.within
	p.within = !bytes.HasSuffix(piece, []byte("\n"))
	if !begins {
		return "", piece, !p.hidden
	}
	if p.hidden = false; p.raw {
		return "", piece, true
	}
	s, text := cutStamp(piece)
	p.hidden = s.kind == ofMark && !p.stamped
	if p.stamped {
		prefix = s.String()
	}
	return prefix, text, !p.hidden
}

// chunk is how many bytes of a log are in memory at once.
const chunk = 64 << 10

// linesBack calls visit with the offset and the first bytes of each line between two
// offsets of a file, beginning with the last line, until visit returns false.
func linesBack(f io.ReaderAt, from, to int64, visit func(at int64, begins []byte) bool) error {
	buf, start := make([]byte, min(to-from, chunk)), make([]byte, longestStamp)
	for end := to; end > from; {
		b := buf[:min(end-from, chunk)]
		end -= int64(len(b))
		if _, err := f.ReadAt(b, end); err != nil {
			return err
		}
		for i := bytes.LastIndexByte(b, '\n'); i >= 0; i = bytes.LastIndexByte(b[:i], '\n') {
			begins := b[i+1:]
			if at := end + int64(i) + 1; at == to {
				continue
			} else if len(begins) < longestStamp {
				n, err := f.ReadAt(start[:min(int64(longestStamp), to-at)], at)
				if err != nil {
					return err
				}
				begins = start[:n]
			}
			if !visit(end+int64(i)+1, begins) {
				return nil
			}
		}
	}
	if from == to {
		return nil
	}
	n, err := f.ReadAt(start[:min(int64(longestStamp), to-from)], from)
	if err == nil {
		visit(from, start[:n])
	}
	return err
}
