package docker

import (
	"context"
	"time"

	"github.com/docker/docker/api/types/events"

	"github.com/berth-host/berth/internal/engine"
)

// Ended is engine.Driver's.
func (d *Driver) Ended(ctx context.Context) (<-chan engine.End, <-chan error) {
	filter := d.of(engine.Key{})
	filter.Add("type", string(events.ContainerEventType))
	filter.Add("event", string(events.ActionDie))
	// The engine answers before it subscribes; Since covers the gap.
	messages, broken := d.api.Events(ctx, events.ListOptions{Since: unixNano(time.Now()), Filters: filter})

	ends, failed := make(chan engine.End), make(chan error, 1)
	go func() {
		for {
			select {
			case err := <-broken:
				failed <- wrap(err, "watch exits")
				return
			case message := <-messages:
				select {
				case ends <- engine.End{ID: message.Actor.ID, Key: engine.KeyOf(message.Actor.Attributes)}:
				case <-ctx.Done(): // the next error is ctx's
				}
			}
		}
	}()
	return ends, failed
}
