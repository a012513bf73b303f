package peer

import (
	"net/http"
	"strings"
)

// By is which node answers a request for the base URL's host.
type By int

// The nodes that answer requests.
const (
	Anybody By = iota + 1 // what stands in the database, every node knows
	Owner                 // the node that owns the stack of the path
	Remover               // as Owner, and any node once the owner is lost
	Placed                // the node that is chosen for a new stack
)

// Route is a route of the API or of the pages, and which node answers it.
type Route struct {
	Method, Path string // as Fiber has them: GET, also for HEAD; /v0/stacks/:id
	By           By
}

// Table of every route that concerns a stack, and of all others. A test compares it with
// the routes that there are.
var routes = []Route{
	{"POST", "/v0/stacks", Placed},
	{"GET", "/v0/stacks/:id", Anybody},
	{"PATCH", "/v0/stacks/:id", Owner},
	{"POST", "/v0/stacks/:id/deploy", Owner},
	{"GET", "/v0/stacks/:id/source", Owner},
	{"GET", "/v0/stacks/:id/source/*", Owner},
	{"DELETE", "/v0/stacks/:id", Remover},
	{"POST", "/v0/stacks/:id/restart", Owner},
	{"GET", "/v0/stacks/:id/logs", Owner},
	{"GET", "/v0/stacks/:id/events", Anybody},
	{"GET", "/v0/stacks/:id/metrics", Owner},
	{"GET", "/v0/stacks/:id/env", Anybody},
	{"PATCH", "/v0/stacks/:id/env", Owner},
	{"POST", "/v0/stacks/:id/services/:name/exec", Owner},
	{"GET", "/v0/stacks/:id/services/:name/data", Owner},
	{"PUT", "/v0/stacks/:id/services/:name/data", Owner},
	{"GET", "/v0/stacks/:id/domains", Anybody},
	{"POST", "/v0/stacks/:id/domains", Anybody},
	{"GET", "/v0/stacks/:id/domains/:host", Anybody},
	{"PATCH", "/v0/stacks/:id/domains/:host", Anybody},
	{"DELETE", "/v0/stacks/:id/domains/:host", Anybody},
	{"POST", "/v0/stacks/:id/domains/:host/check", Anybody},
	{"POST", "/v0/claim", Anybody}, // the code in the body names the stack; see Claims
	{"GET", "/v0/me", Anybody},
	{"POST", "/v0/validate", Anybody},
	{"GET", "/healthz", Anybody},

	{"GET", "/", Anybody},
	{"GET", "/docs", Anybody},
	{"GET", "/assets/:name", Anybody},
	{"GET", "/favicon.ico", Anybody},
	{"GET", "/signup", Anybody},
	{"POST", "/signup", Anybody},
	{"GET", "/signin", Anybody},
	{"POST", "/signin", Anybody},
	{"GET", "/signin/forgot", Anybody},
	{"POST", "/signin/forgot", Anybody},
	{"GET", "/signin/reset/:link", Anybody},
	{"POST", "/signin/reset/:link", Anybody},
	{"GET", "/signup/confirm/:link", Anybody},
	{"POST", "/signup/confirm/:link", Anybody},
	{"POST", "/signout", Anybody},
	{"GET", "/claim", Anybody},
	{"POST", "/claim", Anybody},
	{"GET", "/claim/:code", Anybody},
	{"POST", "/claim/:code", Anybody},
	{"GET", "/dashboard", Anybody},
	{"GET", "/dashboard/stream", Anybody},
	{"GET", "/dashboard/account", Anybody},
	{"POST", "/dashboard/account/key", Anybody},
	{"POST", "/dashboard/account/password", Anybody},
	{"POST", "/dashboard/account/confirm", Anybody},
	{"POST", "/dashboard/account/mails", Anybody},
	{"GET", "/dashboard/account/delete", Anybody},
	{"POST", "/dashboard/account/delete", Anybody},
	{"POST", "/dashboard/account/sessions", Anybody},
	{"POST", "/dashboard/account/sessions/:session", Anybody},
	{"GET", "/dashboard/stacks/:id", Owner},
	{"GET", "/dashboard/stacks/:id/source", Owner},
	{"GET", "/dashboard/stacks/:id/source.tar.gz", Owner},
	{"GET", "/dashboard/stacks/:id/source/*", Owner},
	{"GET", "/dashboard/stacks/:id/log.txt", Owner},
	{"GET", "/dashboard/stacks/:id/stream", Owner},
	{"GET", "/dashboard/stacks/:id/claimed", Anybody},
	{"GET", "/dashboard/stacks/:id/claimed/stream", Anybody},
	{"POST", "/dashboard/stacks/:id/restart/:service", Owner},
	{"POST", "/dashboard/stacks/:id/rebuild", Owner},
	{"GET", "/dashboard/stacks/:id/env", Owner},
	{"POST", "/dashboard/stacks/:id/env", Owner},
	{"GET", "/dashboard/stacks/:id/data", Owner},
	{"GET", "/dashboard/stacks/:id/data/:service", Owner},
	{"POST", "/dashboard/stacks/:id/data/:service", Owner},
	{"GET", "/dashboard/stacks/:id/domains", Anybody},
	{"POST", "/dashboard/stacks/:id/domains", Anybody},
	{"POST", "/dashboard/stacks/:id/domains/check", Anybody},
	{"POST", "/dashboard/stacks/:id/domains/primary", Anybody},
	{"POST", "/dashboard/stacks/:id/domains/remove", Anybody},
	{"POST", "/dashboard/stacks/:id/revoke", Owner},
	{"GET", "/dashboard/stacks/:id/delete", Anybody},
	{"POST", "/dashboard/stacks/:id/delete", Remover},
	{"POST", "/dashboard/stacks/:id/deliveries/test", Owner},
	{"POST", "/dashboard/stacks/:id/deliveries/:event", Owner},
}

// elsewhere has the segments of the routes that not everybody answers.
var elsewhere = func() (all []pattern) {
	for _, r := range routes {
		if r.By != Anybody {
			all = append(all, pattern{r, segmentsOf(r.Path)})
		}
	}
	return all
}()

type pattern struct {
	route    Route
	segments []string
}

// Classify returns which node answers a request, and the id of the stack in its path. The
// path is written as it was sent, as the routers read it.
func Classify(method, path string) (by By, id string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if !strings.HasPrefix(path, "/v0/stacks") && !strings.HasPrefix(path, "/dashboard/stacks/") {
		return Anybody, ""
	}
	segments := segmentsOf(path)
	for _, p := range elsewhere {
		if p.route.Method == method && p.matches(segments) {
			if len(segments) > 2 {
				id = segments[2]
			}
			return p.route.By, id
		}
	}
	return Anybody, ""
}

func segmentsOf(path string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"), "/")
}

// matches reports whether the segments of a path are those of the route.
func (p pattern) matches(segments []string) bool {
	for i, want := range p.segments {
		switch {
		case want == "*":
			return true
		case i >= len(segments), !strings.HasPrefix(want, ":") && want != segments[i]:
			return false
		}
	}
	return len(segments) == len(p.segments)
}
