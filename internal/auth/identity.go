package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Identity returns what only an installation with this key can answer to a nonce.
func (k Key) Identity(nonce string) string {
	mac := hmac.New(sha256.New, k.derive("identity"))
	mac.Write([]byte(nonce))
	return hex.EncodeToString(mac.Sum(nil))
}
