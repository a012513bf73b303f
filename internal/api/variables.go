package api

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// variableView is a variable as GET /v0/stacks/{id}/env shows it, without its value.
type variableView struct {
	Service   *string         `json:"service"` // null for all
	Name      string          `json:"name"`
	From      string          `json:"from"`
	ChangedAt stack.Timestamp `json:"changed_at"`
}

// variables answers GET /v0/stacks/{id}/env.
func (a *API) variables(c *fiber.Ctx, s *stack.Stack, _ string) error {
	views := []variableView{}
	for _, v := range s.Generation.Given() {
		views = append(views, variableView{orNull(v.Service), v.Name, v.From, stack.Timestamp(v.ChangedAt)})
	}
	return c.JSON(fiber.Map{"variables": views})
}

// configure answers PATCH /v0/stacks/{id}/env.
func (a *API) configure(c *fiber.Ctx, s *stack.Stack, role string) error {
	if err := a.gate.requireOwner(s, role, "change its variables"); err != nil {
		return err
	}
	t, err := a.receipts.begin(c, configuring, s.ID, role)
	if err != nil {
		return err
	}
	defer t.releaseKey()
	if t.earlier != nil {
		return a.repeat(c, t)
	}
	wait, err := wantsWait(c)
	if err != nil {
		return err
	}
	if err := s.CheckConfigure(stack.Now()); err != nil {
		return err
	}
	if err := a.cfg.Admission.Admit(!s.Claimed()); err != nil {
		return err
	}
	if s, err = a.configureStack(c, s, t); err != nil {
		return err
	}
	return a.answerFirst(c, t, s, oneTime{}, wait, false)
}

// configureStack reads the change and hands it to the host. It returns the stack after it.
func (a *API) configureStack(c *fiber.Ctx, s *stack.Stack, t *attempt) (after *stack.Stack, err error) {
	change, digest, err := readChange(c)
	if err != nil {
		return nil, err
	}
	err = t.record(digest, s.Generation.Source.Digest, oneTime{}, func(r *store.Receipt) (err error) {
		if after, err = a.cfg.Host.Configure(a.server.Context(), s.ID, change, r); err != nil {
			return fmt.Errorf("change the variables of stack %s: %w", s.ID, err)
		}
		return nil
	})
	return after, err
}

const (
	changeExample = `{"services": {"web": {"KEY": "value", "OLD": null}}, "all": {}, "build": true}`
	mostChange    = 4 << 20 // bytes of the body, whose values are escaped
)

// readChange reads a change of variables, and its digest.
func readChange(c *fiber.Ctx) (change stack.EnvChange, digest []byte, err error) {
	h := sha256.New()
	object, err := readFields(io.TeeReader(bodyOf(c.Context()), h), mostChange, []string{"services", "all", "build"}, changeExample)
	if err != nil {
		return change, nil, err
	}
	change, err = changeOf(object)
	return change, h.Sum(nil), err
}

// changeOf returns the change of variables that a body asks for.
func changeOf(object map[string]json.RawMessage) (change stack.EnvChange, err error) {
	build := true
	var services map[string]json.RawMessage
	switch {
	case !decodes(object["build"], &build):
		return change, invalid("build must be true or false; send the change like this: %s", changeExample)
	case !decodes(object["services"], &services):
		return change, invalid("services must be an object with the variables of each service; send the change like this: %s", changeExample)
	}
	if name, twice := repeated(object["services"]); twice {
		return change, invalid("service %s is given twice; send it once", safetext.Name(name))
	}
	if _, there := services[""]; there {
		return change, unprocessable(`there is no service ""; variables for all services go into all, like this: %s`, changeExample)
	}
	change = stack.EnvChange{Values: map[string]map[string]*string{}, AsIs: !build}
	for _, service := range slices.Sorted(maps.Keys(services)) {
		if change.Values[service], err = valuesOf("service "+safetext.Name(service), services[service]); err != nil {
			return change, err
		}
	}
	if all := object["all"]; all != nil {
		change.Values[""], err = valuesOf("all services", all)
	}
	if err == nil && !slices.ContainsFunc(slices.Collect(maps.Values(change.Values)), func(v map[string]*string) bool { return len(v) > 0 }) {
		err = invalid("no variables in the body; send them like this: %s", changeExample)
	}
	return change, err
}

// decodes stores a value of a JSON object, unless it is missing, and reports whether it is
// of the right type.
func decodes(value json.RawMessage, to any) bool {
	return value == nil || json.Unmarshal(value, to) == nil
}

// valuesOf returns the values of one service's variables; whose names it.
func valuesOf(whose string, object json.RawMessage) (map[string]*string, error) {
	var raw map[string]json.RawMessage
	if json.Unmarshal(object, &raw) != nil || raw == nil {
		return nil, invalid("the variables of %s are not an object; send them like this: %s", whose, changeExample)
	}
	if name, twice := repeated(object); twice {
		return nil, unprocessable("%s: env %s is given twice; send it once", whose, safetext.Name(name))
	}
	values := map[string]*string{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		var value *string
		if json.Unmarshal(raw[name], &value) != nil {
			return nil, unprocessable("%s: env %s must be a string, or null to unset it; write a number or true in quotes", whose, safetext.Name(name))
		}
		values[name] = value
	}
	return values, nil
}
