package site

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// docs is a site with one of every kind of path.
var docs = map[string]string{
	"index.html":                       "home",
	"about.html":                       "about",
	"guide/index.html":                 "guide",
	"guide/intro.html":                 "intro",
	"blog.html":                        "blog page",
	"blog/index.html":                  "blog folder",
	"files/list.txt":                   "list",
	"plain":                            "plain file",
	"plain.html":                       "plain page",
	"UPPER.txt":                        "upper",
	"ünïcode/日本語.txt":                  "unicode",
	"with space.txt":                   "space",
	"100%25.txt":                       "percent",
	"a&b=c?d#e.txt":                    "signs",
	".well-known/security.txt":         "contact",
	".well-known/.hidden":              "SECRET",
	".env":                             "SECRET",
	".git/config":                      "SECRET",
	"files/.htpasswd":                  "SECRET",
	"back\\slash.txt":                  "SECRET",
	"line\nfeed.txt":                   "SECRET",
	"_headers":                         "headers file",
	".well-known/acme-challenge/token": "token",
}

// outcomes lists the answers to a path: "=text" a file, ">path" a redirect, "404".
func check(t *testing.T, s *Site, outcomes map[string]string, header ...string) {
	t.Helper()
	for target, want := range outcomes {
		res := do(s, get(target, header...))
		var got string
		switch res.StatusCode {
		case http.StatusOK:
			got = "=" + bodyOf(t, res)
		case http.StatusMovedPermanently:
			got = ">" + res.Header.Get("Location")
		default:
			got = http.StatusText(res.StatusCode)
		}
		if want == "404" {
			want = http.StatusText(http.StatusNotFound)
		}
		if got != want {
			t.Errorf("%s gives %q, want %q", target, got, want)
		}
	}
}

func TestPaths_FindFilesFoldersAndPages(t *testing.T) {
	check(t, serve(t, Options{}, docs), map[string]string{
		"/":                                 "=home",
		"/?x=1":                             "=home",
		"/index.html":                       "=home",
		"/about":                            "=about",
		"/about.html":                       "=about",
		"/about/":                           ">/about",
		"/guide":                            ">/guide/",
		"/guide?x=1&y=%2F":                  ">/guide/?x=1&y=%2F",
		"/guide/":                           "=guide",
		"/guide/index.html":                 "=guide",
		"/guide/intro":                      "=intro",
		"/blog":                             "=blog page",
		"/blog/":                            "=blog folder",
		"/plain":                            "=plain file",
		"/plain/":                           ">/plain",
		"/files":                            "404",
		"/files/":                           "404",
		"/files/list.txt/":                  "404",
		"/files/list":                       "404",
		"/index":                            "404",
		"/%C3%BCn%C3%AFcode/日本語.txt":        "=unicode",
		"/with%20space.txt":                 "=space",
		"/with+space.txt":                   "404",
		"/100%2525.txt":                     "=percent",
		"/100%25.txt":                       "404",
		"/a&b=c%3Fd%23e.txt":                "=signs",
		"/_headers":                         "=headers file",
		"/.well-known/security.txt":         "=contact",
		"/.well-known/acme-challenge/token": "=token",
		"http://elsewhere.example/about":    "=about",
	})
}

// Below a path that strips, a path without a slash at its end is the site's "".
func TestPaths_LeadBelowAPrefix(t *testing.T) {
	s := serve(t, Options{}, docs)
	for target, want := range map[string]string{
		"": "/docs/", "?a=%2F": "/docs/?a=%2F", "/": "", "/guide": "/docs/guide/", "/guide/": "",
	} {
		r := get("/", "X-Forwarded-Prefix", "/docs")
		path, query, _ := strings.Cut(target, "?")
		r.URL, r.RequestURI = &url.URL{Path: path, RawQuery: query}, target
		if got := do(s, r).Header.Get("Location"); got != want {
			t.Errorf("%q leads to %q, want %q", target, got, want)
		}
	}
}

// Paths are the largest part of a site's index. Each is in memory once.
func TestPaths_AreKeptOnce(t *testing.T) {
	s := serve(t, Options{}, docs)
	own := map[*byte]bool{}
	for _, r := range s.routes {
		own[unsafe.StringData(r.file.plain.path)] = true
	}
	for key := range s.routes {
		if !own[unsafe.StringData(key)] && key != "" {
			t.Errorf("%q is not a piece of a file's path", key)
		}
	}
	for _, key := range []string{"about", "about/", "guide", "blog/", "plain/", "a/path/that/is/not/there/and/not/short/at/all/"} {
		if n := testing.AllocsPerRun(100, func() { s.at(key) }); n != 0 {
			t.Errorf("looking %q up takes %v pieces of memory", key, n)
		}
	}
}

func TestPaths_NeverLeaveTheIndex(t *testing.T) {
	s := serve(t, Options{}, docs)
	outcomes := map[string]string{
		"//about":                     ">/about",
		"/guide//intro.html":          ">/guide/intro.html",
		"//guide":                     ">/guide/",
		"/files%2Flist.txt":           "=list",
		"/%2Fabout":                   ">/about",
		"//":                          ">/",
		"/upper.txt":                  "404",
		"/About":                      "404",
		"/ABOUT.HTML":                 "404",
		"/\u00fcni\u0308code/日本語.txt": "404",
	}
	for _, target := range []string{
		"/..", "/../", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/%2e%2e%2fetc/passwd", "/..%2f..%2fetc%2fpasswd",
		"/%252e%252e%252fetc/passwd", "/files/../.env", "/files/../about", "/files/./list.txt", "/./about", "/.", "/..;/about",
		"/..%5c..%5cwindows", "/files\\..\\about", "/%5cevil.com/", "/back%5Cslash.txt", "/line%0afeed.txt", "/about%00", "/about%00.html",
		"/%00", "/about%0d%0aSet-Cookie:x=1", "/.env", "/.git/config", "/.git/", "/files/.htpasswd", "/.well-known/.hidden", "/.well-known",
		"/.well-known/", "/files/.well-known/x", "/etc/passwd", "/proc/self/environ", "//evil.com/", "///evil.com/%2e%2e", "/%2F%2Fevil.com//",
		"/%ff%fe", "/%c0%ae%c0%ae/etc/passwd", "/%e0%80%ae./x", "/about%20", "/%20about", "/about.", "/about.html%2500", "/C:/windows", "/~root",
		"/index.html/..", "/guide/%2e%2e/about", "/" + strings.Repeat("a/", 5000), "/" + strings.Repeat("/", 5000) + "x",
	} {
		outcomes[target] = "404"
	}
	check(t, s, outcomes)
	check(t, serve(t, Options{SPA: "false"}, docs), outcomes, "Accept", "text/html")
}

func TestPaths_RedirectStaysOnTheHost(t *testing.T) {
	dir := folder(t, map[string]string{"evil.com/index.html": "x", "@evil.com/index.html": "x", "javascript:alert(1)/index.html": "x"})
	plain := openDir(t, dir, Options{})
	must(t, os.Symlink(".", filepath.Join(dir, "self")))
	withLinks := openDir(t, dir, Options{})
	outcomes := map[string]string{
		"/evil.com":                ">/evil.com/",
		"//evil.com":               ">/evil.com/",
		"//evil.com/":              ">/evil.com/",
		"///evil.com//":            ">/evil.com/",
		"/%2Fevil.com":             ">/evil.com/",
		"/@evil.com":               ">/@evil.com/",
		"/javascript:alert(1)":     ">/javascript:alert%281%29/",
		"/evil.com?next=//evil.gg": ">/evil.com/?next=//evil.gg",
	}
	check(t, plain, outcomes)
	outcomes["/self//evil.com"] = ">/self/evil.com/"
	outcomes["//self//evil.com/"] = ">/self/evil.com/"
	check(t, withLinks, outcomes)
	res := do(plain, get("/evil.com"))
	wantHeader(t, res, "Cache-Control", "no-cache")
}

// linked is a folder with links of every kind, next to a victim.
func linked(t *testing.T) *Site {
	dir := folder(t, map[string]string{
		"index.html": "home", "v2/index.html": "v2", "v2/api.js": "api", "v2/deep/x.txt": "deep", ".env": "SECRET", ".git/config": "SECRET",
	})
	victim := filepath.Join(filepath.Dir(dir), "victim")
	must(t, os.Mkdir(victim, 0o755))
	must(t, os.WriteFile(filepath.Join(victim, "key.txt"), []byte("SECRET"), 0o644))
	for name, target := range map[string]string{
		"latest":      "v2",
		"api.txt":     "v2/api.js",
		"v2/up":       "..",
		"v2/same":     ".",
		"self":        ".",
		"chain":       "latest",
		"page.html":   "v2/index.html",
		"out":         "../victim",
		"out.txt":     "../victim/key.txt",
		"around":      "../public/v2",
		"absolute":    filepath.Join(dir, "v2"),
		"passwd":      "/etc/passwd",
		"env.txt":     ".env",
		"git":         ".git",
		"broken":      "nowhere",
		"loop-a":      "loop-b",
		"loop-b":      "loop-a",
		"v2/deep/out": "../../../victim",
		"proc":        "/proc/self",
		"dev":         "/dev/zero",
	} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	must(t, os.Symlink("fifo", filepath.Join(dir, "fifo-link")))
	return openDir(t, dir, Options{SPA: "false"})
}

// The proxy removes a path's prefix from requests and says which.
func TestPaths_RedirectBelowTheRemovedPrefix(t *testing.T) {
	check(t, serve(t, Options{}, docs), map[string]string{"/guide": ">/docs%20x/guide/", "/about/": ">/docs%20x/about"}, "X-Forwarded-Prefix", "/docs%20x")
}

func TestLinks_ServeWhatTheSiteHolds(t *testing.T) {
	check(t, linked(t), map[string]string{
		"/latest":                          ">/latest/",
		"/latest/":                         "=v2",
		"/latest/api.js":                   "=api",
		"/chain/deep/x.txt":                "=deep",
		"/api.txt":                         "=api",
		"/page":                            "=v2",
		"/v2/up/v2/api.js":                 "=api",
		"/v2/same/same/same/api.js":        "=api",
		"/self/self/latest/up/index.html":  "=home",
		"/self/":                           "=home",
		"//latest//api.js":                 ">/latest/api.js",
		"/" + strings.Repeat("self/", 300): "=home",
		"/" + strings.Repeat("v2/up/", 300) + "v2": ">/" + strings.Repeat("v2/up/", 300) + "v2/",
	})
	res := do(linked(t), get("/api.txt"))
	wantHeader(t, res, "Content-Type", "text/plain; charset=utf-8")
}

func TestLinks_NeverLeadOut(t *testing.T) {
	outcomes := map[string]string{}
	for _, target := range []string{
		"/out", "/out/", "/out/key.txt", "/out.txt", "/around/", "/around/api.js", "/absolute/api.js", "/passwd", "/env.txt", "/git/config", "/git",
		"/broken", "/loop-a", "/loop-b/x", "/v2/deep/out/key.txt", "/proc/environ", "/dev", "/fifo", "/fifo-link", "/self/.env", "/v2/up/.git/config",
		"/self/out/key.txt", "/latest/../../victim/key.txt", "/" + strings.Repeat("self/", 5000),
	} {
		outcomes[target] = "404"
	}
	check(t, linked(t), outcomes)
}

func TestOpen_BoundsDepth(t *testing.T) {
	dir := folder(t, nil)
	deep := strings.Repeat("d/", maxDepth+3)
	must(t, os.MkdirAll(filepath.Join(dir, deep), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, deep, "x.txt"), []byte("x"), 0o644))
	within := strings.Repeat("d/", maxDepth)
	must(t, os.WriteFile(filepath.Join(dir, within, "x.txt"), []byte("x"), 0o644))
	check(t, openDir(t, dir, Options{}), map[string]string{"/" + within + "x.txt": "=x", "/" + deep + "x.txt": "404"})
}

func TestSPA_AnswersNavigationsWithIndex(t *testing.T) {
	s := serve(t, Options{}, map[string]string{"index.html": "app", "assets/app.js": "js", ".env": "SECRET"})
	views := map[string]string{
		"/users": "=app", "/users/7": "=app", "/users/": "=app", "/users/john.doe": "=app", "/v1.2": "=app", "/old.html": "=app", "//x": "=app", "/assets/app.js": "=js",
	}
	for _, accept := range []string{"text/html,application/xhtml+xml,*/*;q=0.8", "*/*", "text/*"} {
		check(t, s, views, "Accept", accept)
	}
	check(t, s, views)
	check(t, s, map[string]string{"/users": "=app"}, "Accept", "text/html", "Sec-Fetch-Mode", "navigate")
	res := do(s, get("/users"))
	wantHeader(t, res, "Cache-Control", "no-cache")
	wantHeader(t, res, "Vary", "Accept, Accept-Encoding, Sec-Fetch-Mode")
	wantStatus(t, do(s, get("/users", "If-None-Match", res.Header.Get("Etag"))), http.StatusNotModified)
}

func TestSPA_LeavesTheRestNotFound(t *testing.T) {
	s := serve(t, Options{SPA: "true"}, map[string]string{"index.html": "app", "about.html": "about", "404.html": "lost", ".env": "SECRET"})
	missing := map[string]string{
		"/assets/old-3f2a9c1b.js": "404", "/logo.PNG": "404", "/app.js.map": "404", "/.env": "404", "/.git/HEAD": "404", "/.well-known/change-password": "404",
		"/../x": "404", "/a%5Cb": "404", "/a%00": "404", "/data.json": "404",
	}
	check(t, s, missing, "Accept", "text/html")
	check(t, s, map[string]string{"/api/users": "404"}, "Accept", "application/json")
	check(t, s, map[string]string{"/api/users": "404"}, "Accept", "text/html;q=0, application/json")
	check(t, s, map[string]string{"/api/users": "404"}, "Accept", "*/*", "Sec-Fetch-Mode", "cors")
}

func TestSPA_AutoNeedsOneSinglePage(t *testing.T) {
	for name, c := range map[string]struct {
		spa   string
		files map[string]string
		on    bool
	}{
		"one page":           {"auto", map[string]string{"index.html": "app", "a.js": ""}, true},
		"empty means auto":   {"", map[string]string{"index.html": "app"}, true},
		"a second page":      {"auto", map[string]string{"index.html": "app", "about.html": ""}, false},
		"a page in a folder": {"auto", map[string]string{"index.html": "app", "docs/index.html": ""}, false},
		"a 404 page":         {"auto", map[string]string{"index.html": "app", "404.html": ""}, false},
		"no index":           {"auto", map[string]string{"a.js": ""}, false},
		"off":                {"false", map[string]string{"index.html": "app"}, false},
		"on":                 {"true", map[string]string{"index.html": "app", "404.html": ""}, true},
		"on without index":   {"true", map[string]string{"a.js": ""}, false},
	} {
		want := "404"
		if c.on {
			want = "=app"
		}
		t.Run(name, func(t *testing.T) {
			check(t, serve(t, Options{SPA: c.spa}, c.files), map[string]string{"/some/view": want})
		})
	}
}

// FuzzPath sends any path and checks that an answer is one of the site's own
// files, a redirect within the site, or an error.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"/", "/about", "/guide", "//evil.com/", "/../victim/key.txt", "/%2e%2e/x", "/latest/../.env", "/.git/config", "/a\\b", "/\x00", "/self/self/", "/v2/up/out.txt", "//guide", "/self//evil.com",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	dir := folder(f, map[string]string{
		"index.html": "file:home", "about.html": "file:about", "guide/index.html": "file:guide", "v2/index.html": "file:v2", "evil.com/index.html": "file:evil",
		".env": "SECRET", ".git/config": "SECRET", "a.png": "file:a", "a.png.br": "file:br",
	})
	must(f, os.Mkdir(filepath.Join(filepath.Dir(dir), "victim"), 0o755))
	must(f, os.WriteFile(filepath.Join(filepath.Dir(dir), "victim", "key.txt"), []byte("SECRET"), 0o644))
	for name, target := range map[string]string{"self": ".", "v2/up": "..", "out": "../victim", "latest": "v2", "env.txt": ".env"} {
		must(f, os.Symlink(target, filepath.Join(dir, name)))
	}
	sites := map[bool]*Site{false: openDir(f, dir, Options{SPA: "false"}), true: openDir(f, dir, Options{SPA: "true"})}
	f.Fuzz(func(t *testing.T, path string, spa bool) {
		decoded := get("/")
		decoded.URL = &url.URL{Path: path}
		decoded.RequestURI = decoded.URL.EscapedPath()
		requests := []*http.Request{decoded}
		if u, err := url.ParseRequestURI(path); err == nil {
			encoded := get("/")
			encoded.URL, encoded.RequestURI = u, path
			requests = append(requests, encoded)
		}
		for _, r := range requests {
			checkInvariant(t, sites[spa], r)
		}
	})
}

// checkInvariant fails the test if the answer is not allowed.
func checkInvariant(t *testing.T, s *Site, r *http.Request) {
	t.Helper()
	res := do(s, r)
	body := bodyOf(t, res)
	switch res.StatusCode {
	case http.StatusOK:
		if !strings.HasPrefix(body, "file:") {
			t.Errorf("%q gives %q", r.URL.Path, body)
		}
	case http.StatusMovedPermanently:
		to := res.Header.Get("Location")
		if len(to) > 1 && (to[1] == '/' || to[1] == '\\') || to[0] != '/' {
			t.Errorf("%q redirects to %q", r.URL.Path, to)
			return
		}
		wantStatus(t, do(s, get(to)), http.StatusOK)
	case http.StatusNotFound:
		if strings.Contains(body, "SECRET") {
			t.Errorf("%q gives %q", r.URL.Path, body)
		}
	default:
		t.Errorf("%q gives status %d", r.URL.Path, res.StatusCode)
	}
}
