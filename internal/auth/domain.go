package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// DomainProof returns the value that an account enters at the DNS to prove that a host is
// theirs: 128 bits that nobody else can know, the same each time.
func (k Key) DomainProof(account, host string) string {
	mac := hmac.New(sha256.New, k.derive("domain"))
	mac.Write([]byte(account + "\n" + host))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
