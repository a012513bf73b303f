package web

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/a-h/templ"
	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// How much of a stack its page shows.
const (
	latestEvents = 50
	logLines     = 200
)

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
	l, err := w.chooseLog(c, st)
	if err != nil {
		return err
	}
	if l.Lines, err = w.lastLines(st, l); err != nil {
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
	p := w.newPage(c, s, st.Name, "", "stacks")
	p.Stream = fmt.Sprintf("%s?service=%s&kind=%s", stackURL(st.ID, "stream"), l.Service, l.Kind)
	return w.render(c, fiber.StatusOK, stackPage(p, v, l, w.showEvents(events), ran, sent))
}

// stackStream answers GET /dashboard/stacks/{id}/stream.
func (w *pages) stackStream(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	l, err := w.chooseLog(c, st)
	if err != nil {
		return err
	}
	p := page{Token: w.formToken(c)}
	return w.stream(c, s, feed{
		watch: st.ID,
		log:   l,
		stack: st,
		parts: func() ([]part, error) { return w.stackParts(p, s.Account.ID, st.ID) },
	})
}

// stackParts returns the changing parts of a stack's page.
func (w *pages) stackParts(p page, accountID, id string) ([]part, error) {
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
		{"events", eventList(w.showEvents(events))},
		{"commands", commands(st, ran)},
		{"deliveries", deliveries(p, st, sent)},
	}, nil
}

// chooseLog returns the log that the request asks for. If it names none, that is the
// run log of the first process, or the build log of the first service while nothing was
// live yet.
func (w *pages) chooseLog(c *fiber.Ctx, st *stack.Stack) (logView, error) {
	l := logView{st.Generation.Services[0].Spec.Name, "build", nil}
	process := slices.IndexFunc(st.Generation.Services, func(s stack.Service) bool { return !s.Spec.IsStatic() })
	if process >= 0 && !st.DeployedAt.IsZero() {
		l.Service, l.Kind = st.Generation.Services[process].Spec.Name, "run"
	}
	l.Service, l.Kind = c.Query("service", l.Service), c.Query("kind", l.Kind)
	if (l.Kind != "run" && l.Kind != "build") || !slices.Contains(st.LogNames(l.Kind), l.Service) {
		return logView{}, fiber.ErrNotFound
	}
	return l, nil
}

// lastLines reads the end of a log, without its heading.
func (w *pages) lastLines(st *stack.Stack, l logView) ([]string, error) {
	var b bytes.Buffer
	if err := w.cfg.Logs.Logs(w.server.Context(), st, l.Service, l.Kind, logfile.View{Tail: logLines}, &b); err != nil {
		return nil, fmt.Errorf("read the logs of stack %s: %w", st.ID, err)
	}
	_, text, _ := strings.Cut(b.String(), "\n")
	if text == "" {
		return nil, nil
	}
	return readableAll(strings.Split(strings.TrimSuffix(text, "\n"), "\n")), nil
}

// title names a log for people who do not see its tab.
func (l logView) title() string { return "Log of " + l.Service + ", " + l.Kind }

// empty returns the text shown for a log without lines.
func (l logView) empty() string {
	if l.Kind == "build" {
		return "Nothing has been built yet, or this service needs no build."
	}
	return "Nothing has been written yet."
}

// text returns the log as one text with an end after each line.
func (l logView) text() string {
	if len(l.Lines) == 0 {
		return ""
	}
	return strings.Join(l.Lines, "\n") + "\n"
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
