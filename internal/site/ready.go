package site

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/berth-host/berth/internal/wire"
)

// heads are the heads of the answers with a file in one coding, made at the first of each kind.
type heads [2 * headKinds]atomic.Pointer[[]byte]

// The kinds of heads. Those of answers that depend on navigation follow after all others.
const (
	headWhole   = iota // 200
	headFresh          // 304
	headMissing        // 404
	headKinds
)

// Ready returns the answer to a GET or HEAD of a target that gets a whole file, or none because
// the client has it. All other requests are for ServeHTTP, which answers these ones with the
// same.
func (s *Site) Ready(r *wire.Request, target string) (a wire.Ready, ok bool) {
	if !s.ready.Load() || r.Length != 0 || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return a, false
	}
	path, valid := pathOf(target)
	if !valid || r.Values("Range") != nil || hasGuard(r) {
		return a, false
	}
	m := s.match(path, r)
	if m.file == nil || m.moved {
		return a, false
	}
	c := m.file.choose(r.Values("Accept-Encoding"))
	b := m.file.blob(c)
	t, err := s.tagOf(b)
	if err != nil {
		return a, false
	}
	a = wire.Ready{Status: m.status, Length: -1}
	kind := headWhole
	switch {
	case m.status == http.StatusNotFound:
		kind = headMissing
	case isFresh(r, b, t):
		a.Status, kind = http.StatusNotModified, headFresh
	}
	a.Head = m.file.head(c, t, kind, m.navigates)
	if kind == headFresh {
		return a, true
	}
	return a, s.fill(&a, b, r.Method)
}

// pathOf returns the decoded path of a request's target.
func pathOf(target string) (path string, valid bool) {
	path, _, _ = strings.Cut(target, "?")
	if !strings.Contains(path, "%") {
		return path, strings.HasPrefix(path, "/")
	}
	path, err := url.PathUnescape(path)
	return path, err == nil && strings.HasPrefix(path, "/")
}

// fill adds the body, and reports whether it could be read.
func (s *Site) fill(a *wire.Ready, b *blob, method string) bool {
	if b.streams() {
		a.Length = b.size
		f, err := s.openBlob(b)
		if err != nil {
			return false
		}
		if method == http.MethodHead {
			f.Close()
			return true
		}
		a.File = f
		return true
	}
	loaded, err := s.load(b)
	if err != nil {
		return false
	}
	a.Length = int64(len(loaded.bytes))
	if method != http.MethodHead {
		a.Body = loaded.bytes
	}
	return true
}

// head returns the head of an answer with f.
func (f *file) head(c coding, t *tag, kind int, navigates bool) []byte {
	all := f.heads[c].Load()
	if all == nil {
		f.heads[c].CompareAndSwap(nil, &heads{})
		all = f.heads[c].Load()
	}
	at := kind
	if navigates {
		at += headKinds
	}
	if made := all[at].Load(); made != nil {
		return *made
	}
	h := http.Header{"X-Content-Type-Options": nosniff}
	if navigates {
		h["Vary"] = varyNavigation
	}
	f.setState(h, t, kind != headMissing)
	if kind != headFresh {
		f.setContent(h, c, kind != headMissing)
	}
	var out bytes.Buffer
	h.Write(&out)
	made := out.Bytes()
	all[at].Store(&made)
	return made
}
