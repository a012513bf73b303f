package api

import (
	"context"
	"net/url"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/domain"
	"github.com/berth-host/berth/internal/stack"
)

// Domains are the domains of claimed stacks; package domain implements it. Its errors that
// are meant for the caller are *stack.Error.
type Domains interface {
	List(ctx context.Context, s *stack.Stack) ([]domain.View, error)
	Get(ctx context.Context, s *stack.Stack, host string) (domain.View, error)
	// Add reports whether the stack did not have the domain.
	Add(ctx context.Context, s *stack.Stack, host, service string) (v domain.View, added bool, err error)
	Remove(ctx context.Context, s *stack.Stack, host string) error
	SetPrimary(ctx context.Context, s *stack.Stack, host string, primary bool) (domain.View, error)
	// Check looks at the DNS before it returns.
	Check(ctx context.Context, s *stack.Stack, host string) (domain.View, error)
}

// domainView is the domain of docs/api.md, "Domains".
type domainView struct {
	Host             string             `json:"host"`
	Service          string             `json:"service"`
	Status           stack.DomainStatus `json:"status"`
	Reason           *string            `json:"reason"`
	Primary          bool               `json:"primary"`
	Records          []recordView       `json:"records"`
	CheckedAt        stack.Timestamp    `json:"checked_at"`
	CertificateUntil stack.Timestamp    `json:"certificate_until"`
}

// recordView is a record that the owner of a domain enters at the DNS.
type recordView struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

func viewDomain(v domain.View) domainView {
	records := make([]recordView, len(v.Records))
	for i, r := range v.Records {
		records[i] = recordView(r)
	}
	return domainView{
		Host: v.Domain.Host, Service: v.Domain.Service, Status: v.Domain.Status, Reason: orNull(v.Reason), Primary: v.Domain.Primary,
		Records: records, CheckedAt: stack.Timestamp(v.Domain.CheckedAt), CertificateUntil: stack.Timestamp(v.Until),
	}
}

// onDomains makes a handler of one for the stack in the path, which is claimed and the
// caller's, and for the host in the path, "" for none.
func (a *API) onDomains(handle func(c *fiber.Ctx, s *stack.Stack, host string) error) fiber.Handler {
	return a.onStack(func(c *fiber.Ctx, s *stack.Stack, role string) error {
		if !s.Claimed() {
			return stack.NewError(stack.Conflict, "the stack is not claimed, and only a claimed stack can have domains: give its claim_url to your human, who can keep the stack with it")
		}
		if err := a.gate.requireOwner(s, role, "use its domains"); err != nil {
			return err
		}
		host, err := url.PathUnescape(c.Params("host"))
		if err != nil {
			return invalid("the host in the path is not encoded as in a URL; write it like www.example.com")
		}
		return handle(c, s, host)
	})
}

// answerDomain answers with a domain.
func answerDomain(c *fiber.Ctx, v domain.View, err error) error {
	if err != nil {
		return err
	}
	return c.JSON(viewDomain(v))
}

// domains answers GET /v0/stacks/{id}/domains.
func (a *API) domains(c *fiber.Ctx, s *stack.Stack, _ string) error {
	all, err := a.cfg.Domains.List(a.server.Context(), s)
	if err != nil {
		return err
	}
	views := make([]domainView, len(all))
	for i := range all {
		views[i] = viewDomain(all[i])
	}
	return c.JSON(fiber.Map{"domains": views})
}

// showDomain answers GET /v0/stacks/{id}/domains/{host}.
func (a *API) showDomain(c *fiber.Ctx, s *stack.Stack, host string) error {
	v, err := a.cfg.Domains.Get(a.server.Context(), s, host)
	return answerDomain(c, v, err)
}

const (
	domainExample  = `{"host": "www.example.com", "service": "web"}`
	primaryExample = `{"primary": true}`
)

// addDomain answers POST /v0/stacks/{id}/domains.
func (a *API) addDomain(c *fiber.Ctx, s *stack.Stack, _ string) error {
	object, err := readObject(bodyOf(c.Context()), mostObject, []string{"host", "service"}, domainExample)
	if err != nil {
		return err
	}
	host, err := textOf(object["host"], "host", domainExample)
	if err != nil {
		return err
	}
	if object["service"] == nil {
		return invalid("no service in the body; send it like this: %s", domainExample)
	}
	service, err := textOf(object["service"], "service", domainExample)
	if err != nil {
		return err
	}
	v, added, err := a.cfg.Domains.Add(a.server.Context(), s, host, service)
	if added {
		c.Status(fiber.StatusCreated)
	}
	return answerDomain(c, v, err)
}

// markDomain answers PATCH /v0/stacks/{id}/domains/{host}.
func (a *API) markDomain(c *fiber.Ctx, s *stack.Stack, host string) error {
	value, err := onlyField(bodyOf(c.Context()), "primary", primaryExample)
	if err != nil {
		return err
	}
	primary, err := strconv.ParseBool(string(value))
	if err != nil || string(value) != strconv.FormatBool(primary) {
		return invalid("primary must be true or false; send it like this: %s", primaryExample)
	}
	v, err := a.cfg.Domains.SetPrimary(a.server.Context(), s, host, primary)
	return answerDomain(c, v, err)
}

// removeDomain answers DELETE /v0/stacks/{id}/domains/{host}.
func (a *API) removeDomain(c *fiber.Ctx, s *stack.Stack, host string) error {
	if err := a.cfg.Domains.Remove(a.server.Context(), s, host); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// checkDomain answers POST /v0/stacks/{id}/domains/{host}/check.
func (a *API) checkDomain(c *fiber.Ctx, s *stack.Stack, host string) error {
	v, err := a.cfg.Domains.Check(a.server.Context(), s, host)
	return answerDomain(c, v, err)
}
