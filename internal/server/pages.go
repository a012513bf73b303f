package server

import (
	"net/http"
	"strings"

	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/web"
	"github.com/berth-host/berth/internal/wire"
)

// openPages creates the pages for people, which listen in memory like the API.
func (s *Server) openPages(key auth.Key) {
	s.innerPages = fasthttputil.NewInmemoryListener()
	s.pages = web.New(web.Config{
		Accounts:     s.accounts,
		Host:         s.supervisor,
		Logs:         s.dir(),
		Sources:      s.dir(),
		Metrics:      pageMetrics{s.usage, s.others},
		Store:        s.store,
		Webhooks:     s.webhooks,
		Domains:      s.domains,
		URLs:         s.urls(),
		Key:          key,
		NodeName:     s.nodeName(),
		Quota:        s.quota(),
		DiskLimit:    stack.DiskLimit(s.cfg.StackDisk),
		CrashWindow:  s.cfg.Limits.CrashWindow,
		Reference:    s.documents.Reference,
		CallerHeader: wire.HeaderCallerIP,
		Log:          s.log,
	})
}

// baseHost returns the handler for the base URL's host: the API, the tools, the
// documents, the pages, and, for an unknown path, an error in the form that the caller
// reads. The front page is HTML for browsers and text for others.
func (s *Server) baseHost(key auth.Key) (http.Handler, error) {
	toAPI, toPages := edge.Inner(s.inner.Dial, s.log), edge.Inner(s.innerPages.Dial, s.log)
	tools, err := s.toolsOverHTTP(toAPI)
	if err != nil {
		return nil, err
	}
	return s.forwarder(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == pathMCP:
			tools.ServeHTTP(w, r)
		case asksIdentity(path):
			proveIdentity(w, path, key)
		case s.documents.Has(path), path == "/" && !readsHTML(r):
			s.documents.ServeHTTP(w, r)
		case web.Has(path), !s.api.Has(path) && readsHTML(r):
			toPages.ServeHTTP(w, r)
		default:
			toAPI.ServeHTTP(w, r)
		}
	})), nil
}

// readsHTML reports whether a browser sent the request to open a page.
func readsHTML(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}
