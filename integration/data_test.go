package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func dataPath(st *Stack, service string) string {
	return "/v0/stacks/" + st.ID + "/services/" + service + "/data"
}

// pushData sends an archive as the data of a service.
func (h *Host) pushData(t *testing.T, st *Stack, service, token string, data []byte) Reply {
	t.Helper()
	return h.do(t, h.request(t, http.MethodPut, dataPath(st, service), bytes.NewReader(data), "Authorization", "Bearer "+token, "Content-Type", "application/gzip"))
}

// pullData returns the files of a service's data, folders with a slash.
func (h *Host) pullData(t *testing.T, st *Stack, service, query string) map[string]string {
	t.Helper()
	r := h.getAs(t, st.ManageToken, dataPath(st, service)+query)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, "application/gzip", r.header.Get("Content-Type"))
	zip, err := gzip.NewReader(strings.NewReader(r.body))
	require.NoError(t, err)
	files, in := map[string]string{}, tar.NewReader(zip)
	for {
		header, err := in.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		content, err := io.ReadAll(in)
		require.NoError(t, err)
		files[header.Name] = string(content) + header.Linkname
	}
	_, err = io.Copy(io.Discard, zip)
	require.NoError(t, err, "the archive is whole")
	return files
}

// dataArchive packs entries as a tar.gz.
func dataArchive(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, h := range entries {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname, h.Size = h.Linkname, "", int64(len(h.Linkname))
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	return out.Bytes()
}

func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640, Uid: 1234, Uname: "eve", Linkname: content}
}

func symlink(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

// A program may make any links. What goes out of them comes in again.
func TestData_HasLinksThatStayInside(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, pairTree(t), manifest(pair))
	h.put(t, st, "api", "kept", "data of api")
	h.inContainer(t, st, "api", `cd $DATA_DIR && mkdir -p d && ln -s .. d/up && ln -s d/../kept inside && ln -s $DATA_DIR/kept absolute && ln -s d/up/.. through && ln -s /etc out`)
	pulled := h.getAs(t, st.ManageToken, dataPath(st, "api"))
	require.Equal(t, http.StatusOK, pulled.status)
	require.Equal(t, http.StatusOK, h.pushData(t, st, "api", st.ManageToken, []byte(pulled.body)).status)
	require.Equal(t, "data of api", h.get(t, st.url("api", "/read?name=inside")).body)
	require.Equal(t, "absolute /data/kept\nd/up ..\ninside d/../kept\n", h.inContainer(t, st, "api", `cd $DATA_DIR && find . -type l -printf '%P %l\n' | LC_ALL=C sort`))
}

func TestData_GoesOutAndIn(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, pairTree(t), manifest(pair))
	h.put(t, st, "api", "kept", "data of api")
	require.Equal(t, map[string]string{"./": "", "kept": "data of api"}, h.pullData(t, st, "api", ""))
	head := h.do(t, h.request(t, http.MethodHead, dataPath(st, "api"), nil, "Authorization", "Bearer "+st.ManageToken))
	require.Equal(t, http.StatusOK, head.status)

	before := h.pid(t, st, "api")
	r := h.pushData(t, st, "api", st.ManageToken, dataArchive(
		t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
		file("./kept", "other data"), file("sub/set", "id"), file("large", strings.Repeat("0123456789abcdef", 1<<16)),
		symlink("link", "sub/set"),
		tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3},
		tar.Header{Typeflag: tar.TypeReg, Name: "tool", Mode: 0o6755},
	))
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, "live", r.stack(t).Status)
	require.Equal(t, "running", r.stack(t).statuses()["api"])
	require.Equal(t, 1, r.stack(t).Generation)
	require.NotEqual(t, before, h.pid(t, st, "api"))
	require.Equal(t, "other data", h.get(t, st.url("api", "/read?name=kept")).body)
	require.Equal(t, "id", h.get(t, st.url("api", "/read?name=link")).body)
	h.put(t, st, "api", "sub/new", "the stack's own folder")
	user := h.inspect(t, st, "api").Config.User
	require.Equal(t, fmt.Sprintf("%s %s\n755 1\n640 1\n", user, user), h.inContainer(t, st, "api",
		`stat -c %u:%g /data/kept /data | sort -u | tr '\n' ' ' | sed 's/ $//' | awk '{print $1" "$1}'; for f in tool kept; do stat -c '%a %h' /data/$f; done`))
	require.NotContains(t, h.pullData(t, st, "api", ""), "null")
	types := h.eventTypes(t, st)
	require.Contains(t, types, "service.restarted")
	require.NotContains(t, types, "service.crashed")
	h.keeps(t, st, "container web-g1", "container api-g1-r1", "image web", "image api", "volume web-data", "volume api-data-1", "network g1")

	// The other volume goes through all that the first does.
	require.Equal(t, http.StatusOK, h.pushData(t, st, "api", st.ManageToken, dataArchive(t, file("kept", "third"))).status)
	h.restart(t)
	require.Equal(t, "third", h.get(t, st.url("api", "/read?name=kept")).body)
	require.Equal(t, map[string]string{"./": "", "kept": "third"}, h.pullData(t, st, "api", "?stop=true"))
	eventually(t, "it is healthy again", func() error {
		if s := h.show(t, st, "").statuses()["api"]; s != "running" {
			return errors.New(s)
		}
		return nil
	})
	require.Equal(t, "third", h.get(t, st.url("api", "/read?name=kept")).body)
	require.NotContains(t, h.eventTypes(t, st), "service.crashed")
	require.Equal(t, 2, h.redeploy(t, st, pairTree(t), manifest(pair)).Generation)
	require.Equal(t, "third", h.get(t, st.url("api", "/read?name=kept")).body)
	h.keeps(t, st, "container web-g2", "container api-g2", "image web", "image api", "volume web-data", "volume api-data-2", "network g2")
}

func TestData_OfAnExpiredStackComesBack(t *testing.T) {
	t.Parallel()
	h := start(t, brief)
	key := h.accountCreate(t, "ana@example.com")
	st := h.live(t, pairTree(t), manifest(pair))
	require.Equal(t, http.StatusOK, h.pushData(t, st, "api", st.ManageToken, dataArchive(t, file("kept", "pushed"))).status)
	h.expire(t, st)
	require.Equal(t, http.StatusConflict, h.pushData(t, st, "api", st.ManageToken, dataArchive(t, file("kept", "late"))).status)
	require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "?wait=true").status)
	require.Equal(t, "pushed", h.get(t, st.url("api", "/read?name=kept")).body)
}

func TestData_IsRefused(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_DATA", "1MB"))
	key := h.accountCreate(t, "ana@example.com")
	st := h.live(t, pairTree(t), manifest(pair))
	h.put(t, st, "api", "kept", "data of api")
	before := h.pid(t, st, "api")
	whole := dataArchive(t, file("a", strings.Repeat("content", 1000)))
	random := make([]byte, 600<<10)
	_, _ = rand.Read(random)
	for name, c := range map[string]struct {
		body   []byte
		status int
		says   string
	}{
		"nothing":           {nil, 422, "empty"},
		"text":              {[]byte("hello"), 422, "not a tar"},
		"cut gzip":          {whole[:len(whole)-20], 422, "cut short"},
		"no entry":          {dataArchive(t), 422, "empty"},
		"leaves the root":   {dataArchive(t, file("../kept", "x")), 422, "leaves the archive's root"},
		"absolute":          {dataArchive(t, file("/etc/passwd", "x")), 422, "leaves the archive's root"},
		"a symlink out":     {dataArchive(t, symlink("a", "/etc/passwd")), 422, "leads out"},
		"through others":    {dataArchive(t, symlink("d/up", ".."), symlink("z", "d/up/..")), 422, "the entry z is a symlink that leads out of the data"},
		"a missing target":  {dataArchive(t, tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "b"}), 422, "cannot be unpacked"},
		"below a file":      {dataArchive(t, file("a", "x"), file("a/b", "y")), 422, "cannot be unpacked"},
		"through a symlink": {dataArchive(t, symlink("a", "/data/../data/b"), file("a/c", "x")), 422, "cannot be unpacked"},
		"over the limit":    {dataArchive(t, file("a", string(random)), file("b", string(random))), 413, "limit of 1MB"},
	} {
		r := h.pushData(t, st, "api", st.ManageToken, c.body)
		require.Contains(t, r.refused(t, c.status), c.says, name)
	}
	require.Contains(t, h.pushData(t, st, "site", st.ManageToken, whole).refused(t, http.StatusConflict), "static")
	require.Contains(t, h.pushData(t, st, "other", st.ManageToken, whole).refused(t, http.StatusNotFound), "it has web, site, api")
	require.Contains(t, h.getAs(t, st.ManageToken, dataPath(st, "site")).refused(t, http.StatusConflict), "static")
	require.Contains(t, h.getAs(t, st.ManageToken, dataPath(st, "api")+"?stop=maybe").refused(t, http.StatusBadRequest), "stop")
	require.Equal(t, before, h.pid(t, st, "api"), "a refused archive stops nothing")
	require.Equal(t, "data of api", h.get(t, st.url("api", "/read?name=kept")).body)
	h.keeps(t, st, "container web-g1", "container api-g1", "image web", "image api", "volume web-data", "volume api-data", "network g1")

	require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "").status)
	require.Contains(t, h.pushData(t, st, "api", st.ManageToken, whole).refused(t, http.StatusForbidden), "ana@example.com")
	require.Contains(t, h.getAs(t, st.ManageToken, dataPath(st, "api")).refused(t, http.StatusForbidden), "ana@example.com")
	require.Equal(t, http.StatusOK, h.pushData(t, st, "api", key, whole).status)
}

// picky does not start with some data.
const picky = `const fs = require("fs"), file = process.env.DATA_DIR + "/kept";
if (fs.existsSync(file) && String(fs.readFileSync(file)) === "bad") { console.log("bad data"); process.exit(3) }
require("http").createServer((q, s) => s.end(fs.existsSync(file) ? fs.readFileSync(file) : "none")).listen(process.env.PORT)`

func TestData_ThatAProgramCannotStartWithLeavesTheOld(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, Tree{"server.js": picky}, manifest("services: [{name: web, runtime: node, start: exec node server.js, stop_timeout: 1s}]"))
	require.Equal(t, http.StatusOK, h.pushData(t, st, "web", st.ManageToken, dataArchive(t, file("kept", "good"))).status)
	detail := h.pushData(t, st, "web", st.ManageToken, dataArchive(t, file("kept", "bad"))).refused(t, http.StatusUnprocessableEntity)
	require.Contains(t, detail, "the data was not replaced, and what was there before serves again")
	require.Contains(t, detail, "bad data")
	require.Equal(t, "good", h.get(t, st.url("web", "/")).body)
	require.Equal(t, "running", h.show(t, st, "").statuses()["web"])
	require.NotContains(t, h.eventTypes(t, st), "service.crashed")
	h.keeps(t, st, "container web-g1-r1", "image web", "volume web-data-1", "network g1")
	require.NoError(t, h.killProcess(t, st, "web", "KILL"))
	eventually(t, "the crash is seen", func() error {
		if types := h.eventTypes(t, st); !slices.Contains(types, "service.crashed") {
			return fmt.Errorf("%v", types)
		}
		return nil
	})
	eventually(t, "the watcher brings it back", func() error {
		if r := h.get(t, st.url("web", "/")); r.body != "good" {
			return errors.New(r.String())
		}
		return nil
	})
}

// replacing waits until the data of the service api is being replaced.
func (h *Host) replacing(t *testing.T, st *Stack) {
	t.Helper()
	eventually(t, "there is a volume for the new data", func() error {
		if has := h.has(t, st); !slices.Contains(has, "volume api-data-1") {
			return fmt.Errorf("it has %q", has)
		}
		return nil
	})
}

func TestData_OthersWaitForAReplacement(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, pairTree(t), manifest(pair))
	body, feed := io.Pipe()
	pushed := make(chan Reply, 1)
	go func() {
		pushed <- h.do(t, h.request(t, http.MethodPut, dataPath(st, "api"), body, "Authorization", "Bearer "+st.ManageToken, "Content-Type", "application/gzip"))
	}()
	data := dataArchive(t, file("kept", "pushed"), file("more", strings.Repeat("x", 1<<20)))
	_, err := feed.Write(data[:len(data)/2])
	require.NoError(t, err)
	h.replacing(t, st)
	require.Equal(t, http.StatusConflict, h.pushData(t, st, "web", st.ManageToken, data).status)
	require.Equal(t, http.StatusConflict, h.getAs(t, st.ManageToken, dataPath(st, "api")).status)
	require.Equal(t, "hello from api", h.get(t, st.url("api", "/")).body, "it serves meanwhile")
	h.begin(t, st, pairTree(t), manifest(pair))
	deleted := make(chan Reply, 1)
	go func() { deleted <- h.delete(t, st) }()
	time.Sleep(time.Second)
	require.Equal(t, 1, h.show(t, st, "").Generation)
	require.Empty(t, deleted)
	_, err = feed.Write(data[len(data)/2:])
	require.NoError(t, err)
	require.NoError(t, feed.Close())
	require.Equal(t, http.StatusOK, (<-pushed).status)
	require.Equal(t, http.StatusOK, (<-deleted).status)
	h.forgetStack(st.ID)
}

// A restart waits for a replacement; an expiry does not.
func TestData_ARestartWaitsAndAnExpiryEndsAReplacement(t *testing.T) {
	t.Parallel()
	h := start(t, brief)
	key := h.accountCreate(t, "ana@example.com")
	st := h.live(t, pairTree(t), manifest(pair))
	h.put(t, st, "api", "kept", "data of api")
	before := h.pid(t, st, "web")
	body, feed := io.Pipe()
	t.Cleanup(func() { _ = feed.Close() })
	pushed := make(chan Reply, 1)
	go func() {
		pushed <- h.do(t, h.request(t, http.MethodPut, dataPath(st, "api"), body, "Authorization", "Bearer "+st.ManageToken, "Content-Type", "application/gzip"))
	}()
	_, err := feed.Write(dataArchive(t, file("kept", strings.Repeat("x", 1<<20)))[:512])
	require.NoError(t, err)
	h.replacing(t, st)
	require.Equal(t, http.StatusConflict, h.getAs(t, st.ManageToken, dataPath(st, "api")).status)
	restarted := make(chan Reply, 1)
	go func() {
		restarted <- h.do(t, h.request(t, http.MethodPost, "/v0/stacks/"+st.ID+"/restart", nil, "Authorization", "Bearer "+st.ManageToken))
	}()
	time.Sleep(time.Second)
	require.Equal(t, before, h.pid(t, st, "web"))
	h.expire(t, st)
	r := <-pushed
	require.Equal(t, http.StatusConflict, r.status, r.body)
	<-restarted
	require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "?wait=true").status)
	require.Equal(t, "data of api", h.get(t, st.url("api", "/read?name=kept")).body)
}

func TestData_ABrokenUploadLeavesNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, pairTree(t), manifest(pair))
	h.put(t, st, "api", "kept", "data of api")
	random := make([]byte, 4<<20)
	_, _ = rand.Read(random)
	broken := errors.New("broken")
	req := h.request(t, http.MethodPut, dataPath(st, "api"), io.MultiReader(bytes.NewReader(dataArchive(t, file("kept", string(random)))[:3<<20]), failingReader{broken}),
		"Authorization", "Bearer "+st.ManageToken)
	_, err := h.newClient().Do(req)
	require.ErrorIs(t, err, broken)
	h.keeps(t, st, "container web-g1", "container api-g1", "image web", "image api", "volume web-data", "volume api-data", "network g1")
	require.Equal(t, "data of api", h.get(t, st.url("api", "/read?name=kept")).body)
	eventually(t, "the next one is taken", func() error {
		if r := h.pushData(t, st, "api", st.ManageToken, dataArchive(t, file("kept", "next"))); r.status != http.StatusOK {
			return errors.New(r.String())
		}
		return nil
	})
}

// flood reads as a tar with one file of so many bytes that no compression makes smaller.
func flood(t *testing.T, size int64) io.Reader {
	t.Helper()
	var head bytes.Buffer
	require.NoError(t, tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "large", Mode: 0o644, Size: size}))
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)
	require.Zero(t, size%int64(len(noise)))
	parts := []io.Reader{&head}
	for range size / int64(len(noise)) {
		parts = append(parts, bytes.NewReader(noise))
	}
	return io.MultiReader(append(parts, bytes.NewReader(make([]byte, 1024)))...)
}

func TestData_TakesFlatMemory(t *testing.T) {
	h := start(t, asShipped)
	st := h.live(t, pairTree(t), manifest(pair))
	before, began := h.peakMemory(t), time.Now()
	const size = 512 << 20
	r := h.do(t, h.request(t, http.MethodPut, dataPath(st, "api"), flood(t, size), "Authorization", "Bearer "+st.ManageToken, "Content-Type", "application/gzip"))
	require.Equal(t, http.StatusOK, r.status, r.body)
	pushed := time.Since(began)
	res, err := h.client.Do(h.request(t, http.MethodGet, dataPath(st, "api"), nil, "Authorization", "Bearer "+st.ManageToken))
	require.NoError(t, err)
	defer res.Body.Close()
	n, err := io.CopyN(io.Discard, res.Body, 100<<20) // the rest is broken off
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	grown := h.peakMemory(t) - before
	t.Logf("%d MB in %s, %d MB back: the server grew by %d MB, from %d MB", size>>20, pushed.Round(time.Second), n>>20, grown>>20, before>>20)
	require.Less(t, grown, int64(64<<20))
	eventually(t, "the data is free again", func() error {
		if r := h.do(t, h.request(t, http.MethodPut, dataPath(st, "api"), bytes.NewReader(dataArchive(t, file("kept", "x"))), "Authorization", "Bearer "+st.ManageToken, "Content-Type", "application/gzip")); r.status != http.StatusOK {
			return errors.New(r.String())
		}
		return nil
	})
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// pid identifies the process of a service.
func (h *Host) pid(t *testing.T, st *Stack, service string) string {
	t.Helper()
	return h.get(t, st.url(service, "/pid")).body[:3] + h.inspect(t, st, service).ID
}

// inContainer returns what a command prints in the container of a service.
func (h *Host) inContainer(t *testing.T, st *Stack, service, command string) string {
	t.Helper()
	r := h.do(t, h.request(t, http.MethodPost, execPath(st, service), strings.NewReader(fmt.Sprintf(`{"command": %q}`, command)), "Authorization", "Bearer "+st.ManageToken))
	return r.json(t)["output"].(string)
}

func (h *Host) eventTypes(t *testing.T, st *Stack) (types []string) {
	t.Helper()
	for _, e := range h.events(t, st) {
		types = append(types, e.Type)
	}
	return slices.Compact(types)
}
