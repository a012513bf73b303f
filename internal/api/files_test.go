package api

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// posts sends a body with a Content-Type, which may be "".
func (e *env) posts(path, token, contentType, body string, header ...string) reply {
	e.t.Helper()
	if contentType != "" {
		header = append(header, "Content-Type", contentType)
	}
	return e.send("POST", path, token, strings.NewReader(body), header...)
}

func TestFiles_CreateAStackWhateverTheContentType(t *testing.T) {
	e := newEnv(t)
	const object = " \n" + `{"files": {"index.html": "<h1>hé</h1>", "a/b.sh": "#!/bin/sh\n"}, "name": "shop", "ttl": "30m", "manifest": {"services": [{"name": "site", "runtime": "static"}]}}`
	for _, contentType := range []string{"", "application/json", "application/x-www-form-urlencoded", "text/plain", "nonsense/", "multipart/form-data", "multipart/form-data; boundary=b"} {
		r := e.posts("/v0/stacks", "", contentType, object)
		require.Equal(t, 201, r.status, "%s: %s", contentType, r.body)
		v := r.json()
		require.Equal(t, "shop", v["name"])
		require.InDelta(t, v["created_at"].(float64)+1800, v["expires_at"], 1e-3)
		require.Equal(t, "site", v["services"].([]any)[0].(map[string]any)["name"])
		e.fail(v["id"].(string)) // and the next may be created
		source := e.host.source(v["id"].(string))
		page, err := os.ReadFile(filepath.Join(source, "index.html"))
		require.NoError(t, err)
		require.Equal(t, "<h1>hé</h1>", string(page))
		script, err := os.Stat(filepath.Join(source, "a/b.sh"))
		require.NoError(t, err)
		require.NotZero(t, script.Mode()&0o100, "a script cannot be run")
	}
	e.nothingLeft()
}

func TestFiles_AreAListOrAMap(t *testing.T) {
	e := newEnv(t)
	for _, files := range []string{
		`{"public/index.html": "<h1>", "README": ""}`,
		`[{"path": "public/index.html", "content": "<h1>"}, {"path": "README"}]`,
		`[{"encoding": "base64", "content": "PGgxPg==", "path": "public/index.html"}, {"path": "README", "encoding": "utf-8"}]`,
	} {
		r := e.posts("/v0/stacks", "", "", `{"files": `+files+`}`)
		require.Equal(t, 201, r.status, r.body)
		page, err := os.ReadFile(filepath.Join(e.host.source(r.json()["id"].(string)), "public/index.html"))
		require.NoError(t, err)
		require.Equal(t, "<h1>", string(page))
	}
	for _, manifest := range []string{`"services: [{name: site, runtime: static}]"`, `{"services": [{"name": "site", "runtime": "static"}]}`} {
		r := e.validatesJSON(`{"files": [{"path": "index.html"}], "manifest": ` + manifest + `}`)
		require.Equal(t, 200, r.status, r.body)
		require.Equal(t, "site", r.json()["services"].([]any)[0].(map[string]any)["name"])
	}
	e.nothingLeft()
}

func TestFiles_RedeployAStack(t *testing.T) {
	e := newEnv(t)
	v := e.create("")
	id, token := v["id"].(string), v["manage_token"].(string)
	e.live(id)
	path := "/v0/stacks/" + id + "/deploy"
	for _, field := range []string{"name", "ttl", "claim_email"} {
		r := e.posts(path, token, "", `{"files": {"index.html": "2"}, "`+field+`": "x"}`)
		require.Equal(t, 422, r.status, r.body)
		require.Contains(t, r.detail(), field+" is fixed when the stack is created")
	}
	r := e.posts(path, token, "application/x-www-form-urlencoded", `{"files": {"index.html": "2"}}`)
	require.Equal(t, 200, r.status, r.body)
	require.EqualValues(t, 2, r.json()["deploying"])
	r = e.posts(path, token, "", `{"files": {"index.html": "3"}}`)
	require.Equal(t, 409, r.status, r.body)
	e.nothingLeft()
}

func TestFiles_AreRefusedWithTheReason(t *testing.T) {
	e := newEnv(t, func(c *Config) { c.Unpacked.MaxEntries = 3 })
	refused := map[string]struct {
		status int
		detail string
	}{
		`{}`:                                  {400, `tar -czf app.tar.gz . && curl -F source=@app.tar.gz http://localhost:8080/v0/`},
		`{"files": {}}`:                       {400, "no source"},
		`{"files": null}`:                     {400, "files is null; leave it out"},
		`{"files": {"a": "b"}, "name": null}`: {400, "name is null; leave it out"},
		`{"files": {"a": "b"}, "manifest": null}`:                          {400, "manifest is null; leave it out"},
		`{"files": {"a": "\ud800b"}}`:                                      {400, `half of a surrogate pair, \ud800,`},
		`{"files": {"a/": "b"}}`:                                           {422, `"a/" cannot be the path of a file: it ends with a slash`},
		`{"files": []`:                                                     {400, "not valid JSON (it is cut short)"},
		`{"files": [], x}`:                                                 {400, "not valid JSON"},
		`{"files": [{"path": "a"}}`:                                        {400, "not valid JSON"},
		`{"files": {"a": "b"}} {}`:                                         {400, "something follows its end"},
		`{"files": "x"}`:                                                   {400, "files must be a map from path to text"},
		`{"files": ["x"]}`:                                                 {400, "files[0] must be an object, not of type string"},
		`{"files": [{"path": "a"}, {}]}`:                                   {400, "files[1] has no path"},
		`{"files": [null]}`:                                                {400, "files[0] has no path"},
		`{"files": [{"path": 7}]}`:                                         {400, "files[0].path must be a string, not of type number"},
		`{"files": [{"path": "a", "content": null}]}`:                      {400, "files[0].content must be a string, not of type null"},
		`{"files": [{"path": "a", "encoding": null}]}`:                     {400, "files[0].encoding must be a string, not of type null"},
		`{"files": [{"path": "a", "content": 7}]}`:                         {400, "files[0].content must be a string, not of type number"},
		`{"files": [{"path": "a", "x": 1}]}`:                               {400, `files[0] has an unknown field "x"`},
		`{"files": {"a": {"content": "b"}}}`:                               {400, `the content of "a" must be text`},
		`{"files": {"a": null}}`:                                           {400, `the content of "a" must be text`},
		`{"files": {"": "b"}}`:                                             {400, "empty path"},
		"{\"files\": {\"a\": \"\xff\"}}":                                   {400, "not in UTF-8"},
		`{"files": {"a": "b"}, "files": {}}`:                               {400, "files is given twice"},
		`{"files": {"a": "b"}, "file": "c"}`:                               {400, `unknown field "file"; the JSON takes files, manifest, name, ttl, claim_email`},
		`{"source": "x"}`:                                                  {400, `unknown field "source"`},
		`{"manifest_file": "x"}`:                                           {400, `unknown field "manifest_file"`},
		`{"name": 7}`:                                                      {400, "name must be a string"},
		`{"manifest": []}`:                                                 {400, "manifest must be"},
		`{"files": {"../x": "b"}}`:                                         {422, "../x"},
		`{"files": {"a\u0000": "b"}}`:                                      {422, `"a\x00" cannot be the path of a file`},
		`{"files": {"a": "1", "b": "2", "c": "3", "d": "4"}}`:              {422, "more than the 3 files allowed"},
		`{"manifest": "` + strings.Repeat(" ", mostManifest+1) + `"}`:      {422, "manifest is larger than 64 KiB"},
		`{"files": [{"path": "a", "encoding": "gzip"}]}`:                   {400, "base64"},
		`{"files": [{"path": "a", "encoding": "base64", "content": "%"}]}`: {400, "not base64"},
		`{"files": {"a": "` + strings.Repeat("x", mostUpload) + `"}}`:      {413, "archive"},
	}
	for _, path := range []string{"/v0/stacks", "/v0/validate"} {
		for _, body := range slices.Sorted(maps.Keys(refused)) {
			want := refused[body]
			r := e.posts(path, "", "application/json", body)
			require.Equal(t, want.status, r.status, "%.60s: %s", body, r.body)
			require.Contains(t, r.detail(), want.detail, "%.60s", body)
		}
	}
	require.Empty(t, e.stacks())
	e.nothingLeft()
}

func TestFiles_OfABodyThatBreaksOffAreRefused(t *testing.T) {
	e := newEnv(t)
	w := e.dial()
	w.printf("POST /v0/stacks HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n%s", `{"files": {"index.html": "x"}}`)
	require.NoError(t, w.conn.Close())
	require.NoError(t, e.api.Shutdown(t.Context()))
	require.Empty(t, e.stacks())
	e.nothingLeft()
}

func TestFiles_AreComparedWithThoseOfAnEarlierAttempt(t *testing.T) {
	e := newEnv(t)
	create := func(body string) reply {
		return e.posts("/v0/stacks", "", "", body, headerIdempotencyKey, "key-1")
	}
	first := create(`{"files": {"index.html": "x"}, "name": "one"}`)
	require.Equal(t, 201, first.status, first.body)
	again := create(`{"name": "one", "files": [{"path": "index.html", "content": "x"}]}`)
	require.Equal(t, 201, again.status, again.body)
	require.Equal(t, first.json()["id"], again.json()["id"])
	require.Equal(t, "true", again.header.Get(headerReplayed))
	for _, other := range []string{`{"files": {"index.html": "y"}, "name": "one"}`, `{"files": {"index.html": "x"}, "name": "two"}`} {
		require.Equal(t, 422, create(other).status)
	}
	require.Len(t, e.stacks(), 1)
	e.nothingLeft()
}

func FuzzObject(f *testing.F) {
	for _, text := range []string{
		filesExample, base64Example, `{"manifest": {"a": [1]}, "files": []}`, `{"files": {"a": "\ud800"}, "name": "x"}`,
		`{"files": [{"path": "` + strings.Repeat("a/", 200) + `"}]}`, `{"`, `{`, `{"files": [}]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := objectReader{
			form: form{texts: map[string][]byte{}}, shape: createShape, in: json.NewDecoder(strings.NewReader(text)),
			archive: t.TempDir() + "/upload", most: 10, room: func() error { return nil },
		}
		err := r.read()
		if err != nil {
			requireClientFault(t, err)
			return
		}
		if r.form.archive != "" {
			require.FileExists(t, r.form.archive)
		}
		for _, field := range createShape.fields {
			require.LessOrEqual(t, int64(len(r.form.texts[field.name])), field.most, field.name)
		}
	})
}
