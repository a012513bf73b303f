package site

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/klauspost/compress/gzip"
)

const (
	// maxResident is the largest file kept in memory; larger ones go from the file to
	// the connection inside the kernel. Opening, sendfile and closing cost more than a
	// copy up to about this size.
	maxResident = 128 << 10

	// maxHashed is the largest file whose entity tag is a hash of its content: about
	// the size that is read and hashed within ten milliseconds.
	maxHashed = 4 << 20

	// Files in this range are compressed if a client accepts gzip. A smaller one fits a
	// packet as it is; a larger one would keep a core busy for longer than its transfer
	// takes.
	minPacked = 1 << 10
	maxPacked = 8 << 20

	packLevel = 6
)

var errChanged = errors.New("the file changed after it was published")

// blob is a sequence of bytes that can be sent: a file, or, if it is packed, the gzip
// form of one, which exists in memory only.
type blob struct {
	path    string
	size    int64
	changed time.Time
	inode   inode
	packed  *blob // what these bytes are the gzip form of; nil for a file

	loading sync.Mutex // one goroutine reads, hashes or compresses
	tag     atomic.Pointer[tag]
	body    atomic.Pointer[body]
}

// tag is the entity tag by which a client asks whether a blob is unchanged.
type tag struct {
	etag         string // strong, with its quotes
	etagHeader   []string
	lastModified []string
}

// body is a blob's bytes in memory.
type body struct {
	bytes  []byte
	length []string // Content-Length
	used   atomic.Bool
}

// streams reports whether b is sent from its file, as it is too large for memory.
func (b *blob) streams() bool { return b.packed == nil && b.size > maxResident }

// tagOf returns b's entity tag, computed at the first request for it: hashing all files
// at Open would delay a large site's going live.
func (s *Site) tagOf(b *blob) (*tag, error) {
	if t := b.tag.Load(); t != nil {
		return t, nil
	}
	if b.packed != nil {
		plain, err := s.tagOf(b.packed)
		if err != nil {
			return nil, err
		}
		return b.keepTag(plain.etag[:len(plain.etag)-1] + `-gz"`), nil
	}
	if b.size <= maxResident {
		if _, err := s.load(b); err != nil {
			return nil, err
		}
		return b.tag.Load(), nil
	}
	return s.bigTag(b)
}

// keepTag sets b's entity tag.
func (b *blob) keepTag(etag string) *tag {
	t := &tag{etag: etag, etagHeader: []string{etag}, lastModified: modified(b.changed)}
	b.tag.Store(t)
	return t
}

// bigTag returns the entity tag of a file that is not held in memory. For a very big
// file it comes from its inode and change time, which no other content and no later
// generation shares.
func (s *Site) bigTag(b *blob) (*tag, error) {
	b.loading.Lock()
	defer b.loading.Unlock()
	if t := b.tag.Load(); t != nil {
		return t, nil
	}
	sum := sha256.New()
	if b.size > maxHashed {
		for _, n := range []uint64{b.inode.dev, b.inode.ino, uint64(b.size), uint64(b.changed.UnixNano())} {
			sum.Write(binary.BigEndian.AppendUint64(nil, n))
		}
		return b.keepTag(etagOf(sum)), nil
	}
	f, err := s.openBlob(b)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, fmt.Errorf("hash: %w", err)
	}
	return b.keepTag(etagOf(sum)), nil
}

// etagOf formats 96 bits of a hash as an entity tag.
func etagOf(sum hash.Hash) string {
	return `"` + base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12]) + `"`
}

// load returns the bytes of a small file or of a packed blob, from memory if they are
// still there.
func (s *Site) load(b *blob) (*body, error) {
	if kept := b.resident(); kept != nil {
		return kept, nil
	}
	b.loading.Lock()
	defer b.loading.Unlock()
	if kept := b.resident(); kept != nil {
		return kept, nil
	}
	var data []byte
	var err error
	if b.packed != nil {
		data, err = s.pack(b.packed)
	} else {
		data, err = s.read(b)
	}
	if err != nil {
		return nil, err
	}
	loaded := &body{bytes: data, length: decimal(int64(len(data)))}
	s.memory.keep(b, loaded)
	return loaded, nil
}

// resident returns b's body if it is in memory, and marks it as used.
func (b *blob) resident() *body {
	kept := b.body.Load()
	if kept != nil && !kept.used.Load() {
		kept.used.Store(true)
	}
	return kept
}

// read reads a small file and sets its entity tag.
func (s *Site) read(b *blob) ([]byte, error) {
	f, err := s.openBlob(b)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, b.size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if b.tag.Load() == nil {
		sum := sha256.New()
		sum.Write(data)
		b.keepTag(etagOf(sum))
	}
	return data, nil
}

// packers are idle gzip writers: each owns about a megabyte of tables.
var packers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(io.Discard, packLevel)
	if err != nil {
		panic(err) // packLevel is a constant
	}
	return w
}}

// pack compresses a file.
func (s *Site) pack(b *blob) ([]byte, error) {
	f, err := s.openBlob(b)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out bytes.Buffer
	out.Grow(int(b.size / 4))
	w := packers.Get().(*gzip.Writer)
	defer packers.Put(w)
	w.Reset(&out)
	if _, err := io.Copy(w, f); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return bytes.Clone(out.Bytes()), nil
}

// openBlob opens b's file. The folder should not change, but if it does, neither a FIFO
// nor a file of another length is served in its place.
func (s *Site) openBlob(b *blob) (*os.File, error) {
	f, err := s.root.OpenFile(b.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != b.size) {
		err = errChanged
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// decimal returns n as a header's value.
func decimal(n int64) []string { return []string{strconv.FormatInt(n, 10)} }
