package webhook

import (
	"context"
	"fmt"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// eventTest is the type of the event that Test sends. It is never recorded.
const eventTest stack.EventType = "webhook.test"

// Resend sends an event of a stack to its webhook once more: one attempt, with the same
// delivery id as always. It returns the result, a Delivery with Attempt 0; a failing
// receiver is not an error. A *stack.Error says what the caller has to change.
func (d *Dispatcher) Resend(ctx context.Context, stackID string, eventID int64) (store.Delivery, error) {
	e, ok, err := d.cfg.Store.Event(ctx, eventID)
	if err != nil {
		return store.Delivery{}, err
	}
	if !ok || e.StackID != stackID {
		return store.Delivery{}, stack.NewError(stack.NotFound, fmt.Sprintf("event %d does not belong to this stack; use the id of one of its events", eventID))
	}
	return d.sendByHand(ctx, job{stack: stackID, event: eventID})
}

// Test sends an event of type eventTest to a stack's webhook in one attempt, like
// Resend. The event is not recorded; its id is below 0, so that receivers do not take
// it for a recorded event or for a cursor to poll from.
func (d *Dispatcher) Test(ctx context.Context, stackID string) (store.Delivery, error) {
	now := stack.Now()
	e := &stack.Event{
		ID:        -now.UnixMicro(),
		StackID:   stackID,
		Type:      eventTest,
		Data:      map[string]any{"message": "This is a test. Nothing happened to the stack."},
		CreatedAt: now,
	}
	return d.sendByHand(ctx, job{stack: stackID, event: e.ID, test: e})
}

// sendByHand makes an attempt before all others of its stack.
func (d *Dispatcher) sendByHand(ctx context.Context, j job) (store.Delivery, error) {
	_, ok, err := d.cfg.Store.Webhook(ctx, j.stack)
	if err != nil {
		return store.Delivery{}, err
	}
	if !ok {
		return store.Delivery{}, errNoWebhook
	}
	replies := make(chan replied, 1)
	j.replies = replies
	d.lanes.addJob(j, true)
	select {
	case r := <-replies:
		return r.delivery, r.err
	case <-d.ctx.Done():
		return store.Delivery{}, stack.NewError(stack.Unavailable, "the server is stopping; try again in a minute")
	case <-ctx.Done():
		return store.Delivery{}, ctx.Err()
	}
}

var errNoWebhook = stack.NewError(stack.Conflict, "this stack has no webhook; deploy it with notify: {webhook: https://…} in its manifest")
