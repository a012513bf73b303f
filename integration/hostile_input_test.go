package integration

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rawArchive packs entries as they are, however wrong; the body of a file is
// its name.
func rawArchive(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	for _, h := range entries {
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		require.NoError(t, w.WriteHeader(&h))
		if h.Size > 0 {
			_, err := io.WriteString(w, h.Name)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	return b.Bytes()
}

// victim creates a folder next to the data directory, and returns a function that
// describes it: names, contents, modes, owners and times.
func victim(t *testing.T, h *Host) (dir string, look func() string) {
	t.Helper()
	dir = filepath.Join(filepath.Dir(h.dir), "victim")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "folder"), 0o755))
	for _, name := range []string{"keep", "folder/keep"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("untouched"), 0o640))
	}
	return dir, func() string {
		var seen strings.Builder
		require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			sys := info.Sys().(*syscall.Stat_t)
			fmt.Fprintln(&seen, path, info.Mode(), info.Size(), sys.Nlink, sys.Uid, sys.Gid, sys.Mtim, sys.Ctim)
			if info.Mode().IsRegular() {
				content, err := os.ReadFile(path)
				fmt.Fprintf(&seen, "%q\n", content)
				return err
			}
			return nil
		}))
		return seen.String()
	}
}

// What packages archive and manifest hold against, a whole server holds against too.
func TestHostile_ArchivesLeaveTheHostAlone(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_UNPACKED", "1MB"), with("BERTH_MAX_ENTRIES", "50"))
	dir, look := victim(t, h)
	before := look()
	up := strings.Repeat("../", 12) + strings.TrimPrefix(dir, "/")
	page := tar.Header{Name: "index.html"}
	many := []tar.Header{page}
	for i := range 60 {
		many = append(many, tar.Header{Name: fmt.Sprint("f", i)})
	}
	for name, c := range map[string]struct {
		source []byte
		want   string
	}{
		"a file above":                {rawArchive(t, page, tar.Header{Name: up + "/keep"}), "leaves the archive's root"},
		"a file at an absolute path":  {rawArchive(t, page, tar.Header{Name: dir + "/keep"}), "leaves the archive's root"},
		"a folder above":              {rawArchive(t, page, tar.Header{Name: up + "/new/", Typeflag: tar.TypeDir}), "leaves the archive's root"},
		"a file through a link":       {rawArchive(t, page, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: dir}, tar.Header{Name: "l/keep"}), `lies below "l"`},
		"a file through a rising one": {rawArchive(t, page, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: up}, tar.Header{Name: "l/new"}), `lies below "l"`},
		"a hard link":                 {rawArchive(t, page, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: dir + "/keep"}), "is a hard link to"},
		"a hard link above":           {rawArchive(t, page, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: up + "/keep"}), "is a hard link to"},
		"the root as a link":          {rawArchive(t, tar.Header{Name: ".", Typeflag: tar.TypeSymlink, Linkname: dir}, page), "stands for the archive's root"},
		"a folder that is a link":     {rawArchive(t, page, tar.Header{Name: "d", Typeflag: tar.TypeSymlink, Linkname: dir}, tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o777}), "an earlier one of that name is not"},
		"a terminal escape":           {rawArchive(t, page, tar.Header{Name: "\x1b[2J"}), `"\x1b[2J" has a control character`},
		"too many entries":            {rawArchive(t, many...), "more than the 50 files"},
		"a bomb":                      {archive(t, Tree{"index.html": strings.Repeat("\x00", 40_000_000)}), "over the limit of 1MB unpacked"},
		"a bomb behind the end":       {gzipOf(t, append(tarOnly(t, page), make([]byte, 40_000_000)...)), "zeros after its end mark"},
		"gzip in gzip":                {gzipOf(t, archive(t, Tree{"index.html": "x"})), "compressed twice"},
	} {
		require.Contains(t, h.post(t, c.source, nil, "").refused(t, http.StatusUnprocessableEntity), c.want, name)
		require.Empty(t, h.files(t), name)
		require.Equal(t, before, look(), name)
	}

	st := h.mustLive(t, h.post(t, rawArchive(t, page,
		tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: dir + "/keep"},
		tar.Header{Name: "rising", Typeflag: tar.TypeSymlink, Linkname: up + "/keep"},
		tar.Header{Name: "disk", Typeflag: tar.TypeBlock, Devmajor: 8},
		tar.Header{Name: "pipe", Typeflag: tar.TypeFifo},
		tar.Header{Name: "setuid", Mode: 0o4755},
	), manifest("services: [{name: web, runtime: static, spa: false}]"), "").stack(t))
	for _, name := range []string{"out", "rising", "disk", "pipe"} {
		require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/"+name)).status, name)
	}
	log := h.logs(t, st, "kind=build")
	for _, lost := range []string{`"out" -> `, `"rising" -> `, `"disk"  `, `"pipe"  `} {
		require.Regexp(t, `(?m)^  left out +`+lost, log)
	}
	require.Equal(t, before, look())
	require.NoError(t, filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "setuid" {
			info, err := d.Info()
			require.NoError(t, err)
			require.Zero(t, info.Mode()&os.ModeSetuid, path)
		}
		return err
	}))
}

func gzipOf(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// tarOnly is an archive that is not compressed.
func tarOnly(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(rawArchive(t, entries...)))
	require.NoError(t, err)
	content, err := io.ReadAll(r)
	require.NoError(t, err)
	return content
}

func TestHostile_ManifestsAreRefusedInWords(t *testing.T) {
	t.Parallel()
	h := start(t, asShipped)
	source := archive(t, page("x"))
	before := h.peakMemory(t)
	for name, c := range map[string][2]string{
		"aliases":     {"a: &a [x, x]\nb: &b [*a, *a]\nservices: *b\n", "anchors, aliases and merge keys are not accepted"},
		"nesting":     {"services: " + strings.Repeat("[", 4000), "nests deeper than"},
		"many words":  {"services: " + strings.Repeat("[", 60_000), "more than 5000 words"},
		"a long key":  {strings.Repeat("k", 60_000) + ": x", "unknown field"},
		"too long":    {strings.Repeat("#", 100_000), "larger than 64 KiB"},
		"a NUL":       {"name: a\x00b", "not UTF-8 text"},
		"not UTF-8":   {"name: \xff", "not UTF-8 text"},
		"an escape":   {`{"\u001b[2J\u009b": 1}`, `unknown field "\x1b[2J\u009b"`},
		"a key twice": {"name: a\nname: b", `"name" is given twice`},
	} {
		for i := range 10 {
			detail := h.post(t, source, manifest(c[0]), "").refused(t, http.StatusUnprocessableEntity)
			require.Contains(t, detail, c[1], "%s, the %dth time", name, i)
			require.Less(t, len(detail), 2000)
			require.Empty(t, orders(detail))
		}
	}
	require.Less(t, h.peakMemory(t)-before, int64(256<<20), "all of them together take over a gigabyte")
	require.Empty(t, h.files(t))
}

// orders are the control characters of a text that a terminal would obey.
func orders(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			return r
		}
		return -1
	}, text)
}

// Nothing that a stranger wrote controls a reader's terminal, whether it is in a log,
// an error, an event or a refusal. On disk a log has the bytes that were written.
func TestHostile_TerminalEscapesAreWrittenOut(t *testing.T) {
	t.Parallel()
	h := start(t)
	const attack = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\u009b5n\x9b6n\x00\x08 10%\r20%\r\n\tend ü\n"
	const shown = `\x1b]0;owned\x07\x1b[2J\x1b[31mred\u009b5n\x9b6n\x00\x08 10%\r20%` + "\n\tend ü\n"
	tree := program(t).plus(Tree{
		"attack": attack,
		"run.js": "process.stdout.write(require('fs').readFileSync('attack')); require('./server.js')",
	})
	st := h.live(t, tree, manifest("services: [{name: web, runtime: node, build: cat attack, start: node run.js}]"))
	h.logged(t, st, "", "end ü\n")
	require.Contains(t, h.logs(t, st, "kind=build"), "$ cat attack\n"+shown)
	// The engine keeps text: it replaces a byte that is not text with U+FFFD.
	require.Contains(t, h.logs(t, st, "kind=run"), strings.ReplaceAll(shown, `\x9b`, "\uFFFD"))
	kept, err := os.ReadFile(filepath.Join(h.dir, "stacks", st.hex(), "logs", "web.build.log"))
	require.NoError(t, err)
	require.Contains(t, string(kept), attack)

	failed := h.deploy(t, tree, manifest("services: [{name: web, runtime: node, build: cat attack; exit 1, start: x}]"))
	crashed := h.deploy(t, tree, manifest("services: [{name: web, runtime: node, start: cat attack; exit 1}]"))
	redeployed := h.redeploy(t, st, tree, manifest("services: [{name: web, runtime: node, release: cat attack; exit 1, start: node server.js}]"))
	for _, text := range []string{failed.reason(), crashed.reason(), *redeployed.DeployError} {
		require.Contains(t, text, `\x1b]0;owned\x07\x1b[2J\x1b[31mred\u009b5n`)
		require.Empty(t, orders(text))
	}
	for _, st := range []*Stack{failed, crashed, redeployed} {
		for _, e := range h.events(t, st) {
			for _, v := range e.Data {
				if text, ok := v.(string); ok {
					require.Empty(t, orders(text), e.Type)
				}
			}
		}
		require.Empty(t, orders(h.logs(t, st, "kind=build")+h.logs(t, st, "kind=run")))
	}

	for _, path := range []string{"/\u009b2J", "/v0/stacks/%1b%5b2J", "/v0/stacks/" + st.ID + "/logs?kind=%1b[2J", "/v0/stacks/" + st.ID + "/logs?service=%c2%9b2J"} {
		require.Empty(t, orders(h.getAs(t, st.ManageToken, path).detail(t)), path)
	}
	for _, fields := range []Fields{{"name": "\x1b[2J\u009b"}, {"ttl": "\x1b[2J\u009b"}, {"claim_email": "\u009b@\x1b[2J"}, manifest("{\"\u009b\": 1}")} {
		require.Empty(t, orders(h.post(t, archive(t, tree), fields, "").refused(t, http.StatusUnprocessableEntity)))
	}
}

// A process that writes endlessly, or writes an endless line, takes a bounded part of
// the disk and of memory, and does not affect other stacks.
func TestHostile_OutputIsBounded(t *testing.T) {
	t.Parallel()
	h := start(t, asShipped, with("BERTH_HEALTH_TIMEOUT", "10m"))
	neighbour := h.live(t, page("here"), nil)
	before := h.peakMemory(t)
	const much = `head -c 300000000 /dev/zero | tr '\\0' x` // more than the server may hold or keep
	st := h.live(t, program(t), manifest(`services: [{name: web, runtime: node, build: "`+much+`", start: node server.js}]`))
	require.Contains(t, h.logs(t, st, "kind=build&tail=10"), "== build ok")
	long := h.live(t, program(t), manifest(`services: [{name: web, runtime: node, start: "`+much+`; exec node server.js"}]`))
	// It serves, so everything was written. An engine that rotates its log faster than
	// it is read may omit some, but later lines are there.
	h.logged(t, long, "tail=1", "xxxxxxxx")
	eventually(t, "the log goes on", func() error {
		h.get(t, long.url("web", "/log?from=0&to=3"))
		if log := h.logs(t, long, "tail=1"); !strings.HasSuffix(log, "line 2\n") {
			return fmt.Errorf("it ends with %q", log[max(0, len(log)-100):])
		}
		return nil
	})
	require.Less(t, len(h.logs(t, long, "tail=1000000")), 6_000_000)

	require.Equal(t, "here", h.get(t, neighbour.url("web", "/")).body)
	require.Less(t, h.peakMemory(t)-before, int64(128<<20), "output was held in memory")
	require.Less(t, h.logSize(t), int64(30_000_000), "output fills the disk")
}

func TestHostile_EndlessOutputEndsWithItsTime(t *testing.T) {
	t.Parallel()
	h := start(t, asShipped, with("BERTH_BUILD_TIMEOUT", "5s"), with("BERTH_LOG_MAX", "1MB"))
	before := h.peakMemory(t)
	st := h.deploy(t, page("x"), manifest("services: [{name: web, runtime: node, build: yes, start: x}]"))
	require.Contains(t, st.reason(), "build ran longer than 5s and was killed: yes")
	require.LessOrEqual(t, len([]rune(st.reason())), 4000)
	require.Less(t, h.peakMemory(t)-before, int64(128<<20), "output was held in memory")
	require.Less(t, h.logSize(t), int64(3_000_000), "output fills the disk")
}

// logSize returns the size of all logs on the disk.
func (h *Host) logSize(t *testing.T) (size int64) {
	t.Helper()
	for _, path := range h.files(t) {
		if info, err := os.Stat(path); err == nil && strings.Contains(path, ".log") {
			size += info.Size()
		}
	}
	return size
}

// A client that sends its headers a byte at a time is refused, and does not hold up
// other clients meanwhile.
func TestHostile_SlowHeadersAreCutOff(t *testing.T) {
	t.Parallel()
	h := start(t)
	var ended []chan error
	for i := range 50 {
		conn := h.dial(t)
		_, err := fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-%d: ", i)
		require.NoError(t, err)
		closed := make(chan error, 1)
		ended = append(ended, closed)
		go func() {
			_, err := io.Copy(io.Discard, conn)
			closed <- err
		}()
		go func() {
			for { // until the server closes the connection
				if _, err := conn.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(500 * time.Millisecond)
			}
		}()
	}
	require.Equal(t, http.StatusOK, h.get(t, "/healthz").status)
	for _, closed := range ended {
		select {
		case <-closed:
		case <-time.After(patience):
			t.Fatal("a connection that sends a byte now and then is never closed")
		}
	}
}

// Forms with false framing leave nothing behind and do not affect later requests.
func TestHostile_FormsThatLie(t *testing.T) {
	t.Parallel()
	h := start(t)
	body, contentType := form(t, archive(t, page("x")), nil)
	head := "POST /v0/stacks HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + contentType + "\r\n"
	parts := strings.Repeat("--b\r\nContent-Disposition: form-data; name=source\r\n\r\n\r\n", 5000) + "--b--\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"no boundary":         {"POST /v0/stacks HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data\r\nContent-Length: 1\r\n\r\nx", 400},
		"a length too short":  {head + fmt.Sprintf("Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body)-20, body), 400},
		"a length too long":   {head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body)+1000, body), 0},
		"a length of none":    {head + "Content-Length: 0\r\nConnection: close\r\n\r\n" + string(body), 400},
		"no length at all":    {head + "Connection: close\r\n\r\n" + string(body), 400},
		"chunks that end":     {head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", 2*len(body), body[:len(body)/2]), 0},
		"thousands of parts":  {fmt.Sprintf("POST /v0/stacks HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s", len(parts), parts), 400},
		"a length of all":     {head + "Content-Length: 9223372036854775807\r\n\r\n" + strings.Repeat("x", 100_000), 413},
		"a length beyond all": {head + "Content-Length: 9223372036854775808\r\n\r\n", 400},
	} {
		t.Run(name, func(t *testing.T) {
			conn := h.dial(t)
			go func() {
				_, _ = io.WriteString(conn, c.request)
				if c.status == 0 { // the client gives up before the rest
					_ = conn.(interface{ CloseWrite() error }).CloseWrite()
				}
			}()
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if c.status == 0 {
				if err == nil {
					require.GreaterOrEqual(t, read(t, res).status, 400)
				}
			} else {
				require.NoError(t, err)
				require.Equal(t, c.status, read(t, res).status)
			}
			eventually(t, "nothing of the upload is left", func() error {
				if left := h.files(t); len(left) > 0 {
					return fmt.Errorf("there is %v", left)
				}
				return nil
			})
		})
	}
}
