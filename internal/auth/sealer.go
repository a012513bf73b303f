package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrSealed means that a sealed value does not open.
var ErrSealed = errors.New("it was changed, moved or sealed with another key")

// Sealer encrypts values for the database with AES-256-GCM and a random nonce. A sealed
// value opens only in the row and column that it was sealed for, so values cannot be
// swapped.
type Sealer struct{ aead cipher.AEAD }

// NewSealer returns the sealer of an installation.
func NewSealer(key Key) *Sealer {
	block, err := aes.NewCipher(key.derive("seal"))
	if err != nil {
		panic(err) // only for wrong key lengths
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for wrong block sizes
	}
	return &Sealer{aead: aead}
}

// Seal encrypts plain for one column of one row. The result is 28 bytes longer.
func (s *Sealer) Seal(plain []byte, row, column string) []byte {
	return s.aead.Seal(nil, nil, plain, place(row, column))
}

// Open decrypts a result of Seal for the same row and column.
func (s *Sealer) Open(sealed []byte, row, column string) ([]byte, error) {
	plain, err := s.aead.Open(nil, nil, sealed, place(row, column))
	if err != nil {
		return nil, fmt.Errorf("open the sealed %s of %s: %w: %w", column, row, ErrSealed, err)
	}
	return plain, nil
}

// place returns the associated data: no two pairs of row and column have the same.
func place(row, column string) []byte {
	b := binary.AppendUvarint(nil, uint64(len(row)))
	b = append(b, row...)
	return append(b, column...)
}
