package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
)

// Bounds of a password (docs/api.md, "Accounts"). The upper one keeps a request
// from making the host hash megabytes.
const (
	MinPassword = 8   // characters
	maxPassword = 256 // bytes
)

// params are those of every new hash. A hash records its own, so that later ones can be
// told apart.
var params = argon2id.Params{
	Memory:      19 << 10, // KiB
	Iterations:  2,
	Parallelism: 1,
	SaltLength:  16,
	KeyLength:   32,
}

// nobodys has the form of a hash that no password has.
var nobodys = fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$%s$%s",
	params.Memory, params.Iterations, params.Parallelism, strings.Repeat("A", 22), strings.Repeat("A", 43))

// CheckPassword returns what is wrong with a new password, in words for the person who
// chose it; nil if nothing is.
func CheckPassword(password string) error {
	switch {
	case !utf8.ValidString(password):
		return errors.New("the password is not valid UTF-8 text")
	case utf8.RuneCountInString(password) < MinPassword:
		return fmt.Errorf("the password is too short; use %d characters or more", MinPassword)
	case len(password) > maxPassword:
		return fmt.Errorf("the password is too long; use at most %d bytes", maxPassword)
	}
	return nil
}

// Passwords hashes passwords, a few at a time: each hash takes 19 MiB and a core for
// some tens of milliseconds, and a flood of sign-ins must leave memory and processors
// to the stacks.
type Passwords struct {
	slots chan struct{}
}

// NewPasswords returns a Passwords that computes at most parallel hashes at the same
// time.
func NewPasswords(parallel int) *Passwords {
	return &Passwords{slots: make(chan struct{}, parallel)}
}

// Hash returns the stored form of a password: argon2id with a random salt, in the PHC
// string format. It fails only if ctx ends before its turn.
func (p *Passwords) Hash(ctx context.Context, password string) (string, error) {
	done, err := p.turn(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	return argon2id.CreateHash(password, &params)
}

// Verify reports whether password is the one that was hashed. For an empty hash, of an
// account that does not exist or has no password, it returns false after the same time,
// as it does for a password that is too long to be valid. It fails if ctx ends before
// its turn, and if hash is not a hash.
func (p *Passwords) Verify(ctx context.Context, hash, password string) (bool, error) {
	stored := cmp.Or(hash, nobodys)
	if made, _, _, err := argon2id.DecodeHash(stored); err != nil || *made != params {
		return false, errors.New("a stored password hash has a form that this version does not know")
	}
	tooLong := len(password) > maxPassword
	if tooLong {
		password = ""
	}
	done, err := p.turn(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	same, err := argon2id.ComparePasswordAndHash(password, stored)
	return same && hash != "" && !tooLong, err
}

// turn waits until another hash may be computed. The caller must call done once.
func (p *Passwords) turn(ctx context.Context) (done func(), err error) {
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the hashing of a password: %w", ctx.Err())
	}
}
