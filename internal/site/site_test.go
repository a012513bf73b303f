package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// serve opens a site of these files, by path; it has a share of the process's memory.
func serve(tb testing.TB, opts Options, files map[string]string) *Site {
	tb.Helper()
	return openDir(tb, folder(tb, files), opts)
}

// folder writes files into a new folder.
func folder(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "public")
	must(tb, os.Mkdir(dir, 0o755))
	for name, content := range files {
		path := filepath.Join(dir, name)
		must(tb, os.MkdirAll(filepath.Dir(path), 0o755))
		must(tb, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

func openDir(tb testing.TB, dir string, opts Options) *Site {
	tb.Helper()
	s, err := Open(dir, opts)
	must(tb, err)
	tb.Cleanup(func() { s.Close() })
	return s
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// get is a request for a target as it stands on the wire, with pairs of header
// names and values.
func get(target string, header ...string) *http.Request {
	return request(http.MethodGet, target, header...)
}

func request(method, target string, header ...string) *http.Request {
	u, err := url.ParseRequestURI(target) // as net/http does
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest(method, "/", nil)
	r.URL, r.RequestURI = u, target
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// do is the answer of a site to a request.
func do(s *Site, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if a, ok := s.Ready(plain(r), r.RequestURI); ok {
		if want, got := describe(w), describe(sent(a, r.Method)); got != want {
			panic(fmt.Sprintf("%s %s is answered differently if the answer is ready:\n%s\ninstead of\n%s", r.Method, r.RequestURI, got, want))
		}
	}
	return w.Result()
}

// bodyOf is the body of an answer.
func bodyOf(tb testing.TB, res *http.Response) string {
	tb.Helper()
	data, err := io.ReadAll(res.Body)
	must(tb, err)
	return string(data)
}

// script is text that compresses about as well as a bundle does.
func script(size int) []byte {
	words := []string{"function", "return", "const", "this.", "=>", "{", "}", "props", "useState", "null"}
	random := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < size {
		fmt.Fprintf(&b, "%s %x ", words[random.IntN(len(words))], random.IntN(1<<16))
	}
	return b.Bytes()[:size]
}

// wantStatus fails the test unless the answer has this status.
func wantStatus(tb testing.TB, res *http.Response, status int) {
	tb.Helper()
	if res.StatusCode != status {
		tb.Errorf("status %d, want %d", res.StatusCode, status)
	}
}

// wantHeader fails the test unless the answer has this header.
func wantHeader(tb testing.TB, res *http.Response, name, value string) {
	tb.Helper()
	if got := res.Header.Get(name); got != value {
		tb.Errorf("%s: %q, want %q", name, got, value)
	}
}

func TestOpen_RefusesWhatIsNoFolder(t *testing.T) {
	dir := folder(t, map[string]string{"file": "x"})
	must(t, os.Symlink(dir, dir+"-link"))
	for _, path := range []string{filepath.Join(dir, "file"), filepath.Join(dir, "none"), dir + "-link"} {
		if s, err := Open(path, Options{}); err == nil {
			s.Close()
			t.Errorf("Open(%s) succeeded", path)
		}
	}
}

func TestOpen_LeavesOutWhatIsHiddenInTheFolderItself(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "page", "stack.yaml": "secret", "docs/stack.yaml": "of the docs", "old/page.html": "old"})
	must(t, os.Symlink("stack.yaml", filepath.Join(dir, "link.txt")))
	must(t, os.Symlink(".", filepath.Join(dir, "self")))
	s := openDir(t, dir, Options{SPA: "false", Hidden: []string{"stack.yaml", "old"}})
	for target, status := range map[string]int{
		"/": http.StatusOK, "/docs/stack.yaml": http.StatusOK, "/self/index.html": http.StatusOK,
		"/stack.yaml": http.StatusNotFound, "/link.txt": http.StatusNotFound, "/self/stack.yaml": http.StatusNotFound,
		"/old/page.html": http.StatusNotFound,
	} {
		t.Run(target, func(t *testing.T) { wantStatus(t, do(s, get(target)), status) })
	}
	if got, want := s.Extent(), (Extent{Files: 3, Bytes: int64(len("page" + "of the docs"))}); got != want {
		t.Errorf("the extent is %v, want %v", got, want)
	}
}

func TestOpen_RefusesUnknownSPA(t *testing.T) {
	if s, err := Open(folder(t, nil), Options{SPA: "yes"}); err == nil {
		s.Close()
		t.Error("Open succeeded")
	}
}

func TestSite_AnswersOnlyGetAndHead(t *testing.T) {
	s := serve(t, Options{}, map[string]string{"index.html": "home"})
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"} {
		res := do(s, request(method, "/"))
		wantStatus(t, res, http.StatusMethodNotAllowed)
		wantHeader(t, res, "Allow", "GET, HEAD, OPTIONS")
	}
	res := do(s, request("OPTIONS", "/"))
	wantStatus(t, res, http.StatusNoContent)
	wantHeader(t, res, "Allow", "GET, HEAD, OPTIONS")
}

func TestSite_AnswersHeadLikeGetWithoutBody(t *testing.T) {
	s := serve(t, Options{}, map[string]string{
		"small.txt": "small", "packed.txt": string(script(4000)), "big.png": string(script(maxResident + 1)), "404.html": "lost",
	})
	for _, target := range []string{"/small.txt", "/packed.txt", "/big.png", "/none.png"} {
		got := do(s, request("GET", target, "Accept-Encoding", "gzip"))
		head := do(s, request("HEAD", target, "Accept-Encoding", "gzip"))
		wantStatus(t, head, got.StatusCode)
		for name := range got.Header {
			wantHeader(t, head, name, got.Header.Get(name))
		}
		if got.Header.Get("Content-Length") != fmt.Sprint(len(bodyOf(t, got))) {
			t.Errorf("%s: Content-Length %s is not the body's", target, got.Header.Get("Content-Length"))
		}
		if body := bodyOf(t, head); body != "" {
			t.Errorf("%s: HEAD has a body of %d bytes", target, len(body))
		}
	}
}

func TestSite_SendsNosniffWithEveryAnswer(t *testing.T) {
	s := serve(t, Options{}, map[string]string{"a.txt": "x", "dir/index.html": "x"})
	for _, r := range []*http.Request{
		get("/a.txt"), get("/none"), get("/dir"), request("POST", "/"), request("OPTIONS", "/"), get("/a.txt", "If-None-Match", "*"),
	} {
		wantHeader(t, do(s, r), "X-Content-Type-Options", "nosniff")
	}
}

func TestSite_SaysNotFoundInTheClientsForm(t *testing.T) {
	s := serve(t, Options{}, map[string]string{"a.txt": "x"})
	res := do(s, get("/none", "Accept", "application/json"))
	wantStatus(t, res, http.StatusNotFound)
	wantHeader(t, res, "Content-Type", "application/json")
	wantHeader(t, res, "Cache-Control", "no-cache")
	if body := bodyOf(t, res); body != `{"detail":"There is no page at this address."}` {
		t.Errorf("body %s", body)
	}
	res = do(s, get("/none", "Accept", "text/html,*/*;q=0.8"))
	wantStatus(t, res, http.StatusNotFound)
	wantHeader(t, res, "Content-Type", "text/html; charset=utf-8")
	wantHeader(t, res, "Vary", "Accept")
}

func TestSite_SendsItsOwn404Page(t *testing.T) {
	s := serve(t, Options{}, map[string]string{"index.html": "home", "404.html": "lost here"})
	res := do(s, get("/none", "If-None-Match", "*", "Range", "bytes=0-1"))
	wantStatus(t, res, http.StatusNotFound)
	wantHeader(t, res, "Content-Type", "text/html; charset=utf-8")
	wantHeader(t, res, "Cache-Control", "no-cache")
	wantHeader(t, res, "Etag", "")
	if body := bodyOf(t, res); body != "lost here" {
		t.Errorf("body %q", body)
	}
}

func TestSite_SaysWhenAFileCannotBeRead(t *testing.T) {
	dir := folder(t, map[string]string{"gone.txt": "x", "grown.txt": "x", "pipe.txt": "x", "big.png": string(script(maxResident + 1))})
	var log bytes.Buffer
	s := openDir(t, dir, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, os.Remove(filepath.Join(dir, "gone.txt")))
	must(t, os.Remove(filepath.Join(dir, "big.png")))
	must(t, os.WriteFile(filepath.Join(dir, "grown.txt"), []byte("longer"), 0o644))
	must(t, os.Remove(filepath.Join(dir, "pipe.txt")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe.txt"), 0o644))
	for _, target := range []string{"/gone.txt", "/grown.txt", "/pipe.txt", "/big.png"} {
		res := do(s, get(target))
		wantStatus(t, res, http.StatusInternalServerError)
		wantHeader(t, res, "Etag", "")
		if body := bodyOf(t, res); body != `{"detail":"This file could not be read."}` {
			t.Errorf("%s: body %s", target, body)
		}
		if !strings.Contains(log.String(), "path="+target[1:]) {
			t.Errorf("%s: nothing in the log", target)
		}
	}
}

func TestClose_LetsWhatIsOpenEnd(t *testing.T) {
	s, err := Open(folder(t, map[string]string{"a.txt": "x"}), Options{})
	must(t, err)
	wantStatus(t, do(s, get("/a.txt")), http.StatusOK)
	must(t, s.Close())
	wantStatus(t, do(s, get("/a.txt")), http.StatusInternalServerError)
}

func TestReopen_ReadsTheTreeBeforeTheFirstAnswerAndNotBefore(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "the page", "404.html": "none"})
	s, err := Reopen(dir, Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	// What is written now was not there when it was opened.
	must(t, os.WriteFile(filepath.Join(dir, "late.html"), []byte("late"), 0o644))
	var all sync.WaitGroup
	for range 8 {
		for target, want := range map[string]string{"/": "the page", "/late": "late", "/no": "none"} {
			all.Go(func() {
				w := httptest.NewRecorder()
				s.ServeHTTP(w, get(target))
				if w.Body.String() != want {
					t.Errorf("%s: %d %q, want %q", target, w.Code, w.Body, want)
				}
			})
		}
	}
	all.Wait()
}

func TestReopen_TriesAgainWhatCouldNotBeRead(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "the page", "sub/page.html": "x"})
	s, err := Reopen(dir, Options{})
	must(t, err)
	whole := s.root
	broken, err := os.OpenRoot(dir)
	must(t, err)
	must(t, broken.Close())
	t.Cleanup(func() { s.Close() })
	for _, root := range []*os.Root{broken, whole} {
		s.root = root
		w := httptest.NewRecorder()
		s.ServeHTTP(w, get("/"))
		if got := w.Body.String() == "the page"; got != (root == whole) {
			t.Errorf("%d %q", w.Code, w.Body)
		}
	}
}

func TestReopen_RefusesAFolderThatIsMissingAtOnce(t *testing.T) {
	if _, err := Reopen(filepath.Join(t.TempDir(), "none"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Reopen = %v, want that it does not exist", err)
	}
}

func TestReopen_ServesOnlyWhatWasPublished(t *testing.T) {
	files := map[string]string{"index.html": "the page", "sub/page.html": "x"}
	dir := folder(t, files)
	must(t, os.Symlink("sub", filepath.Join(dir, "link")))
	published := openDir(t, dir, Options{}).Extent()
	if want := (Extent{Files: 3, Bytes: 9}); published != want {
		t.Fatalf("Extent = %v, want %v", published, want)
	}
	for what, change := range map[string]func(dir string) error{
		"nothing":           func(string) error { return nil },
		"a file is missing": func(dir string) error { return os.Remove(filepath.Join(dir, "sub/page.html")) },
		"a link is missing": func(dir string) error { return os.Remove(filepath.Join(dir, "link")) },
		"a file is cut":     func(dir string) error { return os.Truncate(filepath.Join(dir, "index.html"), 3) },
		"a file came":       func(dir string) error { return os.WriteFile(filepath.Join(dir, "new"), nil, 0o600) },
	} {
		dir := folder(t, files)
		must(t, os.Symlink("sub", filepath.Join(dir, "link")))
		must(t, change(dir))
		s, err := Reopen(dir, Options{Published: published})
		must(t, err)
		t.Cleanup(func() { s.Close() })
		status := do(s, get("/")).StatusCode
		if err := s.Read(t.Context()); (err == nil) != (what == "nothing") || (status == http.StatusOK) != (err == nil) {
			t.Errorf("%s: Read = %v, then status %d", what, err, status)
		}
	}
}

func TestRead_GivesUpWhenItsContextEnds(t *testing.T) {
	s, err := Reopen(folder(t, map[string]string{"index.html": "the page"}), Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Read = %v, want that it was canceled", err)
	}
	wantStatus(t, do(s, get("/").WithContext(ctx)), http.StatusOK)
}
