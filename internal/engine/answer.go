package engine

import (
	"context"
	"errors"
	"io"
	"strings"
)

// answerMax is how much a command may print for Answer, in bytes.
const answerMax = 64 << 10

// ErrTooMuch means that a command printed more than 64 KiB for Answer.
var ErrTooMuch = errors.New("it printed more than 64 KiB")

// Answer runs a command that prints little, and returns its standard output and its exit
// code. Beyond 64 KiB the error is ErrTooMuch. Any process in the container that has the
// same user may write into that output and stop the command, so ctx should have a
// deadline.
func Answer(ctx context.Context, d Commands, id string, cmd Cmd) (string, int, error) {
	var out answer
	cmd.Whole = true
	code, err := d.Exec(ctx, id, cmd, &out, io.Discard)
	return out.text.String(), code, err
}

// answer collects at most answerMax bytes.
type answer struct{ text strings.Builder }

func (a *answer) Write(p []byte) (int, error) {
	if a.text.Len()+len(p) > answerMax {
		return 0, ErrTooMuch
	}
	return a.text.Write(p)
}
