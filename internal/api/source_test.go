package api

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// project is a source of several files.
var project = []string{"index.html", "one", "src/app.js", "app()", "src/lib/a.js", "a()", "logo.png", "\x89PNG\x00", "stack.yaml", "services: [{name: site, runtime: static}]"}

// files returns the listing of a stack's source: path to hash.
func (e *env) files(m made) map[string]string {
	e.t.Helper()
	r := e.send("GET", "/v0/stacks/"+m.id+"/source", m.token, nil, "Accept", "application/json")
	require.Equal(e.t, 200, r.status, r.body)
	found := map[string]string{}
	for _, f := range r.json()["files"].([]any) {
		file := f.(map[string]any)
		found[file["path"].(string)] = file["sha256"].(string)
	}
	return found
}

// text returns a file of a stack's source.
func (e *env) text(m made, path string) string {
	e.t.Helper()
	r := e.send("GET", "/v0/stacks/"+m.id+"/source/"+path, m.token, nil)
	require.Equal(e.t, 200, r.status, r.body)
	return r.body
}

// over sends a deploy with a query.
func (e *env) over(m made, query string, parts ...part) reply {
	e.t.Helper()
	if len(parts) == 0 {
		return e.send("POST", "/v0/stacks/"+m.id+"/deploy?"+query, m.token, nil)
	}
	body, contentType := makeForm(e.t, parts...)
	return e.send("POST", "/v0/stacks/"+m.id+"/deploy?"+query, m.token, body, "Content-Type", contentType)
}

func TestDeploy_LaysChangesOverTheServedSource(t *testing.T) {
	for name, send := range map[string]func(e *env, m made) reply{
		"in the query": func(e *env, m made) reply {
			return e.over(m, "base=1&delete=src/lib&delete=logo.png", sourcePart(tarOf(t, "src/app.js", "new()")))
		},
		"in the form": func(e *env, m made) reply {
			return e.over(m, "", textPart("base", "1"), textPart("delete", "src/lib/"), textPart("delete", "logo.png"), sourcePart(tarOf(t, "src/app.js", "new()")))
		},
		"as a list in a part": func(e *env, m made) reply {
			return e.over(m, "base=1", textPart("delete", `["src/lib", "logo.png"]`), sourcePart(tarOf(t, "src/app.js", "new()")))
		},
		"as lines in a part": func(e *env, m made) reply {
			return e.over(m, "base=1", textPart("delete", "src/lib\r\nlogo.png\r\n"), sourcePart(tarOf(t, "src/app.js", "new()")))
		},
		"in JSON": func(e *env, m made) reply {
			return e.posts("/v0/stacks/"+m.id+"/deploy", m.token, "", `{"base": 1, "delete": ["src/lib", "logo.png"], "files": {"src/app.js": "new()"}}`)
		},
		"in JSON, as text": func(e *env, m made) reply {
			return e.posts("/v0/stacks/"+m.id+"/deploy?delete=logo.png", m.token, "", `{"files": [{"path": "src/app.js", "content": "new()"}], "base": "1", "delete": "src/lib"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			m := e.creates("", sourcePart(tarOf(t, project...)))
			before := e.files(m)
			r := send(e, m)
			require.Equal(t, 200, r.status, r.body)
			require.Equal(t, before, e.files(m), "the served source changed before the new one serves")
			e.live(m.id)
			after := e.files(m)
			require.Equal(t, before["index.html"], after["index.html"])
			require.Equal(t, "new()", e.text(m, "src/app.js"))
			require.Len(t, after, 3)
			require.Equal(t, r.header.Get("ETag"), e.send("HEAD", "/v0/stacks/"+m.id+"/source", m.token, nil).header.Get("ETag"))
			e.nothingLeft()
		})
	}
}

func TestDeploy_OfDeletionsAlone(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	require.Equal(t, 200, e.over(m, "base=1&delete=src").status)
	e.live(m.id)
	require.Equal(t, 200, e.over(m, "", textPart("base", "2"), textPart("delete", "logo.png")).status)
	e.live(m.id)
	require.Len(t, e.files(m), 2)
}

func TestDeploy_OfChangesStripsNoFolder(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	require.Equal(t, 200, e.over(m, "base=1", sourcePart(tarOf(t, "src/app.js", "new()"))).status)
	e.live(m.id)
	require.Equal(t, "new()", e.text(m, "src/app.js"))
	require.NotContains(t, e.files(m), "app.js")
}

func TestDeploy_OfChangesKeepsTheManifestAsItWasGiven(t *testing.T) {
	e := newEnv(t)
	services := func(m made) string {
		e.live(m.id)
		return fmt.Sprint(e.get(m.id).ServiceNames())
	}
	m := e.creates("", sourcePart(tarOf(t, "index.html", "one")), textPart("manifest", "services: [{name: shop, runtime: static}]"))
	deploy := func(r reply) {
		require.Equal(t, 200, r.status, r.body)
	}
	deploy(e.over(m, "base=1", sourcePart(tarOf(t, "about.html", "two"))))
	require.Equal(t, "[shop]", services(m), "the manifest of the first request counts")
	deploy(e.over(m, "base=2", sourcePart(tarOf(t, "stack.yaml", "services: [{name: own, runtime: static}]"))))
	require.Equal(t, "[own]", services(m), "the manifest among the changes counts")
	deploy(e.over(m, "base=3&delete=about.html"))
	require.Equal(t, "[own]", services(m), "the manifest in the source counts")
	deploy(e.over(m, "", textPart("manifest", "services: [{name: page, runtime: static}]")))
	require.Equal(t, "[page]", services(m), "a manifest alone builds the kept source")
	deploy(e.over(m, "base=5", sourcePart(tarOf(t, "about.html", "three"))))
	require.Equal(t, "[page]", services(m))
	require.Equal(t, "one", e.text(m, "index.html"))
}

func TestDeploy_RefusesABaseThatIsNotServed(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	change := sourcePart(tarOf(t, "index.html", "two"))
	r := e.over(m, "base=2", change)
	require.Equal(t, 409, r.status, r.body)
	require.Contains(t, r.detail(), "generation 1 is served")
	for query, want := range map[string]string{
		"base=x":          "not \"x\"",
		"base=0":          "not \"0\"",
		"base=1&base=1":   "base is given twice",
		"base=":           "not \"\"",
		"base=1&delete=a": "",
	} {
		r := e.over(m, query, change)
		if want == "" {
			require.Equal(t, 422, r.status, r.body)
			continue
		}
		require.Equal(t, 400, r.status, r.body)
		require.Contains(t, r.detail(), want)
	}
	r = e.over(m, "delete=index.html", change)
	require.Equal(t, 422, r.status, r.body)
	require.Contains(t, r.detail(), "delete needs base")
	require.Equal(t, 400, e.over(m, "base=1").status, "there is nothing to change")
	e.nothingLeft()
}

func TestDeploy_OfChangesRefusesWrongValuesInJSON(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	before := e.files(m)
	for body, want := range map[string]string{
		`{"base": null, "files": {"a": "b"}}`:                  "base is null; leave it out",
		`{"base": 1, "delete": null, "files": {"a": "b"}}`:     "delete is null",
		`{"base": 1, "supersede": null, "files": {"a": "b"}}`:  "supersede is null",
		`{"fresh": null, "files": {"a": "b"}}`:                 "fresh is null",
		`{"base": 1, "files": null, "delete": ["index.html"]}`: "files is null",
		`{"base": 1, "manifest": null, "files": {"a": "b"}}`:   "manifest is null",
		`{"base": 1, "delete": ["index.html", null]}`:          "delete must be a list of paths",
		`{"base": -1, "files": {"a": "b"}}`:                    `not "-1"; generation 1 is served`,
		`{"base": true, "files": {"a": "b"}}`:                  "base must be the number of a generation",
		`{"base": 1, "supersede": 1, "files": {"a": "b"}}`:     "supersede must be true or false",
		`{"base": 1}`:                                    "nothing changes",
		`{"base": 1, "files": {}}`:                       "nothing changes",
		`{"base": 1, "delete": []}`:                      "nothing changes",
		`{"delete": []}`:                                 "nothing changes",
		`{"base": 1, "delete": ["a\ud800"]}`:             "half of a surrogate pair",
		"{\"base\": 1, \"files\": {\"a\": \"caf\xe9\"}}": "not in UTF-8",
	} {
		r := e.posts("/v0/stacks/"+m.id+"/deploy", m.token, "", body)
		require.Equal(t, 400, r.status, "%s: %s", body, r.body)
		require.Contains(t, r.detail(), want, body)
	}
	r := e.over(m, "base=1", textPart("delete", `["zz"`))
	require.Equal(t, 400, r.status)
	require.Contains(t, r.detail(), "not valid JSON")
	r = e.over(m, "base=1")
	require.Contains(t, r.detail(), "nothing changes")
	require.Equal(t, before, e.files(m))
	require.Zero(t, e.get(m.id).Deploying)
	e.nothingLeft()
}

func TestDeploy_OverAStackThatNeverWasLiveNamesNoneThatIsServed(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) {
		s.Generation.Source = stack.Source{}
		return nil, nil
	})
	for _, base := range []string{"0", "1", "2"} {
		r := e.over(m, "base="+base, sourcePart(tarOf(t, "index.html", "two")))
		require.Equal(t, 409, r.status, r.body)
		require.Equal(t, "the source of generation 1 is not kept; send the whole source, without base", r.detail())
	}
}

func TestDeploy_ChecksIfMatch(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	etag := e.send("GET", "/v0/stacks/"+m.id+"/source", m.token, nil).header.Get("ETag")
	send := func(match string, parts ...part) reply {
		body, contentType := makeForm(t, parts...)
		return e.send("POST", "/v0/stacks/"+m.id+"/deploy", m.token, body, "Content-Type", contentType, "If-Match", match)
	}
	change := sourcePart(tarOf(t, "index.html", "two"))
	r := send(`"0123"`, textPart("base", "1"), change)
	require.Equal(t, 412, r.status, r.body)
	require.Contains(t, r.detail(), strings.Trim(etag, `"`))
	require.Equal(t, 412, send(`"0123"`, change).status, "of a whole source, too")
	for i, form := range []string{"%s", "W/%s", `"x", %s`, "*%.0s"} {
		match := fmt.Sprintf(form, etag)
		r := send(match, textPart("base", fmt.Sprint(i+1)), change)
		require.Equal(t, 200, r.status, "%s: %s", match, r.body)
		e.live(m.id)
		etag = r.header.Get("ETag")
	}
}

// A number is used again after a deploy that failed, so it is the digest that decides.
func TestDeploy_IsForTheSourceThatIsServedWhenItIsAccepted(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, "index.html", "one")))
	first := e.send("GET", "/v0/stacks/"+m.id+"/source", m.token, nil).header.Get("ETag")

	failed := e.over(m, "base=1", sourcePart(tarOf(t, "a.html", "mine")))
	require.Equal(t, 200, failed.status, failed.body)
	e.fail(m.id)
	require.Equal(t, first, e.send("GET", "/v0/stacks/"+m.id+"/source", m.token, nil).header.Get("ETag"), "the rolled back one left nothing")

	other := e.over(m, "base=1", sourcePart(tarOf(t, "b.html", "theirs")))
	require.Equal(t, 200, other.status, other.body)
	e.live(m.id)

	body, contentType := makeForm(t, textPart("base", "2"), sourcePart(tarOf(t, "a.html", "again")))
	r := e.send("POST", "/v0/stacks/"+m.id+"/deploy", m.token, body, "Content-Type", contentType, "If-Match", failed.header.Get("ETag"))
	require.Equal(t, 412, r.status, r.body)
	require.NotContains(t, e.files(m), "a.html")
	require.Contains(t, e.files(m), "b.html")
}

func TestDeploy_NamesWhatIsWrongWithChanges(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	before := e.files(m)
	for name, tt := range map[string]struct {
		query string
		parts []part
		want  string
	}{
		"it empties the tree":      {"base=1&delete=index.html&delete=src&delete=logo.png&delete=stack.yaml", nil, "no files are left"},
		"it escapes":               {"base=1", []part{sourcePart(tarOf(t, "../x", ""))}, `"../x"`},
		"a deletion escapes":       {"base=1&delete=../x", nil, `"../x"`},
		"a folder becomes a file":  {"base=1", []part{sourcePart(tarOf(t, "src", ""))}, `"src"`},
		"a file becomes a folder":  {"base=1", []part{sourcePart(tarOf(t, "index.html/x", ""))}, `"index.html"`},
		"a path twice":             {"base=1", []part{sourcePart(tarOf(t, "x", "", "x", ""))}, `"x"`},
		"a deletion of nothing":    {"base=1&delete=none", nil, `"none"`},
		"an empty deletion":        {"base=1", []part{textPart("delete", "")}, `""`},
		"it breaks the manifest":   {"base=1", []part{sourcePart(tarOf(t, "stack.yaml", "services: 7"))}, "services is a number"},
		"a manifest that is wrong": {"base=1", []part{textPart("manifest", "services: 7")}, "services"},
		"too many deletions":       {"base=1", []part{textPart("delete", strings.Repeat("x\n", 10_001))}, "10000 paths"},
		"a list of over 1 MiB":     {"base=1", []part{textPart("delete", longNames(1<<20+1))}, "delete is larger than 1 MiB"},
		"deletions of over 1 MiB":  {"base=1&delete=x", []part{textPart("delete", longNames(1<<19)), textPart("delete", longNames(1<<19+1<<12))}, "more than 10000 paths or 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			r := e.over(m, tt.query, tt.parts...)
			require.Equal(t, 422, r.status, r.body)
			require.Contains(t, r.detail(), tt.want)
			require.Equal(t, before, e.files(m))
			e.nothingLeft()
		})
	}
}

// longNames is a list of paths of that many bytes.
func longNames(size int) string {
	return strings.Repeat(strings.Repeat("x", 1<<10-1)+"\n", size>>10+1)[:size]
}

func TestDeploy_RefusesAListOfDeletionsOfOver1MiBInJSON(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	r := e.posts("/v0/stacks/"+m.id+"/deploy", m.token, "", `{"base": 1, "delete": ["`+strings.Repeat("x", 1<<20+1)+`"]}`)
	require.Equal(t, 422, r.status, r.body)
	require.Contains(t, r.detail(), "1 MiB")
	e.nothingLeft()
}

func TestDeploy_AsksForTheWholeSourceIfTheKeptOneIsDamaged(t *testing.T) {
	for name, damage := range map[string]func(kept string) error{
		"gone":         os.RemoveAll,
		"the listing":  func(kept string) error { return os.Truncate(filepath.Join(kept, "listing"), 10) },
		"a file":       func(kept string) error { return os.Truncate(filepath.Join(kept, "tree/logo.png"), 1) },
		"without file": func(kept string) error { return os.Remove(filepath.Join(kept, "tree/logo.png")) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			m := e.creates("", sourcePart(tarOf(t, project...)))
			require.NoError(t, damage(filepath.Dir(e.host.source(m.id))))
			for _, r := range []reply{
				e.over(m, "base=1", sourcePart(tarOf(t, "index.html", "two"))),
				e.over(m, "base=1&delete=src"),
				e.over(m, "", textPart("manifest", "name: x")),
				e.over(m, "fresh=true"),
				e.send("GET", "/v0/stacks/"+m.id+"/source", m.token, nil),
			} {
				require.Equal(t, 409, r.status, r.body)
				require.Contains(t, r.detail(), "send the whole source")
			}
			require.Equal(t, 200, e.over(m, "", sourcePart(tarOf(t, "index.html", "two"))).status)
			e.nothingLeft()
		})
	}
}

func TestSource_IsDownloadedWithItsETag(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	path := "/v0/stacks/" + m.id + "/source"
	r := e.send("GET", path, m.token, nil)
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, "application/gzip", r.header.Get("Content-Type"))
	require.Contains(t, r.header.Get("Content-Disposition"), "attachment")
	guarded(t, r)
	unpacked := map[string]string{}
	zip, err := gzip.NewReader(strings.NewReader(r.body))
	require.NoError(t, err)
	in := tar.NewReader(zip)
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		content, err := io.ReadAll(in)
		require.NoError(t, err)
		unpacked[h.Name] = string(content)
	}
	require.Equal(t, map[string]string{
		"index.html": "one", "src/": "", "src/app.js": "app()", "src/lib/": "", "src/lib/a.js": "a()", "logo.png": "\x89PNG\x00",
		"stack.yaml": "services: [{name: site, runtime: static}]",
	}, unpacked)
	for _, path := range []string{path, path + "/index.html", path + "/src"} {
		again := e.send("GET", path, m.token, nil, "If-None-Match", r.header.Get("ETag"))
		require.Equal(t, 304, again.status)
		require.Empty(t, again.body)
		require.Equal(t, r.header.Get("ETag"), again.header.Get("ETag"))
	}
	head := e.send("HEAD", path, m.token, nil)
	require.Equal(t, 200, head.status)
	require.Equal(t, r.header.Get("ETag"), head.header.Get("ETag"))
	e.nothingLeft()
}

// guarded fails if a browser could run the content.
func guarded(t *testing.T, r reply) {
	t.Helper()
	require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"))
	require.Equal(t, "sandbox", r.header.Get("Content-Security-Policy"))
}

func TestSource_SendsAFileAsTextOrAnAttachment(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, append(project, "a b/[id] ü.html", "<script>")...)))
	page := e.send("GET", "/v0/stacks/"+m.id+"/source/"+url.PathEscape("a b")+"/"+url.PathEscape("[id] ü.html"), m.token, nil)
	require.Equal(t, "<script>", page.body)
	require.Equal(t, "text/plain; charset=utf-8", page.header.Get("Content-Type"))
	guarded(t, page)
	image := e.send("GET", "/v0/stacks/"+m.id+"/source/logo.png", m.token, nil)
	require.Equal(t, "\x89PNG\x00", image.body)
	require.Equal(t, "application/octet-stream", image.header.Get("Content-Type"))
	require.Equal(t, `attachment; filename=logo.png`, image.header.Get("Content-Disposition"))
	guarded(t, image)
}

func TestSource_ListsAFolder(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	paths := func(path string, header ...string) []string {
		r := e.send("GET", "/v0/stacks/"+m.id+"/source"+path, m.token, nil, header...)
		require.Equal(t, 200, r.status, r.body)
		require.EqualValues(t, 1, r.json()["generation"])
		require.Len(t, r.json()["digest"], 64)
		var found []string
		for _, f := range r.json()["files"].([]any) {
			found = append(found, f.(map[string]any)["path"].(string))
		}
		return found
	}
	require.Equal(t, []string{"src/app.js", "src/lib/a.js"}, paths("/src"))
	require.Equal(t, []string{"src/lib/a.js"}, paths("/src/lib/"))
	require.Equal(t, []string{"index.html"}, paths("/index.html", "Accept", "application/json"))
	require.Len(t, paths("/", "Accept", "text/html, application/json;q=0.9"), 5)
}

func TestSource_IsForThoseWhoMayDeploy(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	_, key := e.account("ana@example.com")
	for _, path := range []string{"/source", "/source/index.html"} {
		path = "/v0/stacks/" + m.id + path
		require.Equal(t, 401, e.send("GET", path, "", nil).status)
		require.Equal(t, 403, e.send("GET", path, key, nil).status)
		require.Equal(t, 404, e.send("GET", path+"/none", m.token, nil).status)
	}
	for _, outside := range []string{"/source/../listing", "/source/%2e%2e/listing", "/source/..%2flisting", "/source/src%2f..%2findex.html"} {
		require.Equal(t, 404, e.send("GET", "/v0/stacks/"+m.id+outside, m.token, nil).status, outside)
	}
	require.Equal(t, 200, e.claim(key, `{"claim_code": "`+m.code+`"}`).status)
	require.Equal(t, 200, e.send("GET", "/v0/stacks/"+m.id+"/source", key, nil).status, "the owner has the code")
}

func TestSource_SaysIfNoneIsKept(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { s.Generation.Source = stack.Source{}; return nil, nil })
	for _, path := range []string{"/source", "/source/index.html"} {
		r := e.send("GET", "/v0/stacks/"+m.id+path, m.token, nil)
		require.Equal(t, 404, r.status, r.body)
		require.Contains(t, r.detail(), "next whole deploy")
	}
	r := e.over(m, "base=1", sourcePart(site(t)))
	require.Equal(t, 409, r.status, r.body)
	require.Contains(t, r.detail(), "send the whole source")
	require.Equal(t, 409, e.over(m, "", textPart("manifest", "name: x")).status)
}

func TestDeploy_ThatIsOvertakenSaysSo(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	u := &upload{over: e.get(m.id).Generation.Source}
	gone := stack.NewError(stack.Conflict, "the kept source is gone")
	require.Equal(t, error(gone), e.api.overtaken(u, m.id, gone))
	require.Equal(t, 200, e.over(m, "base=1", sourcePart(tarOf(t, "index.html", "theirs"))).status)
	e.live(m.id)
	require.Equal(t, stack.Changed, stack.KindOf(e.api.overtaken(u, m.id, gone)))
}
