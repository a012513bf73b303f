package docker

import (
	"context"
	"strconv"
	"time"

	"github.com/docker/docker/api/types/events"
)

// Exit tells that a container's main process ended, or, when OOM is set, that
// the kernel killed some process of it for memory: the container may go on.
type Exit struct {
	ContainerID string
	Labels      Labels // the container's, and the engine's attributes: name, image, exitCode
	ExitCode    int    // -1 when OOM is set
	OOM         bool
	At          time.Time
}

// Exits reports the ends of the containers that carry the labels, from this
// call on. When the stream breaks or ctx ends, the second channel gets the one
// error and nothing more arrives: whoever still wants to know calls again and
// then looks at the containers, as ends in between are not repeated.
func (e *Engine) Exits(ctx context.Context, labels Labels) (<-chan Exit, <-chan error) {
	filter := byLabel(labels)
	filter.Add("type", string(events.ContainerEventType))
	filter.Add("event", string(events.ActionDie))
	filter.Add("event", string(events.ActionOOM))
	// The engine answers before it subscribes; since covers the gap.
	messages, broken := e.api.Events(ctx, events.ListOptions{Since: unixNano(time.Now()), Filters: filter})

	exits, failed := make(chan Exit), make(chan error, 1)
	go func() {
		for {
			select {
			case err := <-broken:
				failed <- wrap(err, "watch exits")
				return
			case message := <-messages:
				select {
				case exits <- exitOf(&message):
				case <-ctx.Done(): // the next error is ctx's
				}
			}
		}
	}()
	return exits, failed
}

func exitOf(message *events.Message) Exit {
	exit := Exit{
		ContainerID: message.Actor.ID,
		Labels:      message.Actor.Attributes,
		ExitCode:    -1,
		OOM:         message.Action == events.ActionOOM,
		At:          time.Unix(0, message.TimeNano),
	}
	if code, err := strconv.Atoi(message.Actor.Attributes["exitCode"]); err == nil && !exit.OOM {
		exit.ExitCode = code
	}
	return exit
}
