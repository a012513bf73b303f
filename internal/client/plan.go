package client

import (
	"context"

	"github.com/berth-host/berth/internal/manifest"
)

// Validate returns what a create would make of a source, without building anything.
// Faults of the source are in the plan, not an error. Servers older than this route
// answer 404 or 405.
func (c *Client) Validate(ctx context.Context, u Upload) (*manifest.Plan, error) {
	return read(func(p *manifest.Plan) error { return c.uploadForm(ctx, "/v0/validate", u, p) })
}
