package builder

import (
	"context"
	"io"
	"reflect"

	"github.com/berth-host/berth/internal/engine"
)

// begun is a command that is begun before the files are there that it needs, for which it
// waits: an engine takes a tenth of a second to begin one.
type begun struct {
	cmd     engine.Cmd      // without the files
	ctx     context.Context // of the command
	abandon context.CancelFunc

	given chan struct{} // closed once the next two are set
	files func(context.Context, io.Writer) error
	out   io.Writer

	ended chan struct{} // closed once the next two are set
	code  int
	err   error
}

// newBegun returns a command, which ends with ctx.
func newBegun(ctx context.Context, cmd engine.Cmd) *begun {
	b := &begun{cmd: cmd, given: make(chan struct{}), ended: make(chan struct{})}
	b.ctx, b.abandon = context.WithCancel(ctx)
	return b
}

// run runs the command in a container.
func (b *begun) run(driver engine.Builds, container string) {
	cmd := b.cmd
	cmd.Files = func(ctx context.Context, w io.Writer) error {
		if err := b.await(ctx); err != nil {
			return err
		}
		return b.files(ctx, w)
	}
	b.code, b.err = driver.Exec(b.ctx, container, cmd, b, b)
	close(b.ended)
}

// does reports whether the command still waits, and is cmd, which has no files yet.
func (b *begun) does(cmd engine.Cmd) bool {
	select {
	case <-b.ended:
		return false
	default:
		return reflect.DeepEqual(b.cmd, cmd)
	}
}

// finish gives the command its files, and returns as Exec does.
func (b *begun) finish(ctx context.Context, files func(context.Context, io.Writer) error, out io.Writer) (int, error) {
	defer b.abandon()
	b.files, b.out = files, out
	close(b.given)
	select {
	case <-b.ended:
		return b.code, b.err
	case <-ctx.Done():
		b.abandon()
		<-b.ended
		return -1, ctx.Err()
	}
}

// await waits until the command is given its files.
func (b *begun) await(ctx context.Context) error {
	select {
	case <-b.given:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Write writes output once it is known where to.
func (b *begun) Write(p []byte) (int, error) {
	if err := b.await(b.ctx); err != nil {
		return 0, err
	}
	return b.out.Write(p)
}
