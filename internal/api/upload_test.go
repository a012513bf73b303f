package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/stack"
)

func readAll(r io.Reader) (string, error) {
	b, err := io.ReadAll(r)
	return string(b), err
}

func TestUpload_MissingSourceTellsHow(t *testing.T) {
	e := newEnv(t)
	const curl = "curl -F source=@app.tar.gz http://localhost:8080/v0/stacks"
	require.Contains(t, e.refusedUpload(400, textPart("name", "x")), "no source")
	require.Contains(t, e.refusedUpload(400, textPart("name", "x")), curl)
	require.Contains(t, e.refusedUpload(400), curl)
	require.Contains(t, e.refusedUpload(400, textPart("source", "")), "no source")
	hint := e.refusedUpload(400, textPart("source", "app.tar.gz"))
	require.Contains(t, hint, `the text "app.tar.gz"`)
	require.Contains(t, hint, curl)
}

func TestUpload_NamesTheFieldThatIsWrong(t *testing.T) {
	e := newEnv(t)
	for want, parts := range map[string][]part{
		`unknown form field "file"; the form takes source, manifest, manifest_file, name, ttl, claim_email`: {{"file", "a.tgz", site(t)}},
		"source is given twice":        {sourcePart(site(t)), sourcePart(site(t))},
		"name is given twice":          {textPart("name", "a"), textPart("name", "b"), sourcePart(site(t))},
		`unknown form field ""`:        {{"", "", nil}},
		"form has more than 20 parts":  parts(21),
		"headers of a part are longer": {{"name", strings.Repeat("x", partHead), []byte("x")}},
	} {
		require.Contains(t, e.refusedUpload(400, parts...), want)
	}
	long := strings.Repeat("x", mostManifest+1)
	require.Contains(t, e.refusedUpload(422, textPart("manifest", long)), "manifest is larger than 64 KiB")
	require.Contains(t, e.refusedUpload(422, textPart("ttl", long)), "ttl is larger than 4 KiB")
}

// parts are n source fields that were left empty.
func parts(n int) []part {
	ps := make([]part, n)
	for i := range ps {
		ps[i] = textPart("source", "")
	}
	return ps
}

func TestUpload_SourceNeedsNoFileName(t *testing.T) {
	e := newEnv(t)
	e.create("", part{"source", "", site(t)})
	e.create("", part{"source", "-", site(t)})
	e.create("", textPart("source", ""), sourcePart(site(t)))
}

func TestUpload_AnEmptyOrForeignArchiveIs422(t *testing.T) {
	e := newEnv(t)
	require.NotEmpty(t, e.refusedUpload(422, sourcePart(nil)))
	require.NotEmpty(t, e.refusedUpload(422, sourcePart([]byte("PK\x03\x04 a zip file"))))
	require.NotEmpty(t, e.refusedUpload(422, sourcePart(tarOf(t, "../evil", "x"))))
}

func TestUpload_TheLimitIsTheFiles(t *testing.T) {
	e := newEnv(t)
	exact := make([]byte, testMaxUpload)
	copy(exact, site(t)) // zeros end a tar
	e.create("", sourcePart(exact), textPart("manifest", "# "+strings.Repeat("x", 50_000)))
	for _, size := range []int{testMaxUpload + 1, testMaxUpload + formOverhead, 5 * testMaxUpload} {
		detail := e.refusedUpload(413, sourcePart(make([]byte, size)))
		require.Contains(t, detail, "larger than 1 MB")
		require.Contains(t, detail, "--exclude=node_modules")
	}
}

func TestUpload_TheLimitHoldsForChunkedBodies(t *testing.T) {
	e := newEnv(t)
	body, contentType := makeForm(t, sourcePart(make([]byte, testMaxUpload+1)))
	r := e.send("POST", "/v0/stacks", "", io.MultiReader(body), "Content-Type", contentType)
	require.Equal(t, 413, r.status)
	e.nothingLeft()
	body, contentType = makeForm(t, sourcePart(site(t)))
	r = e.send("POST", "/v0/stacks", "", io.MultiReader(body), "Content-Type", contentType)
	require.Equal(t, 201, r.status)
}

func TestUpload_MalformedBodies(t *testing.T) {
	e := newEnv(t)
	whole := "--b\r\nContent-Disposition: form-data; name=name\r\n\r\nx\r\n--b--\r\n"
	const notAnArchive = "not a tar archive"
	tests := map[string]struct{ contentType, body, want string }{
		"json without files":       {"application/json", "{}", "no source"},
		"a json list":              {"application/json", "[]", "multipart/form-data with the archive as source"},
		"white space":              {"application/json", strings.Repeat(" \n", 3000), "multipart/form-data with the archive as source"},
		"nothing":                  {"", "", "multipart/form-data with the archive as source"},
		"urlencoded":               {"application/x-www-form-urlencoded", "source=x", "multipart/form-data"},
		"no boundary":              {"multipart/form-data", whole, "no usable boundary"},
		"long boundary":            {"multipart/form-data; boundary=" + strings.Repeat("b", 300), whole, "no usable boundary"},
		"other boundary":           {"multipart/form-data; boundary=c", whole, "not the multipart form"},
		"empty":                    {"multipart/form-data; boundary=b", "", "no source"},
		"no last boundary":         {"multipart/form-data; boundary=b", whole[:len(whole)-6], "broke off"},
		"ends in a header":         {"multipart/form-data; boundary=b", whole[:20], "not the multipart form"},
		"no colon":                 {"multipart/form-data; boundary=b", "--b\r\nnonsense\r\n\r\nx\r\n--b--\r\n", "not the multipart form"},
		"no disposition":           {"multipart/form-data; boundary=b", "--b\r\n\r\nx\r\n--b--\r\n", `unknown form field ""`},
		"thousands of parts":       {"multipart/form-data; boundary=b", strings.Repeat("--b\r\nContent-Disposition: form-data; name=source\r\n\r\n\r\n", 5000) + "--b--\r\n", "more than 20 parts"},
		"headers for ever":         {"multipart/form-data; boundary=b", "--b\r\n" + strings.Repeat("X-A: b\r\n", 20_000), "not the multipart form"},
		"a folded header for ever": {"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data\r\n" + strings.Repeat(" x\r\n", 40_000), "not the multipart form"},
		"a preamble for ever":      {"multipart/form-data; boundary=b", strings.Repeat("preamble\r\n", 20_000), "headers of a part are longer"},
		"a form in the form":       {"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=source\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--\r\n--b--\r\n", notAnArchive},
		"an escape as a name":      {"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"\x1b[2J\"\r\n\r\nx\r\n--b--\r\n", "not the multipart form"},
		"an encoded file name":     {"multipart/form-data; boundary=b", "--b\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: form-data; name=source; filename*=UTF-8''..%2f..%2fetc\r\n\r\n" + strings.Repeat("x", 300) + "\r\n--b--\r\n", notAnArchive},
		"only the boundary":        {"multipart/form-data; boundary=b", "--b--\r\n", "no source"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var header []string
			if tt.contentType != "" {
				header = []string{"Content-Type", tt.contentType}
			}
			r := e.send("POST", "/v0/stacks", "", strings.NewReader(tt.body), header...)
			want := 400
			if tt.want == notAnArchive {
				want = 422 // the form is right
			}
			require.Equal(t, want, r.status, r.body)
			require.Contains(t, r.detail(), tt.want)
			e.nothingLeft()
		})
	}
}

func TestUpload_CutOffLeavesNothing(t *testing.T) {
	e := newEnv(t)
	body, contentType := makeForm(t, sourcePart(make([]byte, 500_000)))
	text, err := readAll(body)
	require.NoError(t, err)
	for _, cut := range []int{0, 10, 9_000, 100_000, len(text) - 2} {
		w := e.dial()
		w.printf("POST /v0/stacks HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(text), text[:cut])
		require.NoError(t, w.conn.Close())
		w = e.dial()
		w.printf("POST /v0/stacks HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s",
			contentType, len(text), text[:cut])
		require.NoError(t, w.conn.Close())
	}
	require.NoError(t, e.api.Shutdown(t.Context())) // all have been handled
	e.nothingLeft()
	stacks, err := e.store.All(t.Context())
	require.NoError(t, err)
	require.Empty(t, stacks)
}

// A complete form in an incomplete body does not create a stack.
func TestUpload_EndsWithTheBody(t *testing.T) {
	e := newEnv(t)
	body, contentType := makeForm(t, sourcePart(site(t)))
	text, err := readAll(body)
	require.NoError(t, err)
	w := e.dial()
	w.printf("POST /v0/stacks HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(text)+100, text)
	require.NoError(t, w.conn.Close())
	require.NoError(t, e.api.Shutdown(t.Context()))
	e.nothingLeft()
	stacks, err := e.store.All(t.Context())
	require.NoError(t, err)
	require.Empty(t, stacks)
}

func TestConnection_StaysInStepOverRejectedUploads(t *testing.T) {
	e := newEnv(t)
	w := e.dial()
	post := func(header, body string, chunked bool) {
		if chunked {
			w.printf("POST /v0/stacks HTTP/1.1\r\nHost: a\r\n%sTransfer-Encoding: chunked\r\n\r\n", header)
			for len(body) > 0 {
				n := min(len(body), 10_000)
				w.printf("%x\r\n%s\r\n", n, body[:n])
				body = body[n:]
			}
			w.printf("0\r\n\r\n")
			return
		}
		w.printf("POST /v0/stacks HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body)
	}
	// what a body would do if it were taken for requests
	smuggled := strings.Repeat("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 2000)
	big := "--b\r\nContent-Disposition: form-data; name=source\r\n\r\n" + strings.Repeat("x", testMaxUpload+1) + "\r\n--b--\r\n"
	for i := range 10 {
		for _, chunked := range []bool{false, true} {
			post("Authorization: Bearer no\r\n", smuggled, chunked)
			require.Equal(t, 401, w.reply().status)
			post("Content-Type: application/json\r\n", smuggled, chunked)
			require.Equal(t, 400, w.reply().status)
			post("Content-Type: multipart/form-data; boundary=b\r\n", big, chunked)
			require.Equal(t, 413, w.reply().status)
			post("Content-Type: multipart/form-data; boundary=b\r\n", "--b\r\n\r\n"+smuggled, chunked)
			require.Equal(t, 400, w.reply().status)
			w.printf("GET /nowhere/%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", i, len(smuggled), smuggled)
			require.Contains(t, w.reply().detail(), fmt.Sprintf("/nowhere/%d", i))
		}
	}
}

func TestConnection_ClosesWhenTooMuchIsLeft(t *testing.T) {
	e := newEnv(t)
	w := e.dial()
	answered := make(chan *http.Response, 1)
	go func() {
		res, err := http.ReadResponse(w.in, nil)
		if err != nil {
			close(answered)
			return
		}
		answered <- res
	}()
	w.printf("POST /v0/stacks HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer no\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 1<<20, bytes.Repeat([]byte("x"), 1<<20))
	for range 1000 {
		if _, err := io.WriteString(w.conn, chunk); err != nil {
			break
		}
	}
	res := <-answered
	require.NotNil(t, res)
	require.Equal(t, 401, res.StatusCode)
	require.True(t, res.Close)
}

func TestUpload_IsNeverHeldInMemory(t *testing.T) {
	const size = 50_000_000
	e := newEnv(t, func(c *Config) { c.MaxUpload = size })
	head := "--b\r\nContent-Disposition: form-data; name=source; filename=a\r\n\r\n"
	tail := "\r\n--b--\r\n"
	w := e.dial()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out := bufio.NewWriterSize(w.conn, 64<<10)
	fmt.Fprintf(out, "POST /v0/stacks HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s",
		len(head)+size+len(tail), head)
	block := bytes.Repeat([]byte("\r\n--bnot a boundary"+strings.Repeat("x", 100)), 500)
	for left := size; left > 0; left -= len(block) {
		_, err := out.Write(block[:min(left, len(block))])
		require.NoError(t, err)
	}
	fmt.Fprint(out, tail)
	require.NoError(t, out.Flush())
	require.Equal(t, 422, w.reply().status, "50,000,000 bytes fit, but are not an archive")
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(16), "MiB allocated for an upload of 50 MB")
	e.nothingLeft()
}

func FuzzMultipart(f *testing.F) {
	part := "--b\r\nContent-Disposition: form-data; name=%s\r\n\r\n%s\r\n"
	f.Add("b", fmt.Sprintf(part, "source", "x")+"--b--\r\n")
	f.Add("b", fmt.Sprintf(part, "source", "")+fmt.Sprintf(part, "source", "\x1f\x8b")+"--b--")
	f.Add("b", fmt.Sprintf(part, "name", strings.Repeat("n", 5000))+"--b--\r\n")
	f.Add("b", fmt.Sprintf(part, "manifest", "{}")+"--b\r\nContent-Disposition: form-data; name=manifest_file; filename=\"a\"\r\n\r\n{}\r\n--b--\r\nepilogue")
	f.Add("b", "preamble\r\n--b\r\n\r\n\r\n--b--")
	f.Add("b", "--b\r\n"+strings.Repeat("X: y\r\n", 20_000)+"\r\n")
	f.Add("b", "--b--")
	f.Add("\x00", "--\x00--")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, boundary, text string) {
		b := &body{stream: slowbody.NewReader(strings.NewReader(text), func(time.Time) error { return nil }), declared: int64(len(text))}
		r := formReader{form: form{texts: map[string][]byte{}}, shape: createShape, body: b, in: b, maxSource: 1000, room: func() error { return nil }}
		path := t.TempDir() + "/upload"
		err := r.read(boundary, path)
		if err == nil {
			require.NotEmpty(t, r.form.archive)
			archive, err := os.Stat(path)
			require.NoError(t, err)
			require.LessOrEqual(t, archive.Size(), r.maxSource)
			for _, field := range createShape.fields {
				require.LessOrEqual(t, int64(len(r.form.texts[field.name])), field.most)
			}
			return
		}
		requireClientFault(t, err)
	})
}

// TestUpload_EndsWhereTheRoomEnds takes the room away at every step of an upload
// on its way to disk, as other uploads may.
func TestUpload_EndsWhereTheRoomEnds(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	large := tarOf(t, "index.html", "x", "a/b/large", strings.Repeat("x", 1<<19))
	counted := e.limiter.left
	send := map[string]func() reply{
		"create": func() reply {
			body, contentType := makeForm(t, sourcePart(large))
			return e.send("POST", "/v0/stacks", "", body, "Content-Type", contentType)
		},
		"redeploy":   func() reply { return e.redeploy(m.id, m.token, sourcePart(large)) },
		"validation": func() reply { return e.validates("", sourcePart(large)) },
		"list of files": func() reply {
			return e.validatesJSON(`{"files": [{"path": "index.html", "content": "` + strings.Repeat("x", 1<<20) + `"}]}`)
		},
	}
	e.host.full = &stack.Error{Kind: stack.Unavailable, Detail: "no room", RetryAfter: time.Minute}
	for name, send := range send {
		for step := range int64(9) {
			e.host.room.Store(step)
			r := send()
			require.Equal(t, 503, r.status, "%s, step %d: %s", name, step, r.body)
			require.Equal(t, "no room", r.detail())
			require.Equal(t, "60", r.header.Get("Retry-After"))
		}
	}
	require.Equal(t, counted, e.limiter.left, "a refused create does not count")
	e.nothingLeft()
	e.host.room.Store(100)
	require.Equal(t, 200, send["redeploy"]().status)
}

func TestUpload_IsNotStoredToCompareItWhereThereIsNoRoom(t *testing.T) {
	e := newEnv(t)
	first := e.keyed("/v0/stacks", "", "key-1", "192.0.2.1")
	require.Equal(t, 201, first.status, first.body)
	e.host.full = &stack.Error{Kind: stack.Unavailable, Detail: "no room", RetryAfter: time.Minute}
	for step := range int64(2) {
		e.host.room.Store(step)
		require.Equal(t, "no room", e.keyed("/v0/stacks", "", "key-1", "192.0.2.1").detail())
	}
	e.nothingLeft()
	e.host.room.Store(2)
	require.Equal(t, first.body, e.keyed("/v0/stacks", "", "key-1", "192.0.2.1").body)
}

// The first bytes of a body may take as long as any others.
func TestUpload_MayBeSlowFromTheFirstByte(t *testing.T) {
	newEnv(t).send("GET", "/healthz", "", nil) // fasthttp's clock, which never ends, begins outside of the bubble
	for name, c := range map[string]struct {
		first, second time.Duration // before each half of the form
		status        int
		detail        string
	}{
		"slow":                {50 * time.Second, 50 * time.Second, 201, ""},
		"silent":              {2 * time.Minute, 0, 400, "the upload stalled after 0 bytes: nothing arrived for 1m0s"},
		"silent after a part": {time.Second, 2 * time.Minute, 400, "the upload stalled after "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(time.Minute) }) // fasthttp looks now and then whether it has ended
				e := newEnv(t)
				form, contentType := makeForm(t, sourcePart(site(t)))
				whole, err := io.ReadAll(form)
				require.NoError(t, err)
				body, in := io.Pipe()
				go func() {
					time.Sleep(c.first)
					in.Write(whole[:len(whole)/2])
					time.Sleep(c.second)
					in.Write(whole[len(whole)/2:])
					in.Close()
				}()
				req := newRequest(t, "POST", "/v0/stacks", "", body, "Content-Type", contentType)
				req.ContentLength = int64(len(whole))
				r := e.do(req)
				body.Close()
				require.Equal(t, c.status, r.status, r.body)
				if c.detail != "" {
					require.Contains(t, r.detail(), c.detail)
				}
			})
		})
	}
}
