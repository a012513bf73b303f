package source

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"

	"github.com/berth-host/berth/internal/archive"
)

// Pack writes the tree as a tar.gz. The caller makes sure that the tree stays: Overlay
// without changes makes one that nobody else removes.
func (s *Source) Pack(ctx context.Context, w io.Writer) error {
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	out := tar.NewWriter(zip)
	err = archive.WriteTar(ctx, out, s.Tree(), "", 0, 0)
	return errors.Join(err, out.Close(), zip.Close())
}

// textSample is how much of a file IsText reads.
const textSample = 64 << 10

// IsText reports whether a file begins as text in UTF-8. It leaves the file at its
// beginning.
func IsText(f io.ReadSeeker) (bool, error) {
	sample, err := io.ReadAll(io.LimitReader(f, textSample))
	if err != nil {
		return false, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	return isText(sample), nil
}

// isText reports whether a sample is text in UTF-8, whose last character may be
// cut.
func isText(sample []byte) bool {
	for len(sample) > 0 {
		r, n := utf8.DecodeRune(sample)
		switch {
		case r == utf8.RuneError && n == 1:
			return len(sample) < utf8.UTFMax && !utf8.FullRune(sample)
		case r < ' ' && !strings.ContainsRune("\n\r\t\f\x1b", r):
			return false
		}
		sample = sample[n:]
	}
	return true
}
