// Package auth creates the secrets that Berth hands out, hashes them for storage, and
// seals what must be read again. Tokens, keys and claim codes are stored as hashes; a
// webhook secret, which must sign, and the environment of services are sealed with the
// installation's key. Code in this package knows no database and no request, and only
// LoadKey does I/O.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"
)

// Prefixes of the kinds of secrets (docs/api.md, "Authentication"
// and docs/api.md, "One-time fields").
const (
	ManageTokenPrefix   = "ast_anon_"
	APIKeyPrefix        = "as_live_"
	webhookSecretPrefix = "whsec_"
	sessionPrefix       = "ses_"
	mailPrefix          = "mail_"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// secretChars is the length of a secret after its prefix: 190 bits in base 62.
const secretChars = 32

// NewManageToken returns a new token that manages one stack: ast_anon_ and 32 letters
// and digits.
func NewManageToken() string { return ManageTokenPrefix + random(base62, secretChars) }

// NewAPIKey returns a new key of an account: as_live_ and 32 letters and digits.
func NewAPIKey() string { return APIKeyPrefix + random(base62, secretChars) }

// NewWebhookSecret returns a new key that signs deliveries: whsec_ and 32 letters
// and digits.
func NewWebhookSecret() string { return webhookSecretPrefix + random(base62, secretChars) }

// NewSessionToken returns a new token of a browser's session: ses_ and 32 letters and
// digits.
func NewSessionToken() string { return sessionPrefix + random(base62, secretChars) }

// NewMailToken returns a new token of a link in a mail: mail_ and 32 letters and digits.
func NewMailToken() string { return mailPrefix + random(base62, secretChars) }

// KeyHint returns the part of an API key that may be stored in the clear, so that a
// person can recognise the key: its last four characters.
func KeyHint(key string) string { return key[max(0, len(key)-keyHintChars):] }

const keyHintChars = 4

// Hash returns the stored form of a manage token, an API key, or the token of a session or
// mail. They are too long to guess, so a plain SHA-256 reveals nothing. Claim codes are shorter;
// see Key.HashClaimCode.
func Hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// random returns n characters of the alphabet, each equally likely: it discards bytes
// beyond the last whole multiple of the alphabet's size.
func random(alphabet string, n int) string {
	limit := 256 - 256%len(alphabet)
	var out strings.Builder
	var buf [secretChars]byte
	for out.Len() < n {
		rand.Read(buf[:]) // never fails, see crypto/rand
		for _, b := range buf {
			if int(b) < limit && out.Len() < n {
				out.WriteByte(alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return out.String()
}
