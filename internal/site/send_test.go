package site

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
)

func TestSite_SendsTypesOfItsOwnTable(t *testing.T) {
	types := map[string]string{
		"a.html": "text/html; charset=utf-8", "a.HTM": "text/html; charset=utf-8", "a.css": "text/css; charset=utf-8",
		"a.js": "text/javascript; charset=utf-8", "a.mjs": "text/javascript; charset=utf-8", "a.json": "application/json", "a.js.map": "application/json",
		"a.svg": "image/svg+xml", "a.woff2": "font/woff2", "a.wasm": "application/wasm", "a.webmanifest": "application/manifest+json",
		"a.avif": "image/avif", "a.webp": "image/webp", "a.PNG": "image/png", "a.mp4": "video/mp4", "a.pdf": "application/pdf", "a.txt": "text/plain; charset=utf-8",
		"a.ico": "image/x-icon", "a.xml": "application/xml", "a.tar.gz": "application/gzip", "a": "application/octet-stream", "a.unheard": "application/octet-stream",
		".well-known/apple-app-site-association": "application/json",
	}
	files := map[string]string{}
	for name := range types {
		files[name] = "<!doctype html><script>"
	}
	s := serve(t, Options{}, files)
	for name, want := range types {
		t.Run(name, func(t *testing.T) { wantHeader(t, do(s, get("/"+name)), "Content-Type", want) })
	}
}

func TestSite_KeepsHashedNamesForAYear(t *testing.T) {
	const year, ask, page = "public, max-age=31536000, immutable", "public, max-age=0, must-revalidate", "no-cache"
	lifetimes := map[string]string{
		"index.html": page, "about-3f2a9c1b.html": page, "assets/index.htm": page,
		"app-3f2a9c1b.js": year, "main.abcdef12.css": year, "static/js/main.8e1b24ea.chunk.js": year, "static/js/787.c4e7f8f9.chunk.js.map": year,
		"static/js/main.8e1b24ea.js.LICENSE.txt": year, "img/logo.3f2a9c1b.png": year, "_next/static/chunks/0f2a9c1b3d4e5f60.js": year,
		"_next/static/media/inter.0a1b2c3d.p.woff2": year, "assets/index-DkX9aLmQ.js": year, "assets/index-B-x3kQ9z.css": year, "assets/vendor-BfXqkLpz.js": year,
		"_astro/Base.BfX3kQ9z.css": year, "_nuxt/BfX3kQ9z.js": year, "_nuxt/entry.BfX3kQ9z.css": year, "_app/immutable/entry/start.C7dKq0aZ.js": year,
		"main-5QX3TZ7A.js": year, "main-5QX3TZ7A.js.map": year,
		"app.js": ask, "sw.js": ask, "photo-20240131.jpg": ask, "assets/report-20240131.js": ask, "assets/user-settings.js": ask, "assets/page-Settings.js": ask,
		"assets/chart-version2.js": ask, "jquery-3.7.1.min.js": ask, "bootstrap.bundle.min.css": ask, "assets/photo-IMG_2024.jpg": ask, "lib-BfX3kQ9z.js": ask,
		"assets/HomePage.js": ask, "robots.txt": ask, "favicon.ico": ask, "deadbeef.png": ask, "12345678.js": ask,
	}
	files := map[string]string{}
	for name := range lifetimes {
		files[name] = name
	}
	s := serve(t, Options{}, files)
	for name, want := range lifetimes {
		t.Run(name, func(t *testing.T) { wantHeader(t, do(s, get("/"+name)), "Cache-Control", want) })
	}
}

func TestSite_AnswersNotModified(t *testing.T) {
	s := serve(t, Options{}, map[string]string{"a.txt": "one", "big.png": string(script(maxResident + 1)), "packed.css": string(script(3000))})
	for _, target := range []string{"/a.txt", "/big.png", "/packed.css"} {
		res := do(s, get(target, "Accept-Encoding", "gzip"))
		tag, date := res.Header.Get("Etag"), res.Header.Get("Last-Modified")
		if len(tag) < 10 || strings.HasPrefix(tag, "W/") {
			t.Fatalf("%s: entity tag %q", target, tag)
		}
		at, err := http.ParseTime(date)
		must(t, err)
		fresh := [][]string{
			{"If-None-Match", tag},
			{"If-None-Match", "W/" + tag},
			{"If-None-Match", `"x", ` + tag},
			{"If-None-Match", "*"},
			{"If-None-Match", `"x"`, "If-None-Match", tag},
			{"If-Modified-Since", date},
			{"If-Modified-Since", at.Add(time.Hour).Format(http.TimeFormat)},
		}
		for _, header := range fresh {
			res := do(s, get(target, append(header, "Accept-Encoding", "gzip")...))
			wantStatus(t, res, http.StatusNotModified)
			wantHeader(t, res, "Etag", tag)
			if bodyOf(t, res) != "" || res.Header.Get("Content-Type") != "" || res.Header.Get("Cache-Control") == "" {
				t.Errorf("%s: %v gives body or headers of one", target, header)
			}
		}
		stale := [][]string{
			{"If-None-Match", `"x"`},
			{"If-None-Match", `"x"`, "If-Modified-Since", date},
			{"If-Modified-Since", at.Add(-time.Hour).Format(http.TimeFormat)},
			{"If-Modified-Since", "yesterday"},
			{"If-None-Match", strings.Trim(tag, `"`)},
			{"If-Match", tag},
			{"If-Unmodified-Since", date},
		}
		for _, header := range stale {
			wantStatus(t, do(s, get(target, append(header, "Accept-Encoding", "gzip")...)), http.StatusOK)
		}
		wantStatus(t, do(s, get(target, "If-Match", `"x"`)), http.StatusPreconditionFailed)
		wantStatus(t, do(s, get(target, "If-Unmodified-Since", at.Add(-time.Hour).Format(http.TimeFormat))), http.StatusPreconditionFailed)
	}
}

// A client that has a file is told so without a look at it, which may not even be there any more:
// by ServeHTTP, and by Ready.
func TestSite_AnswersNotModifiedWithoutTheFile(t *testing.T) {
	dir := folder(t, map[string]string{
		"small.txt": "one", "packed.css": string(script(3000)), "big.png": string(script(maxResident + 1)), "large.js": string(script(maxResident + 1)), "huge.bin": "",
	})
	must(t, os.Truncate(filepath.Join(dir, "huge.bin"), maxHashed+1)) // its tag does not come from its content
	s := openDir(t, dir, Options{})
	targets := []string{"/small.txt", "/packed.css", "/big.png", "/large.js", "/huge.bin"}
	tags := map[[2]string]string{} // by path and Accept-Encoding
	for _, target := range targets {
		for _, accepted := range []string{"identity", "gzip"} {
			res := do(s, request(http.MethodHead, target, "Accept-Encoding", accepted))
			wantStatus(t, res, http.StatusOK)
			tags[[2]string{target, accepted}] = res.Header.Get("Etag")
		}
	}
	if tag := tags[[2]string{"/large.js", "gzip"}]; tag == tags[[2]string{"/large.js", "identity"}] {
		t.Fatalf("the gzip form has the tag %s of the file", tag)
	}
	s.memory.close() // nothing is in memory, nor will be
	for _, replace := range []func(path string) error{
		os.Remove,
		func(path string) error { return os.Mkdir(path, 0o755) },
		func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("other"), 0o644))
		},
	} {
		for _, target := range targets {
			must(t, replace(filepath.Join(dir, target)))
		}
		for of, tag := range tags {
			wantNotModified(t, s, of[0], of[1], tag)
			wantStatus(t, do(s, get(of[0], "Accept-Encoding", of[1])), http.StatusInternalServerError) // it is not as it was
		}
	}
}

// wantNotModified fails the test unless whoever has a file with a tag is told so, and that is ready.
func wantNotModified(t *testing.T, s *Site, target, accepted, tag string) {
	t.Helper()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for _, condition := range [][2]string{{"If-None-Match", tag}, {"If-None-Match", "*"}, {"If-Modified-Since", "Fri, 31 Dec 9999 23:59:59 GMT"}} {
			r := request(method, target, "Accept-Encoding", accepted, condition[0], condition[1])
			res := do(s, r)
			wantStatus(t, res, http.StatusNotModified)
			wantHeader(t, res, "Etag", tag)
			if a, ok := s.Ready(plain(r), target); !ok || a.Status != http.StatusNotModified || a.File != nil || a.Body != nil {
				t.Errorf("%s %s, %v in %s: ready with %d, %t", method, target, condition, accepted, a.Status, ok)
			}
		}
	}
}

func TestSite_TagsFollowTheContent(t *testing.T) {
	tag := func(name, content string) string {
		return do(serve(t, Options{}, map[string]string{name: content}), get("/"+name)).Header.Get("Etag")
	}
	for _, size := range []int{10, maxResident + 1} {
		content := string(script(size))
		first, again := tag("a.png", content), tag("a.png", content)
		if first != again {
			t.Errorf("%d bytes: the same content has two tags", size)
		}
		if first == tag("a.png", "x"+content[1:]) {
			t.Errorf("%d bytes: other content has the same tag", size)
		}
	}
	big := strings.Repeat("x", maxHashed+1)
	if first, again := tag("a.png", big), tag("a.png", big); first == again {
		t.Error("two very big files have one tag though nobody compared them")
	}
}

// An archive may give a file of another generation the same time.
func TestSite_DatesFilesByTheirGeneration(t *testing.T) {
	dir := folder(t, map[string]string{"a.txt": "new"})
	old := time.Date(1985, 10, 26, 8, 15, 0, 0, time.UTC)
	must(t, os.Chtimes(filepath.Join(dir, "a.txt"), old, old))
	s := openDir(t, dir, Options{})
	wantStatus(t, do(s, get("/a.txt", "If-Modified-Since", old.Format(http.TimeFormat))), http.StatusOK)
}

func TestSite_SendsRanges(t *testing.T) {
	for name, size := range map[string]int{"small.txt": 3000, "big.txt": maxResident + 1} {
		content := string(script(size))
		s := serve(t, Options{}, map[string]string{name: content})
		plain := do(s, get("/"+name))
		wantHeader(t, plain, "Accept-Ranges", "bytes")
		tag := plain.Header.Get("Etag")
		for ranges, want := range map[string]string{
			"bytes=0-0": content[:1], "bytes=10-19": content[10:20], "bytes=-5": content[size-5:], fmt.Sprintf("bytes=%d-", size-3): content[size-3:], "bytes=0-999999999": content,
		} {
			res := do(s, get("/"+name, "Range", ranges, "Accept-Encoding", "gzip"))
			wantStatus(t, res, http.StatusPartialContent)
			wantHeader(t, res, "Content-Encoding", "")
			wantHeader(t, res, "Etag", tag)
			wantHeader(t, res, "Content-Length", fmt.Sprint(len(want)))
			if bodyOf(t, res) != want {
				t.Errorf("%s: %s gives other bytes", name, ranges)
			}
		}
		res := do(s, get("/"+name, "Range", fmt.Sprintf("bytes=%d-", size)))
		wantStatus(t, res, http.StatusRequestedRangeNotSatisfiable)
		wantHeader(t, res, "Content-Range", fmt.Sprintf("bytes */%d", size))
		wantStatus(t, do(s, get("/"+name, "Range", "bytes=0-1", "If-Range", tag)), http.StatusPartialContent)
		wantStatus(t, do(s, get("/"+name, "Range", "bytes=0-1", "If-Range", `"other"`)), http.StatusOK)
		wantStatus(t, do(s, get("/"+name, "Range", "bytes=0-1", "If-Range", plain.Header.Get("Last-Modified"))), http.StatusPartialContent)
		wantStatus(t, do(s, get("/"+name, "Range", "bytes=0-1", "If-None-Match", tag)), http.StatusNotModified)
		wantStatus(t, do(s, request("HEAD", "/"+name, "Range", "bytes=0-1")), http.StatusOK)
	}
}

func TestSite_SendsSeveralRangesButNotAnyNumber(t *testing.T) {
	content := string(script(5000))
	s := serve(t, Options{}, map[string]string{"a.txt": content})
	res := do(s, get("/a.txt", "Range", "bytes=0-9,100-109"))
	wantStatus(t, res, http.StatusPartialContent)
	_, params, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	must(t, err)
	parts := multipart.NewReader(res.Body, params["boundary"])
	for _, want := range []string{content[:10], content[100:110]} {
		part, err := parts.NextPart()
		must(t, err)
		got, err := io.ReadAll(part)
		must(t, err)
		if string(got) != want {
			t.Errorf("part %q, want %q", got, want)
		}
	}
	wantStatus(t, do(s, get("/a.txt", "Range", "bytes="+strings.Repeat("0-0,", maxRanges)+"0-0")), http.StatusOK)
}

func TestSite_SendsEmptyFiles(t *testing.T) {
	s := serve(t, Options{}, map[string]string{"empty.txt": ""})
	for _, r := range []*http.Request{get("/empty.txt"), get("/empty.txt", "Range", "bytes=0-10")} {
		res := do(s, r)
		wantStatus(t, res, http.StatusOK)
		wantHeader(t, res, "Content-Length", "0")
	}
}

// Over a connection, net/http sends a file without a copy through the process.
func TestSite_SendsBigFilesWholeOverAConnection(t *testing.T) {
	content := script(3 << 20)
	s := serve(t, Options{}, map[string]string{"video.mp4": string(content)})
	server := httptest.NewServer(s)
	defer server.Close()
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			res, err := http.Get(server.URL + "/video.mp4")
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if got, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(got, content) || res.ContentLength != int64(len(content)) {
				t.Errorf("%d bytes, Content-Length %d, %v", len(got), res.ContentLength, err)
			}
		})
	}
	wait.Wait()
}

func TestCoding_PacksWhatGainsByIt(t *testing.T) {
	text := string(script(20_000))
	s := serve(t, Options{SPA: "true"}, map[string]string{
		"app.js": text, "photo.jpg": text, "short.js": text[:minPacked-1], "huge.js": strings.Repeat(text, maxPacked/20_000+1), "404.html": text, "index.html": text,
	})
	res := do(s, get("/app.js", "Accept-Encoding", "gzip, deflate, br, zstd"))
	wantHeader(t, res, "Content-Encoding", "gzip")
	wantHeader(t, res, "Vary", "Accept-Encoding")
	wantHeader(t, res, "Content-Type", "text/javascript; charset=utf-8")
	if unpack(t, res) != text {
		t.Error("gzip holds other bytes")
	}
	for target, plain := range map[string]bool{"/photo.jpg": true, "/short.js": true, "/huge.js": true, "/none": false, "/none.js": false} {
		res := do(s, get(target, "Accept-Encoding", "gzip"))
		if got := res.Header.Get("Content-Encoding"); (got == "") != plain {
			t.Errorf("%s: Content-Encoding %q", target, got)
		}
	}
	wantHeader(t, do(s, get("/photo.jpg")), "Vary", "")
	wantHeader(t, do(s, get("/app.js")), "Vary", "Accept-Encoding")
}

func TestCoding_TagsEachFormApart(t *testing.T) {
	s := serve(t, Options{}, map[string]string{"app.js": string(script(3000)), "app.js.br": "br bytes", "app.js.zst": "zstd bytes"})
	seen := map[string]string{}
	for _, accept := range []string{"identity", "gzip", "br", "zstd"} {
		res := do(s, get("/app.js", "Accept-Encoding", accept))
		tag := res.Header.Get("Etag")
		if other := seen[tag]; other != "" {
			t.Errorf("%s and %s share the tag %s", accept, other, tag)
		}
		seen[tag] = accept
		wantStatus(t, do(s, get("/app.js", "Accept-Encoding", accept, "If-None-Match", tag)), http.StatusNotModified)
		wantStatus(t, do(s, get("/app.js", "Accept-Encoding", accept, "If-Match", tag)), http.StatusOK)
		if accept != "identity" {
			wantStatus(t, do(s, get("/app.js", "If-None-Match", tag)), http.StatusOK)
			res := do(s, get("/app.js", "Accept-Encoding", accept, "Range", "bytes=0-1", "If-Range", tag))
			wantStatus(t, res, http.StatusOK)
			wantHeader(t, res, "Content-Encoding", "")
		}
	}
}

func TestCoding_TakesPrecompressedFiles(t *testing.T) {
	s := serve(t, Options{}, map[string]string{
		"app.js": "plain", "app.js.br": "br", "app.js.gz": "gz", "app.js.zst": "zst", "photo.jpg": "plain", "photo.jpg.br": "br", "lone.css.gz": "gz",
	})
	for accept, want := range map[string]string{
		"br": "br", "gzip": "gz", "zstd": "zst", "gzip, deflate, br, zstd": "br", "gzip, zstd": "zst", "*": "br", "deflate": "plain", "": "plain",
	} {
		if got := bodyOf(t, do(s, get("/app.js", "Accept-Encoding", accept))); got != want {
			t.Errorf("%q gives %s, want %s", accept, got, want)
		}
	}
	res := do(s, get("/app.js.gz", "Accept-Encoding", "gzip"))
	wantHeader(t, res, "Content-Type", "application/gzip")
	wantHeader(t, res, "Content-Encoding", "")
	wantHeader(t, do(s, get("/photo.jpg", "Accept-Encoding", "br")), "Content-Encoding", "br")
	wantStatus(t, do(s, get("/lone.css", "Accept-Encoding", "gzip")), http.StatusNotFound)
}

func TestChoose_WeighsWhatTheClientSays(t *testing.T) {
	all := &file{coded: [identity]*blob{{}, {}, {}}}
	packedOnly := &file{coded: [identity]*blob{gzipped: {}}}
	for _, c := range []struct {
		f      *file
		accept string
		want   coding
	}{
		{all, "gzip, br", brotli},
		{all, "br;q=0.5, gzip", gzipped},
		{all, "br;q=0.9,zstd;q=0.9", brotli},
		{all, "GZIP", gzipped},
		{all, "br;q=0", identity},
		{all, "br;Q=0, *", zstd},
		{all, "*;q=0", identity},
		{all, "*;q=0, gzip", gzipped},
		{all, "identity", identity},
		{all, "identity, gzip", gzipped},
		{all, "identity;q=1, gzip;q=0.5", identity},
		{all, "identity;q=0", identity},
		{all, "gzip;q=nan", identity},
		{all, "gzip;q=2", identity},
		{all, "gzip;q=", identity},
		{all, "gzip ; q = 0.001", gzipped},
		{all, "gzip;q=0.000", identity},
		{all, ",,;;,", identity},
		{all, "x-gzip, brotli", identity},
		{all, "br;q=1.0;x=y", brotli},
		{packedOnly, "br, zstd", identity},
		{packedOnly, "br, gzip;q=0.1", gzipped},
		{&file{}, "gzip, br", identity},
	} {
		if got := c.f.choose([]string{c.accept}); got != c.want {
			t.Errorf("%q: %s, want %s", c.accept, names[got], names[c.want])
		}
	}
}

// FuzzChoose sends any Accept-Encoding and checks that the answer's form exists
// and was not refused.
func FuzzChoose(f *testing.F) {
	for _, seed := range []string{"gzip, br;q=0.5", "*;q=0", "identity;q=0,*", "gzip;q=1e3", ";q=;,", "br;q=0\x00"} {
		f.Add(seed)
	}
	some := &file{coded: [identity]*blob{brotli: {}, gzipped: {}}}
	f.Fuzz(func(t *testing.T, accept string) {
		c := some.choose([]string{accept})
		if some.blob(c) == nil {
			t.Errorf("%q: %s, which there is not", accept, names[c])
		}
		if lower := strings.ToLower(accept); c != identity && !strings.Contains(lower, names[c]) && !strings.Contains(lower, "*") {
			t.Errorf("%q: %s, which it does not name", accept, names[c])
		}
	})
}

func TestCoding_PacksOnceForManyAtATime(t *testing.T) {
	text := string(script(200_000))
	s := serve(t, Options{}, map[string]string{"app.js": text, "page.html": text[:5000]})
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			for _, target := range []string{"/app.js", "/page"} {
				if got := unpack(t, do(s, get(target, "Accept-Encoding", "gzip"))); !strings.HasPrefix(text, got) || got == "" {
					t.Errorf("%s gives other bytes", target)
				}
			}
		})
	}
	wait.Wait()
	if n := s.memory.own.Len(); n != 3 { // two packed bodies, and the small page's plain one
		t.Errorf("%d bodies in memory", n)
	}
}

// unpack is the plain text of a gzip answer.
func unpack(t *testing.T, res *http.Response) string {
	t.Helper()
	r, err := gzip.NewReader(res.Body)
	if err != nil {
		t.Error(err)
		return ""
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}
