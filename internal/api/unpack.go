package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// maxChecks is how many requests are checked at once: a hostile manifest takes up
// to 20 MB while it is read.
const maxChecks = 4

// unpacked is an upload on disk.
type unpacked struct {
	project string // the project's folder
	name    string // of the one folder that the archive held, or ""
	lost    []stack.Lost
}

// turn waits for a place in a line of uploads that are on disk, until the deadline:
// after it the error is Unavailable. A line takes one of each client network before
// a second of any, since each takes memory. The caller calls done once. A client
// that goes away leaves the line.
func (a *API) turn(c *fiber.Ctx, line *fair.Queue, deadline time.Time) (done func(), err error) {
	gone := a.hangup(c.Context())
	ctx, cancel := context.WithDeadline(a.base, deadline)
	defer cancel()
	go func() {
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	done, err = line.Acquire(ctx, a.network(c), func(int) {})
	if err != nil {
		return nil, &stack.Error{
			Kind:       stack.Unavailable,
			Detail:     fmt.Sprintf("too many uploads are under way here, and this one waited %s for its turn; send it again in a minute", stack.FormatDuration(a.UnpackWait)),
			RetryAfter: unpackRetry,
		}
	}
	return done, nil
}

// unpack turns an upload into a tree below dir and the manifest that it asks
// for, with a lifetime that checkTTL takes. What is wrong with the request by
// itself is told before anything is unpacked. It returns the project's folder in
// that tree.
func (a *API) unpack(c *fiber.Ctx, f form, dir string, checkTTL func(time.Duration) error) (string, *stack.Manifest, error) {
	req := f.request()
	req.CheckTTL = checkTTL
	deadline := time.Now().Add(a.UnpackWait)
	if err := a.check(c, req, deadline); err != nil {
		return "", nil, err
	}
	done, err := a.turn(c, a.Unpacks, deadline)
	if err != nil {
		return "", nil, err
	}
	defer done()
	u, err := a.tree(f, dir)
	if err != nil {
		return "", nil, err
	}
	root, err := os.OpenRoot(u.project)
	if err != nil {
		return "", nil, fmt.Errorf("read the upload: %w", err)
	}
	defer root.Close()
	m, err := manifest.Resolve(root.FS(), u.name, req)
	if err != nil {
		return "", nil, fmt.Errorf("resolve the manifest: %w", err)
	}
	for i := range m.Services {
		m.Services[i].Lost = u.lost
	}
	return u.project, m, nil
}

// check finds what is wrong with a request by itself.
func (a *API) check(c *fiber.Ctx, req manifest.Request, deadline time.Time) error {
	done, err := a.turn(c, a.checks, deadline)
	if err != nil {
		return err
	}
	defer done()
	if err := manifest.CheckRequest(req); err != nil {
		return fmt.Errorf("check the request: %w", err)
	}
	return nil
}

// tree unpacks an upload below dir.
func (a *API) tree(f form, dir string) (u unpacked, err error) {
	tree := filepath.Join(dir, "source")
	if u.lost, err = a.extract(f.archive, tree); err == nil {
		u.project, u.name, err = archive.Root(tree)
	}
	if err != nil {
		return unpacked{}, fmt.Errorf("unpack the upload: %w", err)
	}
	return u, nil
}

// extract unpacks an archive into a new folder and removes its file, so that an
// upload takes its place on the disk only once. It returns what was left out.
func (a *API) extract(file, tree string) ([]stack.Lost, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if err := os.Mkdir(tree, 0o700); err != nil {
		return nil, err
	}
	failpoint.Here("upload-stored")
	limits := a.Unpacked
	limits.Room = a.room
	lost, err := archive.Unpack(a.base, in, tree, limits)
	return lost, errors.Join(err, os.Remove(file))
}

// request is what the form says besides its archive. A text that is empty
// counts as left out; manifest_file goes before manifest.
func (f form) request() manifest.Request {
	r := manifest.Request{
		Name:       string(f.texts["name"]),
		TTL:        string(f.texts["ttl"]),
		ClaimEmail: string(f.texts["claim_email"]),
	}
	if text := f.texts["manifest_file"]; len(text) > 0 {
		r.Manifest, r.ManifestName = text, f.manifestFile
	} else if text := f.texts["manifest"]; len(text) > 0 {
		r.Manifest, r.ManifestName = text, "manifest"
	}
	return r
}
