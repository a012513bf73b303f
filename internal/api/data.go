package api

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/stack"
)

// readData answers GET /v0/stacks/{id}/services/{name}/data.
func (a *API) readData(c *fiber.Ctx, s *stack.Stack, role string) error {
	if err := a.gate.requireOwner(s, role, "read its data"); err != nil {
		return err
	}
	service := c.Params("name")
	if err := s.CheckDataRead(shorten(service), stack.Now()); err != nil {
		return err
	}
	stop, err := queryFlag(c, "stop")
	if err != nil {
		return err
	}
	name, mediaType := s.DataFile(service)
	return a.server.SendDownload(c, mediaType, name, func(ctx context.Context, w io.Writer) error {
		return a.cfg.Host.ReadData(ctx, s.ID, service, stop, w)
	})
}

// replaceData answers PUT /v0/stacks/{id}/services/{name}/data.
func (a *API) replaceData(c *fiber.Ctx, s *stack.Stack, role string) error {
	if err := a.gate.requireOwner(s, role, "replace its data"); err != nil {
		return err
	}
	service := c.Params("name")
	if err := s.CheckData(shorten(service), stack.Now()); err != nil {
		return err
	}
	body := bodyOf(c.Context())
	replaced, err := a.cfg.Host.ReplaceData(a.server.Context(), s.ID, service, body)
	switch {
	case err == nil:
		return c.JSON(a.view(replaced))
	case stack.KindOf(err) == stack.Conflict: // the body was not read to its end
		return err
	case slowbody.Stalled(body.err):
		return invalid("%s", stalledDetail(body.read))
	case body.broken() != nil && !errors.Is(body.err, io.ErrUnexpectedEOF):
		return invalid("the upload broke off after %d bytes, before its end; send it again", body.read)
	}
	return fmt.Errorf("replace the data of %s: %w", service, err)
}
