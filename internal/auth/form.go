package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
)

// FormToken returns the token that proves that a form's page was sent to the browser
// that holds the cookie.
func (k Key) FormToken(cookie string) string {
	mac := hmac.New(sha256.New, k.derive("form"))
	mac.Write([]byte(cookie))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
