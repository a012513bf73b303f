package site

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// maxRanges is how many ranges of a file one request may name. With more, or with
// ranges that cover the file many times, a small request would cost a large answer, so
// it gets the whole file.
const maxRanges = 16

// send answers with f. A status other than 200 means that f is not what was asked for,
// so conditions and ranges do not apply.
func (s *Site) send(w http.ResponseWriter, r *http.Request, f *file, status int) {
	asked := status == http.StatusOK
	partial := asked && wantsRange(r)
	c := identity
	if !partial {
		c = f.choose(r.Header["Accept-Encoding"])
	}
	b := f.blob(c)
	t, err := s.tagOf(b)
	if err != nil {
		s.unreadable(w, r, f, err)
		return
	}
	h := w.Header()
	f.setState(h, t, asked)
	if asked && !partial && isFresh(r.Header, b, t) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	f.setContent(h, c, asked)
	if partial || asked && hasGuard(r.Header) {
		err = s.sendContent(w, r, b)
	} else {
		err = s.sendWhole(w, r, b, status)
	}
	if err != nil {
		s.unreadable(w, r, f, err)
	}
}

// setState sets the headers by which a client knows its copy of f again, and how long
// to keep it.
func (f *file) setState(h http.Header, t *tag, asked bool) {
	if f.varies() && h["Vary"] == nil {
		h["Vary"] = varyCoding
	}
	if !asked {
		h["Cache-Control"] = lifetimePage
		return
	}
	h["Cache-Control"], h["Etag"], h["Last-Modified"] = f.lifetime, t.etagHeader, t.lastModified
}

// setContent sets the headers that say what the body is.
func (f *file) setContent(h http.Header, c coding, asked bool) {
	h["Content-Type"] = f.kind.contentType
	if c != identity {
		h["Content-Encoding"] = encoding[c]
	} else if asked {
		h["Accept-Ranges"] = bytesUnit
	}
}

// sendWhole writes all of b. If it fails, nothing has been written yet.
func (s *Site) sendWhole(w http.ResponseWriter, r *http.Request, b *blob, status int) error {
	if b.streams() {
		return s.sendFile(w, r, b, status)
	}
	loaded, err := s.load(b)
	if err != nil {
		return err
	}
	w.Header()["Content-Length"] = loaded.length
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(loaded.bytes) // fails only when the client has left
	}
	return nil
}

// sendFile copies b from its file. The writer takes an *os.File in a
// LimitedReader by sendfile, without a copy through this process.
func (s *Site) sendFile(w http.ResponseWriter, r *http.Request, b *blob, status int) error {
	f, err := s.openBlob(b)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header()["Content-Length"] = decimal(b.size)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		io.CopyN(w, f, b.size) // fails only when the client has left
	}
	return nil
}

// sendContent leaves ranges and the rarer conditions to net/http.
func (s *Site) sendContent(w http.ResponseWriter, r *http.Request, b *blob) error {
	var content io.ReadSeeker
	if !b.streams() {
		loaded, err := s.load(b)
		if err != nil {
			return err
		}
		content = bytes.NewReader(loaded.bytes)
	} else {
		f, err := s.openBlob(b)
		if err != nil {
			return err
		}
		defer f.Close()
		content = f
	}
	http.ServeContent(w, r, "", b.changed, content)
	return nil
}

// wantsRange reports whether a request asks for parts of a file, within reason.
func wantsRange(r *http.Request) bool {
	ranges := r.Header["Range"]
	return len(ranges) == 1 && r.Method == http.MethodGet && strings.Count(ranges[0], ",") < maxRanges
}

// fields are those of a request, by canonical names.
type fields interface{ Values(name string) []string }

// hasGuard reports whether a request applies only to a certain state.
func hasGuard(r fields) bool {
	return r.Values("If-Match") != nil || r.Values("If-Unmodified-Since") != nil
}

// isFresh reports whether a client's copy is up to date. Guards take precedence and are
// not evaluated here.
func isFresh(r fields, b *blob, t *tag) bool {
	if hasGuard(r) {
		return false
	}
	if tags := r.Values("If-None-Match"); len(tags) > 0 {
		for _, line := range tags {
			if strings.Contains(line, t.etag) || strings.TrimSpace(line) == "*" {
				return true
			}
		}
		return false
	}
	since := r.Values("If-Modified-Since")
	if len(since) == 0 {
		return false
	}
	at, err := http.ParseTime(since[0])
	return err == nil && b.changed.Unix() <= at.Unix()
}
