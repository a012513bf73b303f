package registry

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// KeyBytes is the length of a stack's data key.
const KeyBytes = 32

// NewKey returns a new data key.
func NewKey() []byte {
	key := make([]byte, KeyBytes)
	rand.Read(key)
	return key
}

// A sealed stream is a salt, followed by chunks: AES-256-GCM under a key that is derived from
// the stack's, the salt and the name of what is sealed. A chunk's number and whether it is
// the last are its nonce. So a stream that is cut, put together in another order, of another
// name or of another stack does not open. All chunks but the last are full.
const (
	saltBytes  = 32
	chunkBytes = 64 << 10
	tagBytes   = 16
)

// errSealed means that a sealed stream is not what was sealed under that name and key.
var errSealed = errors.New("it is not what was sealed for this stack under this name: it was changed or cut, or the key is another one")

func newAEAD(key, salt []byte, name string) (cipher.AEAD, error) {
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("a data key has %d bytes, not %d", KeyBytes, len(key))
	}
	own, err := hkdf.Key(sha256.New, key, salt, "berth registry "+name, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// nonce returns the nonce of a chunk.
func nonce(number uint64, last bool) []byte {
	n := make([]byte, 12)
	binary.BigEndian.PutUint64(n[3:], number)
	if last {
		n[11] = 1
	}
	return n
}

// sealer seals what is written to it. Close writes the end.
type sealer struct {
	w      io.Writer
	aead   cipher.AEAD
	chunk  []byte // not sealed yet
	out    []byte
	number uint64
}

// seal returns a writer that seals to w what is kept under a name. Without its Close the
// stream has no end and does not open.
func seal(w io.Writer, key []byte, name string) (io.WriteCloser, error) {
	salt := make([]byte, saltBytes)
	rand.Read(salt)
	aead, err := newAEAD(key, salt, name)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(salt); err != nil {
		return nil, err
	}
	return &sealer{w: w, aead: aead, chunk: make([]byte, 0, chunkBytes), out: make([]byte, 0, chunkBytes+tagBytes)}, nil
}

func (s *sealer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		if len(s.chunk) == chunkBytes { // more follows, so it is not the last
			if err := s.flush(false); err != nil {
				return written, err
			}
		}
		n := copy(s.chunk[len(s.chunk):chunkBytes], p)
		s.chunk, p = s.chunk[:len(s.chunk)+n], p[n:]
		written += n
	}
	return written, nil
}

func (s *sealer) Close() error { return s.flush(true) }

func (s *sealer) flush(last bool) error {
	s.out = s.aead.Seal(s.out[:0], nonce(s.number, last), s.chunk, nil)
	s.number++
	s.chunk = s.chunk[:0]
	_, err := s.w.Write(s.out)
	return err
}

// opener reads what was sealed.
type opener struct {
	r      *bufio.Reader
	key    []byte
	name   string
	aead   cipher.AEAD // nil before the first read
	sealed []byte
	plain  []byte // not read yet
	number uint64
	err    error
}

// open returns a reader of what was sealed under a name. It returns io.EOF only after the
// end that Close wrote.
func open(r io.Reader, key []byte, name string) io.Reader {
	return &opener{r: bufio.NewReaderSize(r, chunkBytes+tagBytes+1), key: key, name: name, sealed: make([]byte, chunkBytes+tagBytes)}
}

func (o *opener) Read(p []byte) (int, error) {
	for len(o.plain) == 0 && o.err == nil {
		o.err = o.next()
	}
	n := copy(p, o.plain)
	o.plain = o.plain[n:]
	if n > 0 {
		return n, nil
	}
	return 0, o.err
}

// next opens a chunk. It returns io.EOF with the last one.
func (o *opener) next() error {
	if o.aead == nil {
		salt := make([]byte, saltBytes)
		if _, err := io.ReadFull(o.r, salt); err != nil {
			return cut(err)
		}
		var err error
		if o.aead, err = newAEAD(o.key, salt, o.name); err != nil {
			return err
		}
	}
	n, err := io.ReadFull(o.r, o.sealed)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return cut(err)
	}
	_, err = o.r.Peek(1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	last := err != nil
	plain, err := o.aead.Open(o.sealed[:0], nonce(o.number, last), o.sealed[:n], nil)
	if err != nil {
		return errSealed
	}
	o.plain = plain
	o.number++
	if last {
		return io.EOF
	}
	return nil
}

// cut returns errSealed for a stream that ends where it must not.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errSealed
	}
	return err
}
