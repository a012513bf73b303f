package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// unpackRetry is the Retry-After of an upload whose turn did not come.
const unpackRetry = time.Minute

// maxChecks limits the requests that are checked at once: reading a hostile manifest
// takes up to 20 MB.
const maxChecks = 4

// unpacked is an upload's source on disk.
type unpacked struct {
	source *source.Source
	name   string           // of the only folder in the archive, or ""
	given  manifest.Request // what counts if the request has no manifest
	lost   []stack.Lost
}

// waitTurn waits for a place in a queue of uploads on disk until the deadline, after
// which it returns Unavailable. Uploads take memory, so the queue serves one of each
// network before a second of any. A caller that hangs up leaves the queue. The caller
// of waitTurn must call done once.
func (u *uploads) waitTurn(c *fiber.Ctx, line *fair.Queue, deadline time.Time) (done func(), err error) {
	gone := hangup(c.Context())
	ctx, cancel := context.WithDeadline(u.base, deadline)
	defer cancel()
	go func() {
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	done, err = line.Acquire(ctx, u.network(c), func(int) {})
	if err != nil {
		return nil, &stack.Error{
			Kind:       stack.Unavailable,
			Detail:     fmt.Sprintf("too many uploads are being processed, and this one waited %s for its turn; send it again in a minute", stack.FormatDuration(u.cfg.UnpackWait)),
			RetryAfter: unpackRetry,
		}
	}
	return done, nil
}

// turnBy returns the time by which an upload that is on disk now must get its turn.
func (u *upload) turnBy() time.Time { return time.Now().Add(u.from.cfg.UnpackWait) }

// unpack unpacks the upload and resolves the manifest that it asks for, whose lifetime
// checkTTL must accept. It reports faults of the request itself before it unpacks
// anything. It returns the saved source.
func (u *upload) unpack(c *fiber.Ctx, checkTTL func(time.Duration) error) (src *source.Source, m *stack.Manifest, err error) {
	req := u.form.request(checkTTL)
	deadline := u.turnBy()
	if err := u.from.check(c, req, deadline); err != nil {
		return nil, nil, err
	}
	err = u.withTree(c, deadline, func(tree fs.FS, unpacked unpacked) error {
		if req.Manifest == nil {
			req.Manifest, req.ManifestName = unpacked.given.Manifest, unpacked.given.ManifestName
		}
		if m, err = manifest.Resolve(tree, unpacked.name, req); err != nil {
			return fmt.Errorf("resolve the manifest: %w", err)
		}
		for i := range m.Services {
			m.Services[i].Lost = unpacked.lost
		}
		src = unpacked.source
		return src.Save(u.from.seal(req, src.Digest()))
	})
	return src, m, err
}

// check returns what is wrong with the request itself.
func (u *uploads) check(c *fiber.Ctx, req manifest.Request, deadline time.Time) error {
	done, err := u.waitTurn(c, u.checks, deadline)
	if err != nil {
		return err
	}
	defer done()
	if err := manifest.CheckRequest(req); err != nil {
		return fmt.Errorf("check the request: %w", err)
	}
	return nil
}

// withTree waits for the upload's turn, unpacks it and calls use with its tree.
func (u *upload) withTree(c *fiber.Ctx, deadline time.Time, use func(tree fs.FS, unpacked unpacked) error) error {
	done, err := u.from.waitTurn(c, u.from.cfg.Unpacks, deadline)
	if err != nil {
		return err
	}
	defer done()
	unpacked, err := u.extract()
	if err != nil {
		return fmt.Errorf("unpack the upload: %w", err)
	}
	root, err := os.OpenRoot(unpacked.source.Tree())
	if err != nil {
		return fmt.Errorf("read the upload: %w", err)
	}
	defer root.Close()
	return use(root.FS(), unpacked)
}

// extract makes the upload's source in a new folder and removes the archive's file, so
// that an upload takes its space on the disk only once.
func (u *upload) extract() (t unpacked, err error) {
	dir := u.dir.source()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return unpacked{}, err
	}
	failpoint.Here("upload-stored")
	if u.form.archive == "" {
		return u.overlay(nil)
	}
	in, err := os.Open(u.form.archive)
	if err != nil {
		return unpacked{}, err
	}
	defer in.Close()
	if u.over != (stack.Source{}) {
		t, err = u.overlay(in)
	} else {
		t.source, t.name, t.lost, err = source.New(u.from.base, in, dir, u.from.limits())
	}
	return t, errors.Join(err, os.Remove(u.form.archive))
}

// overlay lays the upload over the kept source. The manifest that was given with that one
// counts, unless the upload has another.
func (u *upload) overlay(in io.Reader) (t unpacked, err error) {
	base, err := source.Load(u.kept, u.over.Digest)
	if err != nil {
		return unpacked{}, err
	}
	changes := source.Changes{Archive: in, Delete: u.form.deletions, KeepModes: u.form.modeless}
	if t.source, t.lost, err = base.Overlay(u.from.base, changes, u.dir.source(), u.from.limits()); err != nil {
		return unpacked{}, err
	}
	if !slices.ContainsFunc(t.source.Written(), func(path string) bool { return slices.Contains(manifest.Files, path) }) {
		t.given, err = u.from.open(base)
	}
	return t, err
}

// kept is the name under which the manifest of a request is sealed with its source.
const kept = "manifest"

// seal returns the manifest of a request as it is kept with the source that has a digest.
func (u *uploads) seal(req manifest.Request, digest string) source.Manifest {
	if req.Manifest == nil {
		return source.Manifest{}
	}
	return source.Manifest{Name: req.ManifestName, Sealed: u.sealer.Seal(req.Manifest, digest, kept)}
}

// open returns the manifest that was given with a kept source.
func (u *uploads) open(s *source.Source) (given manifest.Request, err error) {
	m := s.Manifest()
	if m.Sealed == nil {
		return manifest.Request{}, nil
	}
	text, err := u.sealer.Open(m.Sealed, s.Digest(), kept)
	return manifest.Request{Manifest: text, ManifestName: m.Name}, err
}

// limits returns the limits of an upload's content.
func (u *uploads) limits() archive.Limits {
	return archive.Limits{MaxUnpacked: u.cfg.Unpacked.MaxUnpacked, MaxEntries: u.cfg.Unpacked.MaxEntries, Room: u.room}
}

// request returns what the form contains besides its archive; checkTTL must accept its
// lifetime. An empty text counts as left out; manifest_file takes precedence over manifest.
func (f form) request(checkTTL func(time.Duration) error) manifest.Request {
	r := manifest.Request{
		Name:       string(f.texts["name"]),
		TTL:        string(f.texts["ttl"]),
		ClaimEmail: string(f.texts["claim_email"]),
		CheckTTL:   checkTTL,
	}
	if text := f.texts["manifest_file"]; len(text) > 0 {
		r.Manifest, r.ManifestName = text, f.manifestFile
	} else if text := f.texts["manifest"]; len(text) > 0 {
		r.Manifest, r.ManifestName = text, "manifest"
	}
	return r
}
