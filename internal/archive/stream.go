package archive

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
)

const (
	headerBudget = 4 << 10 // bytes of headers, extended ones included, allowed for each entry that the limits allow
	baseBudget   = 4 << 20 // and to begin with
	maxMembers   = 1 << 16 // gzip streams in one file; bgzip makes one of each 64 KB
	maxTrailer   = 1 << 20 // zeros after the end mark; tar fills up to a record, 10 KB unless told otherwise
	endMark      = 512     // zeros that end a tar at least: GNU tar takes one block, too
)

// openStream looks at the first bytes of r and returns its tar. budget is how many
// bytes may be read beyond the counted sizes of files.
func openStream(ctx context.Context, r io.Reader, budget int64) (*meter, error) {
	br := bufio.NewReaderSize(&uploadReader{ctx: ctx, r: r}, 64<<10)
	head, err := peek(br)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, gzipMagic) {
		if br, err = openGzip(br); err != nil {
			return nil, err
		}
	}
	return &meter{ctx: ctx, r: br, left: budget}, nil
}

// peek returns the first block of br and refuses what is certainly not a tar.
func peek(br *bufio.Reader) ([]byte, error) {
	head, err := br.Peek(512)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(head) == 0 {
		return nil, &foreignError{"the upload is empty (0 bytes)"}
	}
	if bytes.HasPrefix(head, gzipMagic) {
		return head, nil
	}
	if kind := foreignKind(head); kind != "" {
		return nil, &foreignError{"this is " + kind + ", not a tar or tar.gz"}
	}
	if len(head) < 512 {
		return nil, errNotTar
	}
	return head, nil
}

func openGzip(br *bufio.Reader) (*bufio.Reader, error) {
	z, err := gzip.NewReader(br)
	if err != nil {
		return nil, gzipFault(err)
	}
	z.Multistream(false)
	tr := bufio.NewReaderSize(&gzipMembers{br: br, z: z}, 32<<10)
	head, err := peek(tr)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, gzipMagic) {
		return nil, &foreignError{"this is compressed twice with gzip"}
	}
	return tr, nil
}

var gzipMagic = []byte{0x1f, 0x8b}

// foreignMagic holds the first bytes of formats that people send instead of a tar.
var foreignMagic = []struct{ magic, kind string }{
	{"PK\x03\x04", "a zip file"},
	{"PK\x05\x06", "an empty zip file"},
	{"PK\x07\x08", "a zip file"},
	{"\xfd7zXZ\x00", "compressed with xz"},
	{"BZh", "compressed with bzip2"},
	{"\x28\xb5\x2f\xfd", "compressed with zstd"},
	{"\x04\x22\x4d\x18", "compressed with lz4"},
	{"\x1f\x9d", "compressed with compress"},
	{"7z\xbc\xaf\x27\x1c", "a 7z file"},
	{"Rar!\x1a\x07", "a rar file"},
	{"%PDF-", "a PDF"},
}

func foreignKind(head []byte) string {
	for _, m := range foreignMagic {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return m.kind
		}
	}
	text := strings.ToLower(string(bytes.TrimLeft(head, "\ufeff \t\r\n")))
	if strings.HasPrefix(text, "<!doctype html") || strings.HasPrefix(text, "<html") {
		return "an HTML page"
	}
	return ""
}

// uploadError is an error from the reader of an upload or from its context.
type uploadError struct{ err error }

func (e *uploadError) Error() string { return e.err.Error() }
func (e *uploadError) Unwrap() error { return e.err }

// streamFault is what is wrong with the bytes; it continues a sentence that begins "the
// archive".
type streamFault struct{ what string }

func (e *streamFault) Error() string { return "archive " + e.what }

// foreignError is what is wrong with an archive that was made in another way than explain
// says then.
type foreignError struct{ what string }

func (e *foreignError) Error() string { return e.what }

var errNotTar = &foreignError{"this is not a tar archive"}

// uploadReader distinguishes errors of the upload from errors in what was uploaded.
type uploadReader struct {
	ctx context.Context
	r   io.Reader
}

func (s *uploadReader) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, &uploadError{context.Cause(s.ctx)}
	}
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		err = &uploadError{err}
	}
	return n, err
}

// gzipMembers reads consecutive gzip streams as one, and checks that nothing else
// follows. The library's own way takes a stream cut short in its header for the end.
type gzipMembers struct {
	br  *bufio.Reader
	z   *gzip.Reader
	n   int
	err error
}

func (g *gzipMembers) Read(p []byte) (int, error) {
	for g.err == nil {
		n, err := g.z.Read(p)
		switch {
		case n > 0:
			return n, nil // an error comes back with the next call
		case err == io.EOF:
			g.err = g.next()
		case err != nil:
			g.err = gzipFault(err)
		}
	}
	return 0, g.err
}

// next advances to the following stream; it returns io.EOF if there is none.
func (g *gzipMembers) next() error {
	if _, err := g.br.Peek(1); err != nil {
		return err
	}
	if g.n++; g.n >= maxMembers {
		return &streamFault{"consists of more gzip streams than any tool writes"}
	}
	if err := g.z.Reset(g.br); err != nil {
		if upload := (*uploadError)(nil); errors.As(err, &upload) {
			return err
		}
		return &streamFault{"has other data after the end of its gzip stream"}
	}
	g.z.Multistream(false)
	return nil
}

// gzipFault turns an error of the library into one that explain can word.
func gzipFault(err error) error {
	var upload *uploadError
	switch {
	case errors.As(err, &upload):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	case errors.Is(err, gzip.ErrChecksum):
		return &streamFault{"was damaged in transit (its gzip checksum is wrong)"}
	}
	return &streamFault{"is damaged (its gzip data is not valid)"}
}

// meter is below the tar reader. It limits headers, since an archive can have any number
// of them before an entry, and notices the end mark.
type meter struct {
	ctx   context.Context
	r     io.Reader
	left  int64 // bytes that may still be read while free is off
	free  bool  // reading a file whose size was charged
	zeros int   // zero bytes read last, outside of files
}

func (m *meter) Read(p []byte) (int, error) {
	if err := m.stopped(); err != nil {
		return 0, err
	}
	if m.left <= 0 && !m.free {
		return 0, &streamFault{"has far more headers than files"}
	}
	n, err := m.r.Read(p)
	if m.free {
		m.zeros = 0 // a file's own zeros end nothing
		return n, err
	}
	m.left -= int64(n)
	m.countZeros(p[:n])
	return n, err
}

// stopped returns why ctx is done, nil if it is not.
func (m *meter) stopped() error {
	if m.ctx.Err() == nil {
		return nil
	}
	return &uploadError{context.Cause(m.ctx)}
}

func (m *meter) countZeros(p []byte) {
	n := len(p)
	for n > 0 && p[n-1] == 0 {
		n--
	}
	if n > 0 {
		m.zeros = 0
	}
	m.zeros += len(p) - n
}

// finish reads what follows the tar's end: it must be zeros, not too many, and the end
// mark must be there.
func (m *meter) finish() error {
	if m.zeros < endMark {
		return io.ErrUnexpectedEOF
	}
	buf := make([]byte, 32<<10)
	m.left = maxTrailer
	for {
		n, err := m.Read(buf)
		if m.zeros < n {
			return &streamFault{"continues after its end mark; send one tar, not several one after the other,"}
		}
		if err == io.EOF {
			return nil
		}
		if m.left <= 0 {
			return &streamFault{"has over 1 MiB of zeros after its end mark"}
		}
		if err != nil {
			return err
		}
	}
}
