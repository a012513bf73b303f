package api

import (
	"fmt"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
)

// restart answers POST /v0/stacks/{id}/restart.
func (a *API) restart(c *fiber.Ctx, s *stack.Stack, _ string) error {
	s, err := a.cfg.Host.Restart(a.server.Context(), s.ID, c.Query("service"))
	if err != nil {
		return fmt.Errorf("restart the stack: %w", err)
	}
	return c.JSON(a.view(s))
}
