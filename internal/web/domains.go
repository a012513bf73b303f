package web

import (
	"context"
	"errors"
	"fmt"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/domain"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Domains are the domains of stacks; package domain implements it. An error meant for the
// person is a *stack.Error.
type Domains interface {
	List(ctx context.Context, s *stack.Stack) ([]domain.View, error)
	Add(ctx context.Context, s *stack.Stack, host, service string) (v domain.View, added bool, err error)
	Remove(ctx context.Context, s *stack.Stack, host string) error
	SetPrimary(ctx context.Context, s *stack.Stack, host string, primary bool) (domain.View, error)
	Check(ctx context.Context, s *stack.Stack, host string) (domain.View, error)
}

// domainForm holds what the form of a new domain was sent with, and why it was refused.
type domainForm struct {
	Host    string
	Service string
	Fault   string
}

// domainsPage answers GET /dashboard/stacks/{id}/domains.
func (w *pages) domainsPage(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	return w.showDomains(c, s, st, fiber.StatusOK, domainForm{})
}

func (w *pages) showDomains(c *fiber.Ctx, s store.Session, st *stack.Stack, code int, f domainForm) error {
	all, err := w.cfg.Domains.List(w.server.Context(), st)
	if err != nil {
		return fmt.Errorf("read the domains of stack %s: %w", st.ID, err)
	}
	return w.render(c, code, domainsPage(w.newPage(c, s, "Domains of "+st.Name, "", "stacks"), w.showStack(st), all, f, w.cfg.URLs.OfHost))
}

// addDomain answers POST /dashboard/stacks/{id}/domains.
func (w *pages) addDomain(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	f := domainForm{Host: c.FormValue("host"), Service: c.FormValue("service")}
	v, _, err := w.cfg.Domains.Add(w.server.Context(), st, f.Host, f.Service)
	var refused *stack.Error
	if errors.As(err, &refused) {
		text, code, _ := refusal(c, err)
		f.Fault = text
		return w.showDomains(c, s, st, code, f)
	}
	return w.backToDomains(c, st, err, "Enter the records of "+v.Domain.Host+" at its DNS provider. The server looks for them for a week; after that, add the domain again.")
}

// checkDomain answers POST /dashboard/stacks/{id}/domains/check.
func (w *pages) checkDomain(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	v, err := w.cfg.Domains.Check(w.server.Context(), st, c.FormValue("host"))
	return w.backToDomains(c, st, err, v.Domain.Host+" is "+string(v.Domain.Status)+".")
}

// markDomain answers POST /dashboard/stacks/{id}/domains/primary.
func (w *pages) markDomain(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	primary := c.FormValue("primary") == "yes"
	v, err := w.cfg.Domains.SetPrimary(w.server.Context(), st, c.FormValue("host"), primary)
	text := v.Domain.Host + " is the primary domain of " + v.Domain.Service + ". This counts from the next deploy."
	if !primary {
		text = v.Domain.Host + " is not primary any more. This counts from the next deploy."
	}
	return w.backToDomains(c, st, err, text)
}

// removeDomain answers POST /dashboard/stacks/{id}/domains/remove.
func (w *pages) removeDomain(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	host := c.FormValue("host")
	err := w.cfg.Domains.Remove(w.server.Context(), st, host)
	return w.backToDomains(c, st, err, host+" was removed.")
}

// backToDomains redirects to the page of a stack's domains with the result of a form.
func (w *pages) backToDomains(c *fiber.Ctx, st *stack.Stack, err error, text string) error {
	return w.backTo(c, stackURL(st.ID, "domains"), st, err, text)
}
