package builder

import (
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
	"github.com/berth-host/berth/internal/stack"
)

// bases builds base images, each once, when they are first needed.
type bases struct {
	builder *Builder
	mu      sync.Mutex
	making  map[string]*semaphore.Weighted // of one, by reference
}

// EnsureBase builds the base image of a runtime unless the engine has it, and returns
// its reference. It writes progress to log.
func (b *Builder) EnsureBase(ctx context.Context, r stack.Runtime, log io.Writer) (string, error) {
	return b.bases.ensure(ctx, r, log)
}

func (s *bases) ensure(ctx context.Context, r stack.Runtime, log io.Writer) (string, error) {
	image, err := images.Lookup(r.Name, r.Version)
	if err != nil {
		return "", err
	}
	lock := s.lock(image.Ref())
	if err := lock.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer lock.Release(1)
	if there, err := s.builder.cfg.Engine.HasImage(ctx, image.Ref()); there || err != nil {
		return image.Ref(), err
	}
	fmt.Fprintf(log, "building the base image of %s: this server needs it for the first time, which takes a minute or more\n", r)
	if err := s.debian(ctx, log); err != nil {
		return "", err
	}
	return image.Ref(), s.make(ctx, image, log)
}

// lock keeps two builds from building the same image at once. A caller stops waiting
// when its context ends, since an image may take minutes.
func (s *bases) lock(ref string) *semaphore.Weighted {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.making == nil {
		s.making = map[string]*semaphore.Weighted{}
	}
	if s.making[ref] == nil {
		s.making[ref] = semaphore.NewWeighted(1)
	}
	return s.making[ref]
}

func (s *bases) make(ctx context.Context, image images.Image, log io.Writer) error {
	files, err := image.Context(s.builder.cfg.CA)
	if err != nil {
		return err
	}
	args := image.Args()
	maps.Copy(args, s.builder.cfg.Env)
	return s.builder.cfg.Engine.MakeImage(ctx, engine.ImageSpec{
		Context: files,
		Ref:     image.Ref(),
		Args:    args,
	}, log)
}

// debian provides the image that every base image starts from: pulled if a registry
// answers, otherwise built from Debian's packages.
func (s *bases) debian(ctx context.Context, log io.Writer) error {
	lock := s.lock(images.Debian)
	if err := lock.Acquire(ctx, 1); err != nil {
		return err
	}
	defer lock.Release(1)
	if there, err := s.builder.cfg.Engine.HasImage(ctx, images.Debian); there || err != nil {
		return err
	}
	pull, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	if err := s.builder.cfg.Engine.Pull(pull, images.Debian, log); err == nil || ctx.Err() != nil {
		return err
	}
	fmt.Fprintf(log, "no registry answers; building %s from Debian's packages\n", images.Debian)
	return s.importDebian(ctx, log)
}

// pullTimeout is how long a registry may take to send an image of 30 MB.
const pullTimeout = time.Minute

// importDebian runs the script that writes the image's files as a tar.
func (s *bases) importDebian(ctx context.Context, log io.Writer) error {
	script := exec.CommandContext(ctx, "sh", "-s", "rootfs")
	script.Stdin = bytes.NewReader(images.DebianScript())
	script.Stderr = log
	script.WaitDelay = time.Second // for what the script started, once it is stopped
	files, err := script.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make %s: %w", images.Debian, err)
	}
	if err := script.Start(); err != nil {
		return fmt.Errorf("make %s: %w", images.Debian, err)
	}
	err = s.builder.cfg.Engine.Import(ctx, images.Debian, files, []string{`CMD ["bash"]`})
	if err := errors.Join(err, script.Wait()); err != nil {
		return fmt.Errorf("make %s: %w", images.Debian, err)
	}
	return nil
}
