package site

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the settings of a service's manifest for its site.
type Options struct {
	// SPA is "true", "false" or "auto": whether a path without a file gets index.html.
	// Empty means "auto", which is on if index.html is the only page and there is no
	// 404.html.
	SPA string

	// Hidden are names in the folder itself that are not served.
	Hidden []string

	// Published is the extent of the folder when it was published, if known: a folder
	// with another extent is not served.
	Published Extent

	// Log receives the files that could not be read; nil for none.
	Log *slog.Logger
}

// Extent is how much a folder has to serve. It detects a folder that lost files.
type Extent struct {
	Files int   // names of files and of links
	Bytes int64 // of the files, by name
}

// Site is an open folder. Its methods may be called by several goroutines at once.
type Site struct {
	root   *os.Root
	log    *slog.Logger
	spa    string
	hidden []string

	indexing sync.Mutex
	ready    atomic.Bool // what follows is set and does not change any more

	extent Extent            // before that, the one to be found; zero for any
	routes map[string]route  // by URL path without the leading slash
	links  map[string]string // symlinked folder -> the folder it stands for
	memory *share

	fallback *file // index.html of a single page application, else nil
	missing  *file // 404.html, else nil
}

// Open opens dir and reads its tree. The folder itself must not be a symbolic link, and
// it must not change until Close.
func Open(dir string, opts Options) (*Site, error) {
	s, err := Reopen(dir, opts)
	if err != nil {
		return nil, err
	}
	if err := s.Read(context.Background()); err != nil {
		s.root.Close()
		return nil, err
	}
	return s, nil
}

// Reopen is like Open for a folder that was served before. It returns at once, however
// large the tree is: Read, or else the first request, reads the tree.
func Reopen(dir string, opts Options) (*Site, error) {
	if err := checkFolder(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("site: %w", err)
	}
	s := &Site{root: root, log: opts.Log, spa: opts.SPA, hidden: opts.Hidden, extent: opts.Published, memory: bodies.share(perSite)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// checkFolder refuses a link, which os.OpenRoot would follow.
func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("site: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("site: %w", &fs.PathError{Op: "open", Path: dir, Err: fs.ErrInvalid})
	}
	return nil
}

// Read reads the tree of a reopened site, once: after an error the next call tries
// again, and so does each request. A tree that differs from the published one is an
// error. Read gives up when ctx ends.
func (s *Site) Read(ctx context.Context) error {
	s.indexing.Lock()
	defer s.indexing.Unlock()
	if s.ready.Load() {
		return nil
	}
	tree, err := scan(ctx, s.root, s.hidden)
	if err != nil {
		return fmt.Errorf("site: reading %s: %w", s.root.Name(), err)
	}
	found := tree.extent()
	if s.extent != (Extent{}) && s.extent != found {
		return fmt.Errorf("site: %s holds %d files of %d bytes, not the %d of %d bytes that were published",
			s.root.Name(), found.Files, found.Bytes, s.extent.Files, s.extent.Bytes)
	}
	on, err := isSPA(s.spa, tree.files)
	if err != nil {
		return fmt.Errorf("site: %w", err)
	}
	s.extent = found
	s.links = tree.links
	s.routes = routesOf(tree.files)
	s.missing = tree.files["404.html"]
	if on {
		s.fallback = tree.files["index.html"]
	}
	s.ready.Store(true)
	return nil
}

// Extent returns what the site has to serve, once its tree is read.
func (s *Site) Extent() Extent { return s.extent }

// Close closes the folder. Responses under way finish; later requests for what is not
// in memory are answered with 500.
func (s *Site) Close() error {
	s.memory.close()
	if err := s.root.Close(); err != nil {
		return fmt.Errorf("site: %w", err)
	}
	return nil
}

// ServeHTTP answers GET and HEAD from the index, OPTIONS with the methods, and
// any other method with 405. X-Forwarded-Prefix is trusted: the proxy lets none through
// from outside.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["X-Content-Type-Options"] = nosniff
	if !s.ready.Load() {
		if err := s.Read(context.WithoutCancel(r.Context())); err != nil {
			s.log.Error("site could not be read; the next request tries again", "error", err)
			sendPage(w, r, http.StatusInternalServerError, "This site could not be read.")
			return
		}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		s.get(w, r)
	case http.MethodOptions:
		w.Header()["Allow"] = allowed
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header()["Allow"] = allowed
		sendPage(w, r, http.StatusMethodNotAllowed, "This is a static site: it answers GET and HEAD only.")
	}
}

// get answers with the file that the path stands for.
func (s *Site) get(w http.ResponseWriter, r *http.Request) {
	m := s.match(r.URL.Path, r.Header)
	if m.navigates {
		w.Header()["Vary"] = varyNavigation
	}
	switch {
	case m.file == nil:
		sendPage(w, r, http.StatusNotFound, "There is no page at this address.")
	case m.moved:
		redirect(w, r, m.to)
	case isBare(r):
		redirect(w, r, "")
	default:
		s.send(w, r, m.file, m.status)
	}
}

// match is what a request gets.
type match struct {
	file      *file  // nil if there is none, nor a 404.html
	status    int    // to send it with
	moved     bool   // it is a redirect
	to        string // to this path, without the leading slash
	navigates bool   // it depends on whether the client wants a page to show
}

// match returns what a request for a path gets.
func (s *Site) match(path string, r fields) match {
	found, key := s.find(path)
	switch {
	case found.file == nil && s.fallback != nil && isPagePath(key):
		if isNavigation(r) {
			return match{file: s.fallback, status: http.StatusOK, navigates: true}
		}
		return match{file: s.missing, status: http.StatusNotFound, navigates: true}
	case found.file == nil:
		return match{file: s.missing, status: http.StatusNotFound}
	case found.moved:
		return match{file: found.file, moved: true, to: key}
	}
	return match{file: found.file, status: http.StatusOK}
}

// unreadable answers for a file of the index that cannot be read.
func (s *Site) unreadable(w http.ResponseWriter, r *http.Request, f *file, err error) {
	s.log.Error("static file could not be read", "path", f.name, "error", err)
	sendPage(w, r, http.StatusInternalServerError, "This file could not be read.")
}

// Values of headers, shared by all responses: net/http only reads them, and an
// append copies because their capacity is their length.
var (
	allowed        = []string{"GET, HEAD, OPTIONS"}
	nosniff        = []string{"nosniff"}
	bytesUnit      = []string{"bytes"}
	varyCoding     = []string{"Accept-Encoding"}
	varyNavigation = []string{"Accept, Accept-Encoding, Sec-Fetch-Mode"}
)

// modified formats t for Last-Modified.
func modified(t time.Time) []string { return []string{t.UTC().Format(http.TimeFormat)} }
