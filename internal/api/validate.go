package api

import (
	"fmt"
	"mime"
	"os"
	"path/filepath"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/stack"
)

// validateRetry is the Retry-After of the limit on validations.
const validateRetry = time.Minute

// validate answers POST /v0/validate: what a create would make of the source.
// Nothing is built and nothing is kept. What is wrong with the manifest or the
// source is in the answer; an upload that cannot be read is an error, as it is
// for a create.
func (a *API) validate(c *fiber.Ctx) error {
	owner, err := a.creator(c)
	if err != nil {
		return err
	}
	if err := a.room(); err != nil {
		return err
	}
	allowed := a.Validations.Allow(a.base, a.network(c))
	a.showQuota(c, a.Validations, a.network(c))
	if !allowed {
		return stack.NewTooMany(validateRetry)
	}
	dir, err := a.Host.TempDir()
	if err != nil {
		return fmt.Errorf("make a folder for the upload: %w", err)
	}
	defer a.removeAll(dir)
	v, err := a.plan(c, owner, dir)
	if err != nil {
		return err
	}
	return c.JSON(v)
}

// plan reads the upload into dir and resolves it, for a stack of the owner or,
// where that is "", an anonymous one.
func (a *API) plan(c *fiber.Ctx, owner, dir string) (*manifest.Plan, error) {
	f, err := a.sourceOf(c, dir)
	if err != nil {
		return nil, err
	}
	done, err := a.turn(c, a.Unpacks, time.Now().Add(a.UnpackWait))
	if err != nil {
		return nil, err
	}
	defer done()
	if f.list != "" {
		if f, err = a.files(f.list, dir); err != nil {
			return nil, err
		}
	}
	u, err := a.tree(f, dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(u.project)
	if err != nil {
		return nil, fmt.Errorf("read the upload: %w", err)
	}
	defer root.Close()
	req := f.request()
	if owner == "" {
		req.CheckTTL = a.checkTTL
	}
	return manifest.NewPlan(manifest.Check(root.FS(), u.name, req)), nil
}

// sourceOf puts on disk a form, as a create has it, or else a list of files in
// JSON, whatever its Content-Type.
func (a *API) sourceOf(c *fiber.Ctx, dir string) (form, error) {
	media, _, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err == nil && media == fiber.MIMEMultipartForm {
		return a.upload(c, createForm, dir)
	}
	list := filepath.Join(dir, "list")
	return form{list: list}, a.spoolFiles(bodyOf(c.Context()), list)
}
