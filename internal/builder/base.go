package builder

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/lastlines"
	"github.com/berth-host/berth/internal/stack"
)

// Base returns the reference of the base image of a runtime; "" if there is none.
func (b *Builder) Base(r stack.Runtime) string {
	image, err := images.Lookup(r.Name, r.Version)
	if err != nil {
		return ""
	}
	return image.Ref()
}

// ErrNoBase means that a base image could not be made, which is not the fault of any stack.
// The error ends with the last lines of the output.
var ErrNoBase = errors.New("no base image")

// EnsureBase builds the base image of a runtime unless the engine has it, and returns
// its reference. It writes to log, which may be a tenant's, that this takes time.
func (b *Builder) EnsureBase(ctx context.Context, r stack.Runtime, log io.Writer) (string, error) {
	return b.ensureBase(ctx, r, log, io.Discard)
}

// BuildBase does as EnsureBase for an operator, who sees all of the output.
func (b *Builder) BuildBase(ctx context.Context, r stack.Runtime, out io.Writer) (string, error) {
	return b.ensureBase(ctx, r, out, out)
}

func (b *Builder) ensureBase(ctx context.Context, r stack.Runtime, notice, out io.Writer) (string, error) {
	image, err := images.Lookup(r.Name, r.Version)
	if err != nil {
		return "", err
	}
	err = b.once(ctx, image.Ref(), func() error {
		if b.fetchBase(ctx, image.Ref()) {
			return nil
		}
		fmt.Fprintf(notice, "preparing %s: this server needs it for the first time, which takes a minute or more\n", r)
		if _, err := b.EnsureDebian(ctx, out); err != nil {
			return err
		}
		return b.makeBase(ctx, image, out)
	})
	switch {
	case err != nil && ctx.Err() == nil:
		return "", fmt.Errorf("%w of %s: %w", ErrNoBase, r, err)
	case err == nil && b.cfg.Bases != nil:
		b.cfg.Bases.OfferBase(image.Ref())
	}
	return image.Ref(), err
}

// fetchBase brings a base image that another node has made, and reports whether it is there.
func (b *Builder) fetchBase(ctx context.Context, ref string) bool {
	if b.cfg.Bases == nil {
		return false
	}
	err := b.cfg.Bases.FetchBase(ctx, ref)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		b.cfg.Log.Warn("the registry does not give a base image; it is built", "image", ref, "error", err)
	}
	return err == nil
}

// EnsureDebian makes the image that every base image starts from, unless the engine has it, and
// returns its reference.
func (b *Builder) EnsureDebian(ctx context.Context, log io.Writer) (string, error) {
	return images.Debian, b.once(ctx, images.Debian, func() error { return b.makeDebian(ctx, log) })
}

// once makes an image unless the engine has it, for one caller at a time. The others
// stop waiting when their context ends, since an image may take minutes.
func (b *Builder) once(ctx context.Context, ref string, do func() error) error {
	lock, _ := b.making.LoadOrStore(ref, semaphore.NewWeighted(1))
	turn := lock.(*semaphore.Weighted)
	if err := turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer turn.Release(1)
	if there, err := b.cfg.Engine.HasImage(ctx, ref); there || err != nil {
		return err
	}
	return do()
}

func (b *Builder) makeBase(ctx context.Context, image images.Image, log io.Writer) error {
	args := image.Args()
	maps.Copy(args, b.cfg.Env)
	return b.cfg.Engine.MakeImage(ctx, engine.ImageSpec{
		Context: image.Context(b.cfg.CA),
		Ref:     image.Ref(),
		Args:    args,
	}, log)
}

// makeDebian makes the image that every base image starts from: pulled if a registry
// answers, otherwise built from Debian's packages.
func (b *Builder) makeDebian(ctx context.Context, log io.Writer) error {
	pull, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	if err := b.cfg.Engine.Pull(pull, images.Debian, log); err == nil || ctx.Err() != nil {
		return err
	}
	fmt.Fprintf(log, "no registry answers; building %s from Debian's packages\n", images.Debian)
	return b.importDebian(ctx, log)
}

// pullTimeout is how long a registry may take to send an image of 30 MB.
const pullTimeout = time.Minute

// scriptTail is how much of the script's output its error contains, in bytes.
const scriptTail = 4000

// importDebian runs the script that writes the image's files as a tar.
func (b *Builder) importDebian(ctx context.Context, log io.Writer) error {
	script := exec.CommandContext(ctx, "sh", "-s", "rootfs")
	script.Stdin = bytes.NewReader(images.DebianScript())
	last := lastlines.OfOutput(scriptTail)
	script.Stderr = io.MultiWriter(log, last)
	script.WaitDelay = time.Second // for what the script started, once it is stopped
	out, err := script.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make %s: %w", images.Debian, err)
	}
	if err := script.Start(); err != nil {
		return fmt.Errorf("make %s: %w", images.Debian, err)
	}
	files := &scriptOutput{from: bufio.NewReader(out), wait: sync.OnceValue(script.Wait)}
	// Not even begun if the script fails first: the engine makes an empty image of nothing.
	if _, err = files.from.Peek(1); err == nil {
		err = b.cfg.Engine.Import(ctx, images.Debian, files, []string{`CMD ["bash"]`})
	} else if errors.Is(err, io.EOF) {
		err = nil
	}
	if failed := files.wait(); failed != nil {
		err = errors.Join(err, fmt.Errorf("%w%s", failed, last.Phrase()))
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", images.Debian, err)
	}
	return nil
}

// scriptOutput is the output of a script, which ends with an error if the script fails.
type scriptOutput struct {
	from *bufio.Reader
	wait func() error
}

func (o *scriptOutput) Read(p []byte) (int, error) {
	n, err := o.from.Read(p)
	if errors.Is(err, io.EOF) {
		if failed := o.wait(); failed != nil {
			err = failed
		}
	}
	return n, err
}
