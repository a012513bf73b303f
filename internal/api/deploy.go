package api

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// deploy answers POST /v0/stacks/{id}/deploy.
func (a *API) deploy(c *fiber.Ctx, s *stack.Stack, role string) error {
	t, err := a.receipts.begin(c, deploying, s.ID, role)
	if err != nil {
		return err
	}
	defer t.releaseKey()
	if t.earlier != nil {
		return a.repeat(c, t)
	}
	wait, fail, err := deploying.wantsOutcome(c)
	if err != nil {
		return err
	}
	if err := refuseEarly(c, s); err != nil {
		return err
	}
	if _, err := matchSource(c, s); err != nil {
		return err
	}
	if err := a.cfg.Host.CheckDisk(a.server.Context(), s.ID); err != nil {
		return err
	}
	if err := a.cfg.Admission.Admit(!s.Claimed()); err != nil {
		return err
	}
	s, secrets, err := a.deployStack(c, s.ID, t)
	if err != nil {
		return err
	}
	return a.answerFirst(c, t, s, secrets, wait, fail)
}

// refuseEarly refuses, before anything of the body is read, what the host would refuse
// after it. A small body is read all the same while a deploy is under way, since it may
// say that it supersedes that.
func refuseEarly(c *fiber.Ctx, s *stack.Stack) error {
	supersede, err := queryFlag(c, "supersede")
	if err != nil {
		return err
	}
	return deployable(*s, supersede || bodyOf(c.Context()).declared <= mostUpload)
}

// deployable refuses what the host would refuse. It tries the deploy on a copy.
func deployable(s stack.Stack, supersede bool) error {
	deploy := s.Deploy
	if supersede {
		deploy = s.Supersede
	}
	_, err := deploy(nil, stack.Now())
	return err
}

// deployStack receives the upload and hands it to the host. It ignores the name, ttl
// and claim_email of its manifest: they were fixed at creation.
func (a *API) deployStack(c *fiber.Ctx, id string, t *attempt) (s *stack.Stack, secrets oneTime, err error) {
	secret := auth.NewWebhookSecret()
	err = a.uploads.receive(c, t.op.shape, func(u *upload) error {
		supersede, err := u.form.flag("supersede")
		if err != nil {
			return err
		}
		fresh, err := u.form.flag("fresh")
		if err != nil {
			return err
		}
		over, err := a.prepare(c, u, id, supersede)
		if err != nil {
			return err
		}
		src, manifest, err := u.unpack(c, nil)
		if err != nil {
			return a.overtaken(u, id, err)
		}
		next := source.Upload{Source: src, Manifest: manifest, WebhookSecret: secret, Supersede: supersede, Fresh: fresh, Over: over}
		return t.record(u.form.digest(), src.Digest(), oneTime{WebhookSecret: secret}, func(r *store.Receipt) (err error) {
			if s, err = a.cfg.Host.Deploy(a.server.Context(), id, next, r); err != nil {
				return fmt.Errorf("deploy stack %s: %w", id, err)
			}
			return nil
		})
	})
	if err != nil || s.WebhookSecret != secret {
		return s, oneTime{}, err // no webhook, or it keeps the secret that it has
	}
	return s, oneTime{WebhookSecret: secret}, nil
}

// prepare refuses an upload, before it is unpacked, if another one came first, and tells
// an upload of changes what it changes. It returns the digest of the source that the
// stack must still have when the deploy is accepted, "" for any.
func (a *API) prepare(c *fiber.Ctx, u *upload, id string, supersede bool) (over string, err error) {
	s, err := a.gate.find(id)
	if err != nil {
		return "", err
	}
	if err := deployable(*s, supersede); err != nil {
		return "", err
	}
	if u.form.changes() {
		if err := u.form.checkBase(s); err != nil {
			return "", err
		}
		u.over, u.kept = s.Generation.Source, a.cfg.Dir.Source(id, s.Generation.Source.Folder)
		over = u.over.Digest
	}
	wanted, err := matchSource(c, s)
	return cmp.Or(over, wanted), err
}

// overtaken returns why changes could not be laid over a source: another deploy has
// replaced it meanwhile, or else the given error.
func (a *API) overtaken(u *upload, id string, err error) error {
	if stack.KindOf(err) != stack.Conflict {
		return err
	}
	if s, found := a.gate.find(id); found == nil && s.Generation.Source != u.over {
		return s.CheckDigest(u.over.Digest)
	}
	a.cfg.Log.Error("kept source is gone or damaged", "stack", id, "error", err)
	return err
}

// changes reports whether a form changes the kept source instead of replacing it.
func (f *form) changes() bool {
	return f.archive == "" || len(f.deletions) > 0 || f.texts["base"] != nil
}

// checkBase returns why the form's changes cannot be laid over what a stack serves. A
// manifest alone needs no base.
func (f *form) checkBase(s *stack.Stack) error {
	base, given := f.texts["base"]
	if s.Generation.Source.Folder == "" {
		return s.CheckBase(0) // whatever the number
	}
	if !given && (f.archive != "" || len(f.deletions) > 0) {
		return unprocessable("delete needs base, the generation in whose source the paths are; generation %d is served", s.Generation.Number)
	}
	if !given {
		return s.CheckBase(s.Generation.Number)
	}
	number, err := strconv.Atoi(string(base))
	if err != nil || number < 1 {
		return invalid("base must be the number of the generation whose source you change, not %q; generation %d is served", shorten(string(base)), s.Generation.Number)
	}
	return s.CheckBase(number)
}

// matchSource checks the If-Match of a request against a stack's source, and returns the
// digest that it asks for, "" for none or any.
func matchSource(c *fiber.Ctx, s *stack.Stack) (string, error) {
	wanted := appserver.ETags(c.Get(fiber.HeaderIfMatch))
	switch {
	case len(wanted) == 0:
		return "", nil
	case slices.Contains(wanted, "*"):
		return "", s.CheckDigest("*")
	case slices.Contains(wanted, s.Generation.Source.Digest):
		return s.Generation.Source.Digest, nil
	}
	return "", s.CheckDigest(wanted[0])
}
