package auth

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-host/berth/internal/disk"
)

// keySize is the length of the installation's key in bytes.
const keySize = 32

// Key is the secret of one installation, kept in its data directory. What is sealed or
// hashed with it is worthless without it.
type Key [keySize]byte

// LoadKey returns the key at path, and creates it the first time: 32 random bytes, mode
// 0600, written completely or not at all. It refuses a file that others may read.
func LoadKey(path string) (Key, error) {
	key, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	rand.Read(key[:]) // never fails, see crypto/rand
	if err := key.Write(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return Key{}, err
	}
	return readKey(path)
}

// HashClaimCode returns the stored form of a claim code in the form that
// NormalizeClaimCode returns. A code has 60 bits, few enough to try out against a copy
// of the database, so its hash is keyed.
func (k Key) HashClaimCode(code string) []byte {
	mac := hmac.New(sha256.New, k.derive("claim code"))
	mac.Write([]byte(code))
	return mac.Sum(nil)
}

// Layers returns the key of the hashes of what install commands can see, which covers
// secrets.
func (k Key) Layers() []byte { return k.derive("layers") }

// derive returns a key for one purpose, so that no two uses share a key.
func (k Key) derive(purpose string) []byte {
	sub, err := hkdf.Key(sha256.New, k[:], nil, "berth "+purpose, keySize)
	if err != nil {
		panic(err) // only for lengths that HKDF cannot give
	}
	return sub
}

// ReadKey returns the key at path, which must be there.
func ReadKey(path string) (Key, error) { return readKey(path) }

// Fingerprint names the key without saying anything of it.
func (k Key) Fingerprint() string { return hex.EncodeToString(k.derive("fingerprint")[:16]) }

func readKey(path string) (key Key, err error) {
	f, err := os.Open(path)
	if err != nil {
		return Key{}, fmt.Errorf("read the key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Key{}, fmt.Errorf("read the key file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return Key{}, fmt.Errorf("the key file %s is open to other users (mode %04o); run chmod 600 on it and try again", path, mode)
	}
	if !info.Mode().IsRegular() || info.Size() != keySize {
		return Key{}, fmt.Errorf("the key file %s is not a file of %d bytes; restore the one that this data directory was created with", path, keySize)
	}
	if _, err := io.ReadFull(f, key[:]); err != nil {
		return Key{}, fmt.Errorf("read the key file: %w", err)
	}
	return key, nil
}

// Write creates the file at path with the key in it, completely or not at all. If path exists,
// the error is fs.ErrExist: of two processes that write a key, one does.
func (k Key) Write(path string) error {
	if err := k.write(path); err != nil {
		return fmt.Errorf("make the key file %s: %w", path, err)
	}
	return nil
}

// write writes the key beside path and links it to path.
func (k Key) write(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(k[:])
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return disk.Sync(filepath.Dir(path))
}
