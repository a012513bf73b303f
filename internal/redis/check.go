package redis

import (
	"context"
	"time"
)

// checkTime is how long Redis may take to answer a check.
const checkTime = 5 * time.Second

// Check returns an error unless Redis accepts writes. It neither notes that Redis is away
// nor that it is back.
func (c *Client) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	return c.rdb.Set(ctx, probeKey, "", probeEvery).Err()
}
