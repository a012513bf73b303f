package auth

import (
	"strings"
	"unicode"
)

// crockford is Crockford's base 32: no I, L, O or U, so that a code can be
// read aloud.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const (
	claimPrefix    = "CLM"
	readPrefix     = "C1M" // claimPrefix after L was read as 1
	claimBodyChars = 12    // 60 bits
	claimGroup     = 4
)

// NewClaimCode returns a new code that claims a stack, in the form that
// NormalizeClaimCode returns: CLM-XXXX-XXXX-XXXX.
func NewClaimCode() string { return formatClaimCode(random(crockford, claimBodyChars)) }

// NormalizeClaimCode parses a claim code as people type and paste it: in any letter
// case, with or without the prefix, with dashes and spaces anywhere, and with I or L
// for 1 and O for 0. It returns CLM-XXXX-XXXX-XXXX, and false if s cannot be a code.
func NormalizeClaimCode(s string) (string, bool) {
	var read strings.Builder
	for _, r := range s {
		if unicode.IsSpace(r) || unicode.Is(unicode.Dash, r) {
			continue
		}
		c, ok := claimChar(r)
		if !ok || read.Len() == len(readPrefix)+claimBodyChars {
			return "", false
		}
		read.WriteByte(c)
	}
	// A code's own body may begin with C1M too: the length decides.
	body := read.String()
	if len(body) == len(readPrefix)+claimBodyChars {
		body = strings.TrimPrefix(body, readPrefix)
	}
	if len(body) != claimBodyChars {
		return "", false
	}
	return formatClaimCode(body), true
}

// claimChar returns the character of the alphabet that a typed one stands for.
func claimChar(r rune) (byte, bool) {
	if 'a' <= r && r <= 'z' {
		r -= 'a' - 'A'
	}
	switch r {
	case 'I', 'L':
		r = '1'
	case 'O':
		r = '0'
	}
	if !strings.ContainsRune(crockford, r) {
		return 0, false
	}
	return byte(r), true
}

func formatClaimCode(body string) string {
	code := claimPrefix
	for ; body != ""; body = body[claimGroup:] {
		code += "-" + body[:claimGroup]
	}
	return code
}
