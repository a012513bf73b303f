package integration

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// site is a static stack with something of everything.
func site(t *testing.T) Tree {
	t.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := io.WriteString(w, "packed beforehand")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return Tree{
		"public/index.html":                "<h1>home</h1>",
		"public/about.html":                "about",
		"public/docs/index.html":           "docs",
		"public/404.html":                  "<h1>lost</h1>",
		"public/assets/app-5f2a9c1b.js":    "console.log(1)",
		"public/style.css":                 strings.Repeat("body { color: red }\n", 500),
		"public/data.json":                 "{}",
		"public/picture.svg":               "<svg xmlns='http://www.w3.org/2000/svg'/>",
		"public/letters.txt":               "abcdefghij",
		"public/packed.txt":                "packed beforehand",
		"public/packed.txt.gz":             zipped.String(),
		"public/a name with spaces é.txt":  "found",
		"public/.well-known/security.txt":  "contact",
		"public/.env":                      "SECRET=1",
		"public/link-out":                  "-> ../secret.txt",
		"public/link-far":                  "-> /etc/passwd",
		"secret.txt":                       "secret",
		"stack.yaml":                       "services: [{name: web, runtime: static, publish: public}]",
		"public/deep/er/file.txt":          "deep",
		"public/assets/chunk.9f86d081.css": "a{}",
	}
}

func TestStatic_ServesFilesAsTheyAre(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, site(t), nil)
	for path, want := range map[string][2]string{
		"/":                                 {"text/html; charset=utf-8", "<h1>home</h1>"},
		"/docs/":                            {"text/html; charset=utf-8", "docs"},
		"/about":                            {"text/html; charset=utf-8", "about"},
		"/style.css":                        {"text/css; charset=utf-8", ""},
		"/assets/app-5f2a9c1b.js":           {"text/javascript; charset=utf-8", "console.log(1)"},
		"/data.json":                        {"application/json", "{}"},
		"/picture.svg":                      {"image/svg+xml", ""},
		"/letters.txt":                      {"text/plain; charset=utf-8", "abcdefghij"},
		"/deep/er/file.txt":                 {"text/plain; charset=utf-8", "deep"},
		"/a%20name%20with%20spaces%20é.txt": {"text/plain; charset=utf-8", "found"},
		"/.well-known/security.txt":         {"text/plain; charset=utf-8", "contact"},
	} {
		r := h.get(t, st.url("web", path))
		require.Equal(t, http.StatusOK, r.status, path)
		require.Equal(t, want[0], r.header.Get("Content-Type"), path)
		if want[1] != "" {
			require.Equal(t, want[1], r.body, path)
		}
		require.NotEmpty(t, r.header.Get("ETag"), path)
		require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"), path)
		head := h.do(t, h.request(t, http.MethodHead, st.url("web", path), nil))
		require.Equal(t, http.StatusOK, head.status, path)
		require.Equal(t, r.header.Get("Content-Length"), head.header.Get("Content-Length"), path)
		require.Empty(t, head.body)
	}
	r := h.get(t, st.url("web", "/docs"))
	require.Contains(t, []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}, r.status)
	require.Equal(t, "/docs/", r.header.Get("Location"))
	h.do(t, h.request(t, http.MethodPost, st.url("web", "/"), strings.NewReader("x"))).refused(t, http.StatusMethodNotAllowed)
}

func TestStatic_ServesNothingOutsideTheFolder(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, site(t), nil)
	for _, path := range []string{
		"/link-out", "/link-far", "/.env", "/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "/docs/../../secret.txt",
		"/docs/..%2f..%2fsecret.txt", "/..\\secret.txt", "//secret.txt", "/stack.yaml", "/.%2e/.%2e/.%2e/.%2e/etc/passwd", "/%00",
	} {
		r := h.raw(t, "GET "+path+" HTTP/1.1\r\nHost: "+st.host("web")+"\r\n\r\n")
		require.GreaterOrEqual(t, r.status, 300, "%s: %s", path, r.body)
		require.NotContains(t, r.body, "secret", path)
		require.NotContains(t, r.body, "SECRET", path)
		require.NotContains(t, r.body, "root:", path)
	}
}

func TestStatic_RevalidatesAndCaches(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, site(t), nil)
	for path, long := range map[string]bool{"/": false, "/about": false, "/style.css": false, "/assets/app-5f2a9c1b.js": true, "/assets/chunk.9f86d081.css": true} {
		r := h.get(t, st.url("web", path))
		control := r.header.Get("Cache-Control")
		if long {
			require.Contains(t, control, "immutable", path)
			require.Contains(t, control, "max-age=31536000", path)
		} else {
			require.NotContains(t, control, "immutable", path)
			require.Regexp(t, "no-cache|max-age=0|must-revalidate", control, path)
		}
		again := h.get(t, st.url("web", path), "If-None-Match", r.header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, again.status, path)
		require.Empty(t, again.body)
		require.Equal(t, http.StatusOK, h.get(t, st.url("web", path), "If-None-Match", `"other"`).status, path)
	}
}

func TestStatic_ServesRanges(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, site(t), nil)
	for asked, want := range map[string]string{"bytes=0-2": "abc", "bytes=7-": "hij", "bytes=-2": "ij", "bytes=4-4": "e"} {
		r := h.get(t, st.url("web", "/letters.txt"), "Range", asked)
		require.Equal(t, http.StatusPartialContent, r.status, asked)
		require.Equal(t, want, r.body, asked)
		require.True(t, strings.HasSuffix(r.header.Get("Content-Range"), "/10"), asked)
	}
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, h.get(t, st.url("web", "/letters.txt"), "Range", "bytes=10-").status)
	r := h.get(t, st.url("web", "/letters.txt"), "Range", "bytes=0-2", "If-Range", `"another"`)
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, "abcdefghij", r.body)
}

func TestStatic_Compresses(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, site(t), nil)
	plain := h.get(t, st.url("web", "/style.css"))
	require.Empty(t, plain.header.Get("Content-Encoding"))
	require.Contains(t, plain.header.Get("Vary"), "Accept-Encoding")
	zipped := h.get(t, st.url("web", "/style.css"), "Accept-Encoding", "gzip")
	require.Equal(t, "gzip", zipped.header.Get("Content-Encoding"))
	require.Less(t, len(zipped.body), len(plain.body)/4)
	require.Equal(t, plain.body, unzip(t, zipped.body))
	require.NotEqual(t, plain.header.Get("ETag"), zipped.header.Get("ETag"))
	packed := h.get(t, st.url("web", "/packed.txt"), "Accept-Encoding", "gzip")
	require.Equal(t, "packed beforehand", unzip(t, packed.body))
	require.Empty(t, h.get(t, st.url("web", "/style.css"), "Accept-Encoding", "gzip;q=0").header.Get("Content-Encoding"))
}

func unzip(t *testing.T, body string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(body))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

func TestStatic_SendsUnknownPathsWhereTheSiteWantsThem(t *testing.T) {
	t.Parallel()
	h := start(t)
	deploy := func(tree Tree, spa string) *Stack {
		return h.live(t, tree, manifest("services: [{name: web, runtime: static, spa: "+spa+"}]"))
	}
	withPage := page("app").plus(Tree{"404.html": "lost"})
	for _, c := range []struct {
		st     *Stack
		status int
		body   string
	}{
		{deploy(page("app"), "auto"), 200, "app"},
		{deploy(withPage, "auto"), 404, "lost"},
		{deploy(page("app").plus(Tree{"other.html": "x"}), "auto"), 404, ""},
		{deploy(withPage, "true"), 200, "app"},
		{deploy(page("app"), "false"), 404, ""},
	} {
		r := h.get(t, c.st.url("web", "/some/route"), "Accept", browser)
		require.Equal(t, c.status, r.status)
		if c.body != "" {
			require.Equal(t, c.body, r.body)
		}
	}
	// A missing asset is missing, or a page would be run as a program.
	require.Equal(t, 404, h.get(t, deploy(page("app"), "auto").url("web", "/gone.js")).status)
}

func TestStatic_IsPublishedAfterItsBuild(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, Tree{"make.js": `
const fs = require('fs');
fs.mkdirSync('dist');
fs.writeFileSync('dist/index.html', 'built, sees ' + process.env.PUBLIC_URL);
fs.symlinkSync('/etc/passwd', 'dist/out.txt');
`, "package.json": `{"name": "front"}`, "secret.txt": "secret"},
		manifest("services: [{name: web, runtime: static, build: node make.js, publish: dist}]"))
	require.Equal(t, "built, sees "+st.URLs["web"], h.get(t, st.url("web", "/")).body, "a build knows its URL")
	require.NotContains(t, h.get(t, st.url("web", "/out.txt")).body, "root:")
	require.NotContains(t, h.get(t, st.url("web", "/secret.txt")).body, "secret")
	eventually(t, "a site needs no container and no image", func() error {
		if left := h.objects(t); left.containers+left.images > 0 {
			return fmt.Errorf("there is %+v", left)
		}
		return nil
	})
}

func TestStatic_ReactScriptsBuildsWithoutAPublicURL(t *testing.T) {
	t.Parallel()
	h := start(t)
	tree := Tree{"make.js": `
const fs = require('fs');
fs.mkdirSync('build');
fs.writeFileSync('build/index.html', JSON.stringify(process.env.PUBLIC_URL));
`, "package.json": `{"name": "front", "dependencies": {"react-scripts": "5.0.1"}}`}
	st := h.live(t, tree, manifest(`services:
  - {name: web, runtime: static, install: "", build: node make.js, publish: build}
  - {name: cdn, runtime: static, install: "", build: node make.js, publish: build, env: {PUBLIC_URL: "https://cdn.example"}}
`))
	require.Equal(t, `""`, h.get(t, st.url("web", "/")).body)
	require.Equal(t, `"https://cdn.example"`, h.get(t, st.url("cdn", "/")).body, "a key of env wins")
}

func TestStatic_LongPathsAndManyFilesAreServed(t *testing.T) {
	t.Parallel()
	h := start(t)
	tree := page("x")
	long := strings.Repeat("folder/", 20) + strings.Repeat("n", 200) + ".txt"
	tree[long] = "long"
	for i := range 2000 {
		tree["many/"+strings.Repeat("x", i%50)+string(rune('a'+i%26))+"-"+strings.Repeat("y", i/50)+".txt"] = "one of many"
	}
	st := h.live(t, tree, nil)
	require.Equal(t, "long", h.get(t, st.url("web", "/"+long)).body)
}
