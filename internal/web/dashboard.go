package web

import (
	"errors"
	"fmt"

	"github.com/a-h/templ"
	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// latestEvents is how many events the page of a stack shows.
const latestEvents = 50

// dashboard answers GET /dashboard.
func (w *pages) dashboard(c *fiber.Ctx, s store.Session) error {
	stacks, err := w.cfg.Accounts.Stacks(w.server.Context(), s.Account.ID)
	if err != nil {
		return fmt.Errorf("read the stacks: %w", err)
	}
	p := w.newPage(c, s, "Stacks", "", "stacks")
	p.Stream = "/dashboard/stream"
	return w.render(c, fiber.StatusOK, dashboardPage(p, w.cfg.URLs.Base.String(), w.showStacks(stacks)))
}

// dashboardStream answers GET /dashboard/stream.
func (w *pages) dashboardStream(c *fiber.Ctx, s store.Session) error {
	return w.stream(c, s, feed{parts: func() ([]part, error) {
		stacks, err := w.cfg.Accounts.Stacks(w.server.Context(), s.Account.ID)
		if err != nil {
			return nil, err
		}
		return []part{{"stacks", stackList(w.cfg.URLs.Base.String(), w.showStacks(stacks))}}, nil
	}})
}

// stackPage answers GET /dashboard/stacks/{id}.
func (w *pages) stackPage(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	l, err := w.showLog(c, st)
	if err != nil {
		return err
	}
	events, err := w.cfg.Store.LatestEvents(w.server.Context(), st.ID, latestEvents)
	if err != nil {
		return fmt.Errorf("read the events of stack %s: %w", st.ID, err)
	}
	ran, err := w.showCommands(st)
	if err != nil {
		return err
	}
	sent, err := w.showDeliveries(st)
	if err != nil {
		return err
	}
	v, err := w.showWhole(st)
	if err != nil {
		return err
	}
	p := w.newPage(c, s, l.title(st.Name), "", "stacks")
	p.Stream = string(l.url(st.ID, "stream"))
	return w.render(c, fiber.StatusOK, stackPage(p, v, l, w.showMetrics(st, l.Span), w.showEvents(events), ran, sent))
}

// stackStream answers GET /dashboard/stacks/{id}/stream.
func (w *pages) stackStream(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	l, err := w.chooseLog(c, st)
	if err != nil {
		return err
	}
	p := page{Token: w.formToken(c)}
	f := feed{watch: st.ID, log: l, parts: func() ([]part, error) { return w.stackParts(p, s.Account.ID, st.ID, l) }}
	if l.newest() {
		f.stack = st
	}
	return w.stream(c, s, f)
}

// stackParts returns the changing parts of a stack's page.
func (w *pages) stackParts(p page, accountID, id string, l logView) ([]part, error) {
	st, err := w.cfg.Accounts.Stack(w.server.Context(), accountID, id)
	if err != nil {
		return nil, err
	}
	events, err := w.cfg.Store.LatestEvents(w.server.Context(), id, latestEvents)
	if err != nil {
		return nil, err
	}
	ran, err := w.showCommands(st)
	if err != nil {
		return nil, err
	}
	sent, err := w.showDeliveries(st)
	if err != nil {
		return nil, err
	}
	v, err := w.showWhole(st)
	if err != nil {
		return nil, err
	}
	return []part{
		{"status", status(v.statusWord(), string(v.Stack.Status))},
		{"head", stackHead(v)},
		{"services", services(p, v)},
		{"pictures", metrics(v, l, w.showMetrics(st, l.Span))},
		{"events", eventList(w.showEvents(events))},
		{"commands", commands(st, ran)},
		{"deliveries", deliveries(p, st, sent)},
	}, nil
}

// restart answers POST /dashboard/stacks/{id}/restart/{service}.
func (w *pages) restart(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	service := c.Params("service")
	_, err := w.cfg.Host.Restart(w.server.Context(), st.ID, service)
	return w.backToStack(c, st, err, "The service "+service+" is being restarted.")
}

// rebuild answers POST /dashboard/stacks/{id}/rebuild.
func (w *pages) rebuild(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	_, err := w.cfg.Host.Rebuild(w.server.Context(), st.ID)
	return w.backToStack(c, st, err, "A fresh build has begun.")
}

// revoke answers POST /dashboard/stacks/{id}/revoke.
func (w *pages) revoke(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	_, err := w.cfg.Store.Update(w.server.Context(), st.ID, (*stack.Stack).RevokeAgent)
	return w.backToStack(c, st, err, "The agent's access was revoked.")
}

// deletePage answers GET /dashboard/stacks/{id}/delete.
func (w *pages) deletePage(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	return w.render(c, fiber.StatusOK, deletePage(w.newPage(c, s, "Delete "+st.Name, "middle", "stacks"), w.showStack(st)))
}

// delete answers POST /dashboard/stacks/{id}/delete.
func (w *pages) delete(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	if err := w.cfg.Host.Delete(w.server.Context(), st.ID); err != nil {
		return fmt.Errorf("delete stack %s: %w", st.ID, err)
	}
	return w.redirectWithNotice(c, "/dashboard", "The stack "+st.Name+" was deleted.")
}

// backToStack redirects to the stack's page with the result of a form: that it was
// done, or why not.
func (w *pages) backToStack(c *fiber.Ctx, st *stack.Stack, err error, text string) error {
	return w.backTo(c, stackURL(st.ID), st, err, text)
}

// backTo is backToStack for another page of the stack.
func (w *pages) backTo(c *fiber.Ctx, page templ.SafeURL, st *stack.Stack, err error, text string) error {
	var known *stack.Error
	switch {
	case errors.As(err, &known):
		w.leaveNotice(c, notice{Text: sentence(known.Detail), Fault: true})
	case err != nil:
		return fmt.Errorf("stack %s: %w", st.ID, err)
	default:
		w.leaveNotice(c, notice{Text: text})
	}
	return c.Redirect(string(page), fiber.StatusSeeOther)
}
