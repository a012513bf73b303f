package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func TestWeb_ShowsTheAPI(t *testing.T) {
	t.Parallel()
	h := start(t)
	b := h.browser(t)
	b.open("/docs")
	b.is(http.StatusOK, "/docs")
	b.sees("API reference", "Create a stack", "/v0/stacks/{id}/deploy", "manage_token", "Extend the life of an unclaimed stack", h.base()+"/v0/stacks")
	b.look("docs")
	b.seesNot("shown only once")
	b.do(chromedp.Click(named("main", "CreatedStack"), chromedp.NodeVisible))
	b.sees("shown only once")

	plain := h.browser(t).withoutScripts()
	plain.open("/docs")
	plain.sees("Create a stack", "Authorization: none or API key")
	plain.press("openapi.json")
	plain.is(http.StatusOK, "/openapi.json")
}

func TestWeb_FrontPageShowsHowToDeploy(t *testing.T) {
	t.Parallel()
	h := start(t)
	b := h.browser(t)
	b.open("/")
	b.is(http.StatusOK, "/")
	command := "tar -cz . | curl -sS -F source=@- '" + h.base() + "/v0/stacks?wait=true'"
	b.sees(command, "Have a claim code?", "llms.txt")
	b.look("front")
	b.menu("API")
	b.is(http.StatusOK, "/docs")

	links := strings.Join(h.get(t, "/", "Accept", "text/html").header.Values("Link"), ", ")
	require.Contains(t, links, `</openapi.json>; rel="service-desc"`)
}
