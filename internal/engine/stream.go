package engine

import (
	"context"
	"errors"
	"io"
)

// Stream calls read with what write writes, and returns when both have ended. An error of
// write is returned as it is, unless it only says that read wanted no more.
func Stream(ctx context.Context, write func(context.Context, io.Writer) error, read func(io.Reader) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(ctx, w)
		w.CloseWithError(err)
		written <- err
	}()
	err := read(r)
	_ = r.Close() // ends write if read stopped early
	if cause := <-written; cause != nil && !errors.Is(cause, io.ErrClosedPipe) {
		return cause
	}
	return err
}
