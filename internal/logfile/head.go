package logfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
)

// Position is a place in a log that stays the same when the log is rotated. The zero
// Position is before everything.
type Position struct {
	Log uint32 // the log, which is another one each time that it is begun anew
	At  int64  // bytes of it before the place
}

// String returns the position in a short form without spaces.
func (p Position) String() string {
	return strconv.FormatUint(uint64(p.Log), 36) + "." + strconv.FormatInt(p.At, 36)
}

// ParsePosition reads what String returned.
func ParsePosition(text string) (Position, error) {
	name, at, _ := strings.Cut(text, ".")
	log, err := strconv.ParseUint(name, 36, 32)
	p := Position{Log: uint32(log)}
	p.At, err = atLeast0(at, err)
	if err != nil {
		return Position{}, fmt.Errorf("%q is not a position in a log", text)
	}
	return p, nil
}

func atLeast0(text string, err error) (int64, error) {
	n, other := strconv.ParseUint(text, 36, 63)
	return int64(n), cmp.Or(err, other)
}

// head is the first line of a log's file, which readers do not see. The zero head is that
// of a file of a version without heads.
type head struct {
	log  uint32
	base int64 // bytes of the log before this file
	raw  bool  // the lines are without stamps
	size int64 // of the head, in bytes
}

const (
	headWord    = "#log"
	longestHead = 64
)

// newHead returns the head of a log that begins.
func newHead(raw bool) head { return head{log: rand.Uint32() | 1, raw: raw} }

// next returns the head of the file that follows this one, which has size bytes.
func (h head) next(size int64) head { return head{log: h.log, base: h.base + size, raw: h.raw} }

// line returns the head as it is written.
func (h head) line() []byte {
	return fmt.Appendf(nil, "%s %d %d %t\n", headWord, h.log, h.base, h.raw)
}

// readHead returns the head of a file.
func readHead(f io.ReaderAt) (head, error) {
	b := make([]byte, longestHead)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return head{}, err
	}
	line, _, whole := bytes.Cut(b[:n], []byte("\n"))
	h := head{size: int64(len(line)) + 1}
	var word string
	if _, err := fmt.Sscanf(string(line), "%s %d %d %t", &word, &h.log, &h.base, &h.raw); err != nil || word != headWord || !whole {
		return head{}, nil
	}
	return h, nil
}

// openFile opens a file of a log and reads its head. The file is nil if there is none.
func openFile(path string) (*os.File, head, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, head{}, nil
	}
	if err != nil {
		return nil, head{}, err
	}
	h, err := readHead(f)
	if err != nil {
		return nil, head{}, errors.Join(err, f.Close())
	}
	return f, h, nil
}

// beginFile puts a new file at path that begins with a head and a text, in one step, so
// that no reader finds it without. It returns the file, open for appending, and its size.
func beginFile(path string, h *head, text []byte) (*os.File, int64, error) {
	f, err := os.OpenFile(path+begun, os.O_CREATE|os.O_RDWR|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	line := h.line()
	h.size = int64(len(line))
	n, err := f.Write(append(line, text...))
	if err == nil {
		err = os.Rename(path+begun, path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close(), os.Remove(path+begun))
	}
	return f, int64(n), nil
}

// Names of a log's other files, behind that of its current one.
const (
	rotated = ".1"   // the copy before
	begun   = ".new" // one that is not in its place yet
)
