package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
)

// Bounds of a password (docs/api.md, "Accounts"). The upper one keeps a request
// from making the host hash megabytes.
const (
	MinPassword = 8   // characters
	MaxPassword = 256 // bytes
)

// The parameters of argon2id. They are fixed; a hash names them, so that later
// ones could be told apart.
const (
	argonMemory = 19 << 10 // KiB
	argonTime   = 2
	argonLanes  = 1
	saltSize    = 16
	sumSize     = 32
)

// hashPrefix begins every hash that this package makes.
var hashPrefix = fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$", argon2.Version, argonMemory, argonTime, argonLanes)

// CheckPassword tells what is wrong with a new password; the text is for the
// person who chose it.
func CheckPassword(password string) error {
	switch {
	case !utf8.ValidString(password):
		return errors.New("the password is not valid UTF-8 text")
	case utf8.RuneCountInString(password) < MinPassword:
		return fmt.Errorf("the password is too short; take %d characters or more", MinPassword)
	case len(password) > MaxPassword:
		return fmt.Errorf("the password is too long; take at most %d bytes", MaxPassword)
	}
	return nil
}

// Passwords hashes passwords, a few at a time: each hash takes 19 MiB and a
// core for some tens of milliseconds, and a flood of sign-ins must leave memory
// and processors to the stacks.
type Passwords struct {
	slots chan struct{}
}

// NewPasswords returns a Passwords that computes at most parallel hashes at the
// same time.
func NewPasswords(parallel int) *Passwords {
	return &Passwords{slots: make(chan struct{}, parallel)}
}

// Hash is what is stored of a password: argon2id with a salt of its own, in
// the PHC string format. It fails only when ctx ends before its turn.
func (p *Passwords) Hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails, see crypto/rand
	sum, err := p.derive(ctx, password, salt)
	if err != nil {
		return "", err
	}
	return hashPrefix + encode(salt) + "$" + encode(sum), nil
}

// Verify tells whether password is the one that was hashed. An empty hash, of
// an account that does not exist or has no password, takes the same time and is
// false, and so is a password that is longer than any can be. It fails when ctx
// ends before its turn, and for a hash that is none.
func (p *Passwords) Verify(ctx context.Context, hash, password string) (bool, error) {
	salt, want := make([]byte, saltSize), make([]byte, sumSize)
	if hash != "" {
		var err error
		if salt, want, err = parseHash(hash); err != nil {
			return false, err
		}
	}
	tooLong := len(password) > MaxPassword
	if tooLong {
		password = ""
	}
	sum, err := p.derive(ctx, password, salt)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(sum, want) == 1 && hash != "" && !tooLong, nil
}

// derive computes the hash once it is its turn.
func (p *Passwords) derive(ctx context.Context, password string, salt []byte) ([]byte, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the hashing of a password: %w", ctx.Err())
	}
	defer func() { <-p.slots }()
	return argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonLanes, sumSize), nil
}

// parseHash takes a hash apart.
func parseHash(hash string) (salt, sum []byte, err error) {
	rest, ok := strings.CutPrefix(hash, hashPrefix)
	first, second, split := strings.Cut(rest, "$")
	salt, saltErr := base64.RawStdEncoding.DecodeString(first)
	sum, sumErr := base64.RawStdEncoding.DecodeString(second)
	if !ok || !split || saltErr != nil || sumErr != nil || len(salt) != saltSize || len(sum) != sumSize {
		return nil, nil, errors.New("a stored password hash is not one that this version makes")
	}
	return salt, sum, nil
}

func encode(b []byte) string { return base64.RawStdEncoding.EncodeToString(b) }
