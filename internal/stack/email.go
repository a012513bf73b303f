package stack

import (
	"errors"
	"net/mail"
	"strings"
	"unicode"
)

// mostEmail is the length in bytes of the longest address that can receive mail.
const mostEmail = 254

// CheckEmail returns an error unless email is a single bare address that cannot be
// mistaken for another: the part before the @ must be ASCII. The error continues a
// sentence that begins with the address.
func CheckEmail(email string) error {
	address, err := mail.ParseAddress(email)
	if err != nil || address.Address != email || len(email) > mostEmail || strings.ContainsFunc(email, unicode.IsSpace) {
		return errors.New("is not an email address; write it as in ana@example.com")
	}
	local := email[:strings.LastIndexByte(email, '@')]
	if strings.ContainsFunc(local, func(r rune) bool { return r > unicode.MaxASCII }) {
		return errors.New("cannot be used as an email address: the part before the @ must be ASCII, as in ana@example.com")
	}
	return nil
}

// SameEmail reports whether two addresses are equal, ignoring the case of ASCII
// letters, as the database compares them. Unicode case folding would take the Kelvin
// sign for a k.
func SameEmail(a, b string) bool { return lowerASCII(a) == lowerASCII(b) }

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
