package api

import (
	"io/fs"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/manifest"
)

// validate answers POST /v0/validate with what a create would make of the manifest. It
// builds nothing and keeps nothing. Faults of the manifest or the source are part of
// the answer; an upload that cannot be read is an error, as for a create.
func (a *API) validate(c *fiber.Ctx) error {
	owner, err := a.gate.creator(c)
	if err != nil {
		return err
	}
	if err := a.uploads.room(); err != nil {
		return err
	}
	if err := a.quotas.count(c, a.cfg.Validations); err != nil {
		return err
	}
	var plan *manifest.Plan
	err = a.uploads.receiveFormOrList(c, func(u *upload) error {
		return u.withTree(c, u.turnBy(), func(tree fs.FS, unpacked unpacked) error {
			req := u.form.request(a.lifetimeCheck(owner))
			plan = manifest.NewPlan(manifest.Check(tree, unpacked.name, req))
			return nil
		})
	})
	if err != nil {
		return err
	}
	return c.JSON(plan)
}
