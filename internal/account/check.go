package account

import (
	"fmt"
	"strings"

	"github.com/berth-host/berth/internal/stack"
)

// checkEmail returns an error unless email can be the address of an account.
func checkEmail(email string) error {
	if err := stack.CheckEmail(email); err != nil {
		return unprocessable(fmt.Errorf("%q %w", shorten(email), err))
	}
	return nil
}

// cut returns the beginning of a text from outside, as valid UTF-8.
func cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
