// Package stackid is the form of a stack's id: stk_ and 12 hex characters. Code in this
// package does no I/O and uses no other package of Berth, so that the engine's names and
// the data directory can use it as well as the rows.
package stackid

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strings"
)

const prefix = "stk_"

var pattern = regexp.MustCompile(`^` + prefix + `[0-9a-f]{12}$`)

// New returns a new, random id.
func New() string {
	var b [6]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return FromHex(hex.EncodeToString(b[:]))
}

// Valid reports whether id has the form of an id.
func Valid(id string) bool { return pattern.MatchString(id) }

// Hex returns an id without its prefix, as in the names of hosts, folders and objects of
// the engine.
func Hex(id string) string { return strings.TrimPrefix(id, prefix) }

// FromHex is the inverse of Hex: it returns the id for an id without its prefix.
func FromHex(text string) string { return prefix + text }
