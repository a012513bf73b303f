package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/stack"
)

// unpackRetry is the Retry-After of an upload whose turn did not come.
const unpackRetry = time.Minute

// maxChecks limits the requests that are checked at once: reading a hostile manifest
// takes up to 20 MB.
const maxChecks = 4

// unpacked is an upload's tree on disk.
type unpacked struct {
	project string // the project's folder
	name    string // of the only folder in the archive, or ""
	lost    []stack.Lost
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
// anything. It returns the project's folder.
func (u *upload) unpack(c *fiber.Ctx, checkTTL func(time.Duration) error) (project string, m *stack.Manifest, err error) {
	req := u.form.request(checkTTL)
	deadline := u.turnBy()
	if err := u.from.check(c, req, deadline); err != nil {
		return "", nil, err
	}
	err = u.withTree(c, deadline, func(tree fs.FS, unpacked unpacked) error {
		if m, err = manifest.Resolve(tree, unpacked.name, req); err != nil {
			return fmt.Errorf("resolve the manifest: %w", err)
		}
		for i := range m.Services {
			m.Services[i].Lost = unpacked.lost
		}
		project = unpacked.project
		return nil
	})
	return project, m, err
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
	if u.form.list != "" {
		if u.form, err = u.from.pack(u.form.list, u.dir); err != nil {
			return err
		}
	}
	unpacked, err := u.from.tree(u.form, u.dir)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(unpacked.project)
	if err != nil {
		return fmt.Errorf("read the upload: %w", err)
	}
	defer root.Close()
	return use(root.FS(), unpacked)
}

// tree unpacks an upload in its folder.
func (u *uploads) tree(f form, dir folder) (t unpacked, err error) {
	tree := dir.tree()
	if t.lost, err = u.extract(f.archive, tree); err == nil {
		t.project, t.name, err = archive.Root(tree)
	}
	if err != nil {
		return unpacked{}, fmt.Errorf("unpack the upload: %w", err)
	}
	return t, nil
}

// extract unpacks an archive into a new folder and removes its file, so that an upload
// takes its space on the disk only once. It returns what was left out.
func (u *uploads) extract(file, tree string) ([]stack.Lost, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if err := os.Mkdir(tree, 0o700); err != nil {
		return nil, err
	}
	failpoint.Here("upload-stored")
	limits := archive.Limits{MaxUnpacked: u.cfg.Unpacked.MaxUnpacked, MaxEntries: u.cfg.Unpacked.MaxEntries, Room: u.room}
	lost, err := archive.Unpack(u.base, in, tree, limits)
	return lost, errors.Join(err, os.Remove(file))
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
