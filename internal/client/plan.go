package client

import (
	"context"

	"github.com/berth-host/berth/internal/manifest"
)

// Validate asks what a create would make of a source; nothing is built. What is
// wrong with the source is in the plan, not an error. A server from before this
// route answers 404 or 405.
func (c *Client) Validate(ctx context.Context, u Upload) (*manifest.Plan, error) {
	p := &manifest.Plan{}
	if err := c.upload(ctx, "/v0/validate", u, p); err != nil {
		return nil, err
	}
	return p, nil
}
