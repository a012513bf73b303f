package api

import (
	"archive/tar"
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/berth-host/berth/internal/safetext"
)

// packer writes files that came in JSON to a tar.
type packer struct {
	out *os.File
	buf *bufio.Writer
	sum hash.Hash // of what is written
	tar *tar.Writer
}

// newPacker begins a tar at path. The caller must close it.
func newPacker(path string, room func() error) (*packer, error) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pack the files: %w", err)
	}
	p := &packer{out: out, buf: bufio.NewWriterSize(roomWriter{out, room}, spoolBlock), sum: sha256.New()}
	p.tar = tar.NewWriter(io.MultiWriter(p.buf, p.sum))
	return p, nil
}

// add adds a file; a script that begins with the name of its interpreter becomes
// executable.
func (p *packer) add(file fileEntry) error {
	if strings.HasSuffix(file.Path, "/") || strings.ContainsRune(file.Path, 0) {
		return unprocessable("%s cannot be the path of a file: it ends with a slash or has a NUL character; give each file a path like src/app.js", safetext.Quote(file.Path))
	}
	content, err := file.decode()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: file.Path, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if strings.HasPrefix(string(content[:min(2, len(content))]), "#!") {
		header.Mode = 0o755
	}
	err = p.tar.WriteHeader(header)
	if err != nil && !notWritten(err) {
		return unprocessable("%s cannot be the path of a file; give it another", safetext.Quote(file.Path))
	}
	if err == nil {
		_, err = p.tar.Write(content)
	}
	if err != nil {
		return fmt.Errorf("pack the files: %w", err)
	}
	return nil
}

// decode returns the file's content.
func (f fileEntry) decode() ([]byte, error) {
	switch f.Encoding {
	case "", "utf-8":
		return []byte(f.Content), nil
	case "base64":
		content, err := base64.StdEncoding.DecodeString(string(f.Content))
		if err != nil {
			return nil, invalid("the content of %q is not base64 (%v)", shorten(f.Path), err)
		}
		return content, nil
	}
	return nil, invalid("the encoding of %q must be utf-8 or base64, not %q", shorten(f.Path), shorten(string(f.Encoding)))
}

// end ends the tar and returns its SHA-256.
func (p *packer) end() ([]byte, error) {
	if err := cmp.Or(p.tar.Close(), p.buf.Flush(), p.out.Close()); err != nil {
		return nil, fmt.Errorf("pack the files: %w", err)
	}
	return p.sum.Sum(nil), nil
}

// close gives up what was not ended.
func (p *packer) close() { _ = p.out.Close() }
