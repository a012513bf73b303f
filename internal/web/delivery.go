package web

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Webhooks sends deliveries at an owner's request; package webhook implements it.
type Webhooks interface {
	// Resend delivers an event once more, under the same delivery id, and returns the
	// result. It fails with a *stack.Error of kind NotFound for an event that the stack
	// does not have.
	Resend(ctx context.Context, stackID string, eventID int64) (store.Delivery, error)
	// Test sends an event although the stack has not changed, and returns the result.
	Test(ctx context.Context, stackID string) (store.Delivery, error)
}

// latestDeliveries is the number of deliveries that a stack's page shows.
const latestDeliveries = 20

// delivery formats a store.Delivery for the page.
type delivery struct{ sent store.Delivery }

// ok reports whether the receiver took the delivery.
func (d delivery) ok() bool { return d.sent.Error == "" }

// outcome returns the result in a word.
func (d delivery) outcome() string {
	if d.sent.Status == 0 {
		return "no response"
	}
	return strconv.Itoa(d.sent.Status)
}

// words returns the beginning of the answer's body, or else the error.
func (d delivery) words() string { return cmp.Or(d.sent.Words, d.sent.Error) }

func (d delivery) took() string {
	if d.sent.Status == 0 {
		return "–"
	}
	return inShort(d.sent.Duration)
}

// attempt returns the number of the attempt, from 1.
func (d delivery) attempt() string {
	if d.sent.Attempt == 0 {
		return "manual"
	}
	return strconv.Itoa(d.sent.Attempt)
}

// recorded reports whether the event is in the stack's history. A test event is not,
// and cannot be sent again.
func (d delivery) recorded() bool { return d.sent.EventID > 0 }

// summary says how a delivery sent by hand went.
func (d delivery) summary(what string) string {
	if d.sent.Status == 0 {
		return what + ", and " + d.sent.Error + "."
	}
	return fmt.Sprintf("%s; the receiver answered %d.", what, d.sent.Status)
}

// showDeliveries returns a stack's last deliveries.
func (w *pages) showDeliveries(s *stack.Stack) ([]delivery, error) {
	if s.Webhook == "" {
		return nil, nil
	}
	list, err := w.cfg.Store.Deliveries(w.server.Context(), s.ID, latestDeliveries)
	if err != nil {
		return nil, fmt.Errorf("read the deliveries of stack %s: %w", s.ID, err)
	}
	shown := make([]delivery, len(list))
	for i, d := range list {
		shown[i] = delivery{d}
	}
	return shown, nil
}

// resendDelivery answers POST /dashboard/stacks/{id}/deliveries/{event}.
func (w *pages) resendDelivery(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	id, err := strconv.ParseInt(c.Params("event"), 10, 64)
	if err != nil {
		return fiber.ErrNotFound
	}
	d, err := w.cfg.Webhooks.Resend(w.server.Context(), st.ID, id)
	return w.backToStack(c, st, err, delivery{d}.summary(fmt.Sprintf("Delivery %d was sent again", id)))
}

// testDelivery answers POST /dashboard/stacks/{id}/deliveries/test.
func (w *pages) testDelivery(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	d, err := w.cfg.Webhooks.Test(w.server.Context(), st.ID)
	return w.backToStack(c, st, err, delivery{d}.summary("A test event was sent"))
}
