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
	err = a.uploads.receive(c, validateShape, func(u *upload) (err error) {
		plan, err = u.plan(c, u.form.request(a.lifetimeCheck(owner)))
		return err
	})
	if err != nil {
		return err
	}
	return c.JSON(plan)
}

// plan returns what would be built and run; of a manifest alone, what it says.
func (u *upload) plan(c *fiber.Ctx, req manifest.Request) (plan *manifest.Plan, err error) {
	if u.form.archive == "" {
		done, err := u.from.waitTurn(c, u.from.checks, u.turnBy())
		if err != nil {
			return nil, err
		}
		defer done()
		return manifest.NewPlan(manifest.CheckAlone(req)), nil
	}
	err = u.withTree(c, u.turnBy(), func(tree fs.FS, unpacked unpacked) error {
		plan = manifest.NewPlan(manifest.Check(tree, unpacked.name, req))
		return nil
	})
	return plan, err
}
