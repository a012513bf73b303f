package web

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// variableForm holds what the form of a variable was sent with, and why it was refused.
type variableForm struct {
	Service string // "" for all
	Name    string
	Value   string
	AsIs    bool
	Fault   string
}

// origins are the origins of variables in the owner's words.
var origins = map[string]string{
	stack.FromManifest:  "from the manifest",
	stack.FromGenerated: "generated for the manifest",
	stack.FromSet:       "set",
}

// ofService names the service of a variable.
func ofService(service string) string {
	if service == "" {
		return "all services"
	}
	return service
}

func number(n int) string { return strconv.Itoa(n) }

// variablesPage answers GET /dashboard/stacks/{id}/env.
func (w *pages) variablesPage(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	return w.showVariables(c, s, st, fiber.StatusOK, variableForm{})
}

func (w *pages) showVariables(c *fiber.Ctx, s store.Session, st *stack.Stack, code int, f variableForm) error {
	return w.render(c, code, variablesPage(w.newPage(c, s, "Variables of "+st.Name, "", "stacks"), w.showStack(st), f))
}

// setVariable answers POST /dashboard/stacks/{id}/env: it sets one variable, or unsets it.
func (w *pages) setVariable(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	f := variableForm{
		Service: c.FormValue("service"),
		Name:    strings.TrimSpace(c.FormValue("name")),
		Value:   strings.ReplaceAll(c.FormValue("value"), "\r\n", "\n"), // as browsers send the lines of a text
		AsIs:    c.FormValue("asis") != "",
	}
	value := &f.Value
	if c.FormValue("unset") != "" {
		value = nil
	}
	change := stack.EnvChange{Values: map[string]map[string]*string{f.Service: {f.Name: value}}, AsIs: f.AsIs}
	after, err := w.cfg.Host.Configure(w.server.Context(), st.ID, change, nil)
	var refused *stack.Error
	switch {
	case errors.As(err, &refused) && value != nil:
		text, code, _ := refusal(c, err)
		f.Fault = text
		return w.showVariables(c, s, st, code, f)
	case err != nil && refused == nil:
		return fmt.Errorf("change the variables of stack %s: %w", st.ID, err)
	}
	return w.backToStack(c, st, err, changed(f.Name, after))
}

// changed says what becomes of a change of a variable.
func changed(name string, after *stack.Stack) string {
	if after == nil || after.Deploying == 0 {
		return "Nothing has changed: " + name + " was like that before."
	}
	return fmt.Sprintf("Generation %d is starting with the change of %s.", after.Deploying, name)
}
