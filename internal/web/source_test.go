package web

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/source/sourcetest"
	"github.com/berth-host/berth/internal/stack"
)

func (h *fakeHost) TempDir() (string, error) { return os.MkdirTemp(h.dir, "upload-") }

func (h *fakeHost) Source(id, name string) string { return filepath.Join(h.dir, id, name) }

// keepSource gives a stack a kept source.
func (e *env) keepSource(id string, files map[string]string) {
	e.t.Helper()
	src := sourcetest.Make(e.t, e.host.Source(id, "kept"), files)
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		s.Generation.Source = stack.Source{Folder: "kept", Digest: src.Digest()}
		return nil, nil
	})
}

func TestSource_ShowsFoldersAndSendsFilesThatNoBrowserRuns(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	at := "/dashboard/stacks/" + id
	require.Contains(t, b.get(at).body, "not kept until the next whole deploy")
	require.Equal(t, http.StatusNotFound, b.get(at+"/source").status)

	e.keepSource(id, map[string]string{"index.html": "<script>alert(1)</script>", "app/[id] ä/page.js": "page()", "logo.png": "\x89PNG\x00"})
	require.Contains(t, b.get(at).body, at+"/source.tar.gz")
	page := b.get(at + "/source")
	require.Equal(t, http.StatusOK, page.status, page.body)
	require.Contains(t, page.body, "Source of generation 1")
	require.Regexp(t, `(?s)app/.*index\.html.*logo\.png`, page.body, "folders come first")
	deep := at + "/source/app/%5Bid%5D%20%C3%A4"
	require.Contains(t, b.get(at+"/source/app").body, deep)
	require.Contains(t, b.get(deep).body, "page.js")

	for path, contentType := range map[string]string{
		at + "/source/index.html": "text/plain; charset=utf-8",
		deep + "/page.js":         "text/plain; charset=utf-8",
		at + "/source/logo.png":   "application/octet-stream",
		at + "/source.tar.gz":     "application/gzip",
	} {
		r := b.get(path)
		require.Equal(t, http.StatusOK, r.status, path)
		require.Equal(t, contentType, r.header.Get("Content-Type"), path)
		require.Equal(t, "sandbox", r.header.Get("Content-Security-Policy"), path)
		require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"), path)
	}
	require.Equal(t, http.StatusNotFound, b.get(at+"/source/none").status)
	require.Equal(t, http.StatusNotFound, b.get(at+"/source/..%2Flisting").status)
	other := e.signedUp(bob)
	for _, path := range []string{"/source", "/source/index.html", "/source.tar.gz"} {
		require.Equal(t, http.StatusNotFound, other.get(at+path).status, path)
	}
}

func TestSource_OfAFolderWithVeryManyFilesIsCut(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	files := map[string]string{}
	for i := range mostFiles + 3 {
		files[filepath.Join("many", string(rune('a'+i%26)), string(rune(0x4e00+i)))] = ""
		files[string(rune(0x4e00+i))] = ""
	}
	e.keepSource(id, files)
	require.Contains(t, b.get("/dashboard/stacks/"+id+"/source").body, "4 more files here")
}
