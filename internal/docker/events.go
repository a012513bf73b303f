package docker

import (
	"context"
	"time"

	"github.com/docker/docker/api/types/events"

	"github.com/berth-host/berth/internal/engine"
)

// exits reports the ends of the containers that carry the labels, from this
// call on. When the stream breaks or ctx ends, the second channel gets the one
// error and nothing more arrives: whoever still wants to know calls again and
// then looks at the containers, as ends in between are not repeated.
func (e *Engine) exits(ctx context.Context, labels Labels) (<-chan engine.End, <-chan error) {
	filter := byLabel(labels)
	filter.Add("type", string(events.ContainerEventType))
	filter.Add("event", string(events.ActionDie))
	// The engine answers before it subscribes; since covers the gap.
	messages, broken := e.api.Events(ctx, events.ListOptions{Since: unixNano(time.Now()), Filters: filter})

	exits, failed := make(chan engine.End), make(chan error, 1)
	go func() {
		for {
			select {
			case err := <-broken:
				failed <- wrap(err, "watch exits")
				return
			case message := <-messages:
				select {
				case exits <- engine.End{ID: message.Actor.ID, Key: engine.KeyOf(message.Actor.Attributes)}:
				case <-ctx.Done(): // the next error is ctx's
				}
			}
		}
	}()
	return exits, failed
}
