package proxy

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/wire"
)

// page is an answer that the proxy gives itself.
type page struct {
	status int
	title  string // for people
	detail string // one or two sentences, for both
	claim  string // URL of the page to claim the stack; "" for none
	retry  bool   // waiting a moment helps
}

// retryAfter is the Retry-After where waiting helps, in seconds.
const retryAfter = "5"

var (
	unknownPage = page{
		status: http.StatusNotFound, title: "Not found",
		detail: "no stack has this address; check the link, or deploy again if the stack was deleted",
	}
	unreachablePage = page{
		status: http.StatusBadGateway, title: "The service does not answer",
		detail: "the service could not be reached; its process may be restarting, see the stack's logs",
	}
	latePage = page{
		status: http.StatusGatewayTimeout, title: "The service took too long",
		detail: "the service did not begin its answer in time; see the stack's logs",
	}
	brokenBodyPage = page{
		status: http.StatusBadRequest, title: "The request was not complete",
		detail: "the request's body ended early or is not framed as HTTP requires; send it again",
	}
	silentPage = page{
		status: http.StatusRequestTimeout, title: "The request stalled",
		detail: "the request's body stopped before its end and did not continue in time; send it again",
	}
	connectPage = page{
		status: http.StatusBadRequest, title: "Not a forward proxy",
		detail: "CONNECT is not served here; send the request to the service's own URL",
	}
	stoppingPage = page{
		status: http.StatusServiceUnavailable, title: "Temporarily unavailable",
		detail: "the service is being stopped; try again in a moment", retry: true,
	}
)

// cutOffPage is for a node that took a request and then broke off: it may have begun.
var cutOffPage = page{
	status: http.StatusBadGateway, title: "The connection to the stack's node broke",
	detail: "the node that runs this stack broke off before it answered; look whether the request took effect, then try again", retry: true,
}

// replacedPage is for a process that took a request of the one before and then broke off: it
// may have begun.
var replacedPage = page{
	status: http.StatusBadGateway, title: "The server broke off",
	detail: "the server is being replaced and broke off before it answered; look whether the request took effect, then try again", retry: true,
}

func awayPage(node string) page {
	return page{
		status: http.StatusBadGateway, title: "The stack's node does not answer",
		detail: fmt.Sprintf("node %s, which runs this stack, cannot be reached at the moment; try again shortly", node), retry: true,
	}
}

func lostPage(node string) page {
	return page{
		status: http.StatusServiceUnavailable, title: "The stack's node is lost",
		detail: fmt.Sprintf("node %s, which has this stack's data, is lost; the stack waits until the node is back", node), retry: true,
	}
}

var movingPage = page{
	status: http.StatusServiceUnavailable, title: "Moving",
	detail: "the stack is moving to another node; try again in a moment", retry: true,
}

var isolatedPage = page{
	status: http.StatusServiceUnavailable, title: "The stack's node was cut off",
	detail: "the node that runs this stack was cut off from the others and finds out whether another one runs it now; try again in a moment", retry: true,
}

var unsurePage = page{
	status: http.StatusServiceUnavailable, title: "The stack is not known here yet",
	detail: "the node that was asked does not know this address, and cannot look it up in the database at the moment; try again shortly", retry: true,
}

var circlePage = page{
	status: http.StatusBadGateway, title: "The stack's node is not known for sure",
	detail: "the nodes do not agree on which of them runs this stack, as happens for a moment after a move; try again shortly", retry: true,
}

func invalidPage(err error) page {
	return page{
		status: http.StatusBadGateway, title: "The service sent an invalid answer",
		detail: "the service sent an " + err.Error(),
	}
}

func buildingPage(e *Entry) page {
	if e.Restoring {
		return page{
			status: http.StatusServiceUnavailable, title: "Coming back",
			detail: fmt.Sprintf("stack %s is being restored; try again in a moment", e.Name),
			retry:  true,
		}
	}
	return page{
		status: http.StatusServiceUnavailable, title: "Still building",
		detail: fmt.Sprintf("stack %s is being built and goes live when it is ready; try again in a moment", e.Name),
		retry:  true,
	}
}

func closedPage(s Service) page {
	return page{status: http.StatusNotFound, title: "Not a web page", detail: s.Closed}
}

func downPage(e *Entry, service string) page {
	return page{
		status: http.StatusBadGateway, title: "The service is not running",
		detail: fmt.Sprintf("service %s of stack %s is not running at the moment; try again shortly, or see the stack's logs", service, e.Name),
		retry:  true,
	}
}

func failedPage(e *Entry) page {
	return page{
		status: http.StatusServiceUnavailable, title: "This stack has failed",
		detail: fmt.Sprintf("stack %s has failed; read its error and logs, then redeploy it", e.Name),
	}
}

func expiredPage(e *Entry) page {
	pg := page{
		status: http.StatusGone, title: "This stack has expired",
		detail: fmt.Sprintf("stack %s has expired; claim it to bring it back with its data", e.Name),
	}
	if e.ClaimURL != "" {
		pg.detail += " at " + e.ClaimURL
		pg.claim = e.ClaimURL
	}
	return pg
}

func droppedPage(e *Entry, service string) page {
	return page{
		status: http.StatusNotFound, title: "No such service",
		detail: fmt.Sprintf("stack %s has no service %s; its last deploy may have dropped it", e.Name, service),
	}
}

// writePage answers with HTML for a browser and with JSON for all others.
func writePage(w http.ResponseWriter, r *http.Request, pg page) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if _, decided := h["X-Robots-Tag"]; !decided {
		h.Set("X-Robots-Tag", "noindex")
	}
	h.Add("Vary", "Accept")
	if pg.retry {
		h.Set("Retry-After", retryAfter)
	}
	var body []byte
	if acceptsHTML(r.Header["Accept"]) {
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", pagePolicy)
		body = pg.html()
	} else {
		h.Set("Content-Type", "application/json")
		body = pg.json()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(pg.status)
	w.Write(body)
}

// acceptsHTML reports whether the values of Accept include HTML, with any parameters.
func acceptsHTML(accept []string) bool {
	for t := range wire.Tokens(accept) {
		if kind, _, _ := strings.Cut(t, ";"); strings.EqualFold(strings.TrimSpace(kind), "text/html") {
			return true
		}
	}
	return false
}

func (pg page) json() []byte {
	body, _ := plainjson.MarshalLine(map[string]string{"detail": pg.detail}) // strings always encode
	return body
}

//go:embed page.css
var pageStyle string

var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Title}}</title>
<style>{{.Style}}</style>
<main>
<p class="status">{{.Status}}</p>
<h1>{{.Title}}</h1>
<p>{{.Detail}}.</p>
{{with .Claim}}<p><a href="{{.}}">Claim this stack</a></p>
{{end}}</main>
</html>
`))

func (pg page) html() []byte {
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, map[string]any{
		"Title": pg.title, "Status": pg.status, "Detail": sentence(pg.detail),
		"Claim": pg.claim, "Style": template.CSS(pageStyle),
	})
	if err != nil {
		return pg.json()
	}
	return b.Bytes()
}

// sentence capitalizes the first letter of a detail.
func sentence(detail string) string { return strings.ToUpper(detail[:1]) + detail[1:] }
