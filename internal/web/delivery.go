package web

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Webhooks send deliveries at an owner's wish; package webhook implements it.
type Webhooks interface {
	// Resend delivers an event once more, under the same delivery id, and tells
	// what came of it. An event that the stack does not have is a *stack.Error
	// of kind NotFound.
	Resend(ctx context.Context, stackID string, eventID int64) (store.Delivery, error)
	// Test sends an event that stands for no change of the stack.
	Test(ctx context.Context, stackID string) (store.Delivery, error)
}

// latestDeliveries is how many a stack's page shows.
const latestDeliveries = 20

// delivery is a store.Delivery as the page words it.
type delivery struct{ store.Delivery }

// ok tells whether the receiver took the delivery.
func (d delivery) ok() bool { return d.Error == "" }

// outcome is the answer in a word.
func (d delivery) outcome() string {
	if d.Status == 0 {
		return "no answer"
	}
	return strconv.Itoa(d.Status)
}

// words are the first of the answer, or else what is wrong with it.
func (d delivery) words() string { return cmp.Or(d.Words, d.Error) }

func (d delivery) took() string {
	switch {
	case d.Status == 0:
		return "–"
	case d.Duration < time.Second:
		return fmt.Sprintf("%d ms", d.Duration.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Duration.Seconds())
}

// attempt is the number of the attempt, from 1.
func (d delivery) attempt() string {
	if d.Attempt == 0 {
		return "by hand"
	}
	return strconv.Itoa(d.Attempt)
}

// recorded tells whether the event is one of the stack's history: a test is
// not, and cannot be sent again.
func (d delivery) recorded() bool { return d.EventID > 0 }

// told says what came of a delivery that was sent by hand.
func (d delivery) told(what string) string {
	if d.Status == 0 {
		return what + ", and " + d.Error + "."
	}
	return fmt.Sprintf("%s; the receiver answered %d.", what, d.Status)
}

// showDeliveries are a stack's last deliveries.
func (w *Web) showDeliveries(s *stack.Stack) (deliveriesView, error) {
	v := deliveriesView{Stack: s.ID, To: s.Webhook}
	if s.Webhook == "" {
		return v, nil
	}
	list, err := w.Store.Deliveries(w.base, s.ID, latestDeliveries)
	if err != nil {
		return v, fmt.Errorf("read the deliveries of stack %s: %w", s.ID, err)
	}
	for _, d := range list {
		v.List = append(v.List, delivery{d})
	}
	return v, nil
}

// resendDelivery answers POST /dashboard/stacks/{id}/deliveries/{event}.
func (w *Web) resendDelivery(c *fiber.Ctx, s store.Session) error {
	st, err := w.owned(c, s)
	if err != nil {
		return err
	}
	id, err := strconv.ParseInt(c.Params("event"), 10, 64)
	if err != nil {
		return fiber.ErrNotFound
	}
	d, err := w.Webhooks.Resend(w.base, st.ID, id)
	return w.answer(c, st, err, delivery{d}.told(fmt.Sprintf("Delivery %d was sent again", id)))
}

// testDelivery answers POST /dashboard/stacks/{id}/deliveries/test.
func (w *Web) testDelivery(c *fiber.Ctx, s store.Session) error {
	st, err := w.owned(c, s)
	if err != nil {
		return err
	}
	d, err := w.Webhooks.Test(w.base, st.ID)
	return w.answer(c, st, err, delivery{d}.told("A test event was sent"))
}
