package account

import (
	"fmt"
	"net/mail"
	"strings"
	"unicode"
)

// mostEmail is the length of the longest address that mail can be sent to.
const mostEmail = 254

// checkEmail refuses what is not one bare address.
func checkEmail(email string) error {
	address, err := mail.ParseAddress(email)
	if err != nil || address.Address != email || len(email) > mostEmail || strings.ContainsFunc(email, unicode.IsSpace) {
		return unprocessable(fmt.Errorf("%q is not an email address; write it as in ana@example.com", cut(email, mostEmail)))
	}
	return nil
}

// cut is the beginning of a text from outside, as valid UTF-8.
func cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
