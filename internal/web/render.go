package web

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"

	"github.com/a-h/templ"
	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/store"
)

// render answers with a page.
func (w *pages) render(c *fiber.Ctx, code int, content templ.Component) error {
	var b bytes.Buffer
	if err := content.Render(w.server.Context(), &b); err != nil {
		return fmt.Errorf("render %s: %w", c.Path(), err)
	}
	c.Type("html", "utf-8")
	return c.Status(code).Send(b.Bytes())
}

// stackURL returns the address of a stack's page, or of a page below it.
func stackURL(id string, below ...string) templ.SafeURL {
	path := "/dashboard/stacks/" + url.PathEscape(id)
	for _, part := range below {
		path += "/" + url.PathEscape(part)
	}
	return templ.SafeURL(path)
}

func sessionURL(s store.Session) templ.SafeURL {
	return templ.SafeURL("/dashboard/account/sessions/" + strconv.FormatInt(s.ID, 10))
}

// refusal returns the text of an error for a person and its status; false for an error
// that is not meant for people.
func refusal(c *fiber.Ctx, err error) (text string, code int, ok bool) {
	known, code := appserver.Refuse(&c.Response().Header, err)
	if code == 0 {
		return "", 0, false
	}
	return sentence(known.Detail), code, true
}
