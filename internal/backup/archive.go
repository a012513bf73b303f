package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
)

// Archive writes a backup as a tar.
type Archive struct {
	manifest Manifest
	out      io.Writer
	sum      hash.Hash // of all that went out
	tar      *tar.Writer
}

// NewArchive returns a writer of a backup to w. The manifest has no entries yet.
func NewArchive(w io.Writer, m Manifest) *Archive {
	a := &Archive{manifest: m, out: w, sum: sha256.New()}
	a.tar = tar.NewWriter(io.MultiWriter(w, a.sum))
	return a
}

// Add writes an entry. Of a file, content has exactly Size bytes; moved, which may be nil, is
// asked once they are written whether something wrote to it while it was copied.
func (a *Archive) Add(e Entry, content io.Reader, moved func() bool) error {
	sum, err := a.add(e, content)
	if err != nil {
		return fmt.Errorf("write %s to the backup: %w", e.Name, err)
	}
	e.SHA256 = sum
	a.manifest.Entries = append(a.manifest.Entries, e)
	if moved != nil && moved() {
		a.manifest.Moving = append(a.manifest.Moving, e.Name)
	}
	return nil
}

func (a *Archive) add(e Entry, content io.Reader) (string, error) {
	if err := e.check(); err != nil {
		return "", err
	}
	if err := a.tar.WriteHeader(header(e)); err != nil || !e.Mode.IsRegular() {
		return "", err
	}
	sum := sha256.New()
	_, err := io.CopyN(io.MultiWriter(a.tar, sum), content, e.Size)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// Miss notes what the backup lacks, and why.
func (a *Archive) Miss(what string) { a.manifest.Missing = append(a.manifest.Missing, what) }

// header returns the header of an entry in a tar.
func header(e Entry) *tar.Header {
	h := &tar.Header{Name: e.Name, Linkname: e.Link, Mode: int64(e.Mode.Perm()), ModTime: e.ModTime, Size: e.Size, Format: tar.FormatPAX}
	switch {
	case e.Mode.IsDir():
		h.Typeflag = tar.TypeDir
	case e.Mode.IsRegular():
		h.Typeflag = tar.TypeReg
	default:
		h.Typeflag = tar.TypeSymlink
	}
	return h
}

// Close writes the manifest and the sum. An Archive that was not closed is refused by Open.
func (a *Archive) Close() error {
	text, err := a.manifest.encode()
	if err != nil {
		return err
	}
	err = a.tar.WriteHeader(&tar.Header{Name: manifestName, Mode: 0o600, Size: int64(len(text)), ModTime: a.manifest.At, Format: tar.FormatPAX})
	if err == nil {
		_, err = a.tar.Write(text)
	}
	if err == nil {
		err = a.tar.Flush()
	}
	if err == nil {
		_, err = a.out.Write(tail(a.sum))
	}
	if err != nil {
		return fmt.Errorf("end the backup: %w", err)
	}
	return nil
}

// tailSize is the size of what tail returns: a header, a block with the sum, and the end of
// the tar.
const tailSize = 4 * 512

// tail returns the end of a tar, with the sum of all that is before it.
func tail(sum hash.Hash) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	text := hex.EncodeToString(sum.Sum(nil))
	// Nothing of this can fail in memory.
	_ = w.WriteHeader(&tar.Header{Name: sumName, Mode: 0o600, Size: int64(len(text)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR})
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return out.Bytes()
}

// tailed hashes all that is written to it but the last tailSize bytes, which it holds.
type tailed struct {
	sum  hash.Hash
	last []byte
}

func (t *tailed) Write(p []byte) (int, error) {
	t.last = append(t.last, p...)
	if more := len(t.last) - tailSize; more > 0 {
		t.sum.Write(t.last[:more])
		t.last = append(t.last[:0], t.last[more:]...)
	}
	return len(p), nil
}

// whole reports whether what was written is a backup from its beginning to its end.
func (t *tailed) whole() bool { return bytes.Equal(t.last, tail(t.sum)) }

// Copy copies a backup from r, a tar that is not encrypted, to w, and returns its manifest. The
// error is nil if all of it was copied, and is as it was written.
func Copy(w io.Writer, r io.Reader) (*Manifest, error) {
	return readArchive(io.TeeReader(r, w), ignore)
}

// readArchive reads a backup from a tar to its end, gives each of its entries to each, and
// returns its manifest. When the error is nil, all sums are as they were written. Until it has
// returned, that is not known.
func readArchive(r io.Reader, each func(Entry, io.Reader) error) (*Manifest, error) {
	seen := &tailed{sum: sha256.New()}
	r = io.TeeReader(r, seen)
	m, err := readEntries(tar.NewReader(r), each)
	if err == nil || errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		_, rest := io.Copy(io.Discard, r)
		switch {
		case rest != nil:
			err = rest
		case !seen.whole():
			return nil, errChanged
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	return m, nil
}

func readEntries(in *tar.Reader, each func(Entry, io.Reader) error) (*Manifest, error) {
	var read []Entry
	for {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errChanged // there is a manifest before the end of each
		case err != nil:
			return nil, err
		case h.Name == manifestName:
			return endEntries(in, read)
		}
		e, err := readEntry(h, in, each)
		if err != nil {
			return nil, err
		}
		read = append(read, e)
	}
}

// readEntry gives an entry to each, and returns it with the sum of its content.
func readEntry(h *tar.Header, content io.Reader, each func(Entry, io.Reader) error) (Entry, error) {
	e := Entry{Name: h.Name, Mode: h.FileInfo().Mode(), ModTime: h.ModTime, Size: h.Size, Link: h.Linkname}
	if err := e.check(); err != nil {
		return e, err
	}
	if !e.Mode.IsRegular() {
		return e, each(e, nil)
	}
	sum := sha256.New()
	content = io.TeeReader(content, sum)
	err := each(e, content)
	if err == nil {
		_, err = io.Copy(io.Discard, content)
	}
	e.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return e, err
}

// endEntries reads the manifest and the sum behind it, and compares what was read with it.
func endEntries(in *tar.Reader, read []Entry) (*Manifest, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	m, err := decode(text)
	if err != nil {
		return nil, err
	}
	if err := m.lists(read); err != nil {
		return nil, err
	}
	h, err := in.Next()
	switch {
	case errors.Is(err, io.EOF), err == nil && h.Name != sumName:
		return nil, errChanged
	case err != nil:
		return nil, err
	}
	return m, nil
}

// lists returns an error unless the entries are those of the manifest.
func (m *Manifest) lists(read []Entry) error {
	if len(read) != len(m.Entries) {
		return errListed
	}
	for i, e := range m.Entries {
		if !e.same(read[i]) {
			return fmt.Errorf("%w: %s", errListed, e.Name)
		}
	}
	return nil
}

// ignore is for a reading that checks only.
func ignore(Entry, io.Reader) error { return nil }
