package engine

import (
	"context"
	"errors"
	"io"
	"strings"
)

// answerMax is how much a command may print for Answer, in bytes.
const answerMax = 64 << 10

// ErrTooMuch means that Answer was given more than 64 KiB.
var ErrTooMuch = errors.New("it printed more than 64 KiB")

// Answer runs a command that prints little and returns its standard output
// and its exit code. Whatever else runs in the container as the same user may
// write into that output, and stop the command: beyond 64 KiB the error is
// ErrTooMuch, and ctx should have a limit.
func Answer(ctx context.Context, d Builds, id string, cmd Cmd) (string, int, error) {
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
