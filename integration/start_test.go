package integration

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
)

// refusesToStart runs a server that is to end by itself, and returns what it
// wrote, which is one line.
func (h *Host) refusesToStart(t *testing.T) string {
	t.Helper()
	before := len(h.log.String())
	require.Error(t, h.spawn(t).wait(t))
	said := h.log.String()[before:]
	require.Equal(t, 1, strings.Count(said, "\n"), said)
	return said
}

func TestStart_ABadValueIsOneLineAndTouchesNothing(t *testing.T) {
	t.Parallel()
	h := install(t, asShipped)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("neither a certificate nor a setting\n"), 0o600))
	for variable, c := range map[string]struct{ value, with string }{
		"BERTH_WAIT":              {value: "soon"},
		"BERTH_ORPHAN_GRACE":      {value: "-1h"},
		"BERTH_DATABASE_URL":      {value: "postgres://db.example.com/berth"},
		"BERTH_REDIS_URL":         {value: "not an address"},
		"BERTH_BUILD_ENV_FILE":    {value: file},
		"BERTH_BUILD_CA_FILE":     {value: file},
		"BERTH_CONTAINER_RUNTIME": {value: "none-such"},
		"BERTH_SERVICE_CPUS":      {value: "900"},
		"DOCKER_HOST":             {value: "tcp://192.0.2.1:2376"},
		"DOCKER_CERT_PATH":        {value: file, with: "DOCKER_HOST=tcp://127.0.0.1:2376 DOCKER_TLS_VERIFY=1"},
		"BERTH_TLS_CERT":          {value: file, with: "BERTH_TLS=files BERTH_TLS_KEY=" + file + " BERTH_BASE_URL=https://a.test"},
	} {
		saved := h.env
		h.env = map[string]string{}
		for name, value := range saved {
			h.env[name] = value
		}
		for _, setting := range strings.Fields(c.with) {
			name, value, _ := strings.Cut(setting, "=")
			h.env[name] = value
		}
		h.env[variable] = c.value
		require.Contains(t, h.refusesToStart(t), variable)
		h.env = saved
		entries, err := os.ReadDir(h.dir)
		require.NoError(t, err)
		require.Len(t, entries, 1, "%s: there is more than what tells the installation: %v", variable, entries)
	}
	h.run(t)
}

func TestStart_OnATakenAddressRecordsNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	h.stop(t)
	for _, name := range []string{"BERTH_LISTEN", "BERTH_ADMIN_LISTEN"} {
		free := h.env[name]
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		h.env[name] = taken.Addr().String()
		require.Contains(t, h.refusesToStart(t), name)
		require.NoError(t, taken.Close())
		h.env[name] = free
	}
	h.run(t)
	h.onceRestored(t, st, 1)
}

// Without the installation's id nothing of its stacks would be found.
// setAside renames a file until putBack is called.
func setAside(t *testing.T, file string) (putBack func()) {
	t.Helper()
	away := file + ".away"
	require.NoError(t, os.Rename(file, away))
	return func() {
		t.Helper()
		require.NoError(t, os.Rename(away, file))
	}
}

func TestStart_NamesAMissingInstanceFile(t *testing.T) {
	t.Parallel()
	h := start(t)
	site := h.live(t, page("the site"), nil)
	h.stop(t)
	file := filepath.Join(h.dir, "instance")
	putBack := setAside(t, file)
	require.Contains(t, h.refusesToStart(t), file+" is missing")
	require.NoFileExists(t, file)
	putBack()
	h.run(t)
	require.Equal(t, "the site", h.get(t, site.url("web", "/")).body)
}

func TestStart_NamesAKeyOfAnotherInstallation(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(`services: [{name: web, runtime: node, start: node server.js, env: {SECRET: {generate: true}}}]`))
	h.stop(t)
	file := filepath.Join(h.dir, "key")
	putBack := setAside(t, file)
	require.NoError(t, os.WriteFile(file, make([]byte, len(auth.Key{})), 0o600))
	said := h.refusesToStart(t)
	require.Contains(t, said, "the key "+file+" does not decrypt the sealed values in the database")
	require.NotContains(t, said, "sql:")
	putBack()
	h.run(t)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
}

func TestStart_WaitsForTheEngine(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	h := start(t, through(p))
	st := h.live(t, program(t), manifest(programManifest))
	h.stop(t)
	putBack := setAside(t, p.socket())
	running := h.spawn(t)
	eventually(t, "it says that it waits", func() error {
		if !strings.Contains(h.log.String(), "no Docker engine is ready") {
			return errors.New("it does not")
		}
		return nil
	})
	for _, target := range []string{"/healthz", st.url("web", "/")} {
		r := h.get(t, target)
		require.Equal(t, http.StatusServiceUnavailable, r.status)
		require.NotEmpty(t, r.header.Get("Retry-After"))
		require.Contains(t, r.body, "waits for its Docker engine")
	}
	putBack()
	h.awaitAnswer(t, running)
	h.onceRestored(t, st, 1)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
}

// Only the stack whose files are missing fails; the others serve.
func TestStart_FailsOnlyTheStackWhoseFilesAreMissing(t *testing.T) {
	t.Parallel()
	h := start(t)
	site, other := h.live(t, page("a site"), nil), h.live(t, page("another"), nil)
	link := h.live(t, page("a link"), nil)
	noImage, noLog := h.live(t, program(t), manifest(programManifest)), h.live(t, program(t), manifest(programManifest))
	noData, builtAgain := h.live(t, program(t), manifest(programManifest)), h.live(t, program(t), manifest(programManifest))
	container, withData, built := h.inspect(t, noImage, "web").ID, h.inspect(t, noData, "web"), h.inspect(t, builtAgain, "web").ID
	h.put(t, builtAgain, "web", "kept", "data")
	h.stop(t)
	folder := func(st *Stack) string { return filepath.Join(h.dir, "stacks", st.hex()) }
	for _, st := range []*Stack{site, noLog} {
		require.NoError(t, os.RemoveAll(folder(st)))
	}
	require.NoError(t, os.RemoveAll(filepath.Join(folder(noImage), "sources")))
	published := filepath.Join(folder(link), "sites", "web", "g1")
	require.NoError(t, os.RemoveAll(published))
	require.NoError(t, os.Symlink(h.dir, published))
	h.byHand(t, "rm", "--force", container)
	h.byHand(t, "image", "rm", "berth/"+noImage.hex()+"-web:i1")
	h.byHand(t, "rm", "--force", built)
	h.byHand(t, "image", "rm", "berth/"+builtAgain.hex()+"-web:i1")
	h.byHand(t, "rm", "--force", withData.ID)
	h.byHand(t, "volume", "rm", withData.Mounts[0].Name)
	h.run(t)
	for st, reason := range map[*Stack]string{
		site:    "service web: the files that it publishes are missing or broken on this host; upload the source again",
		link:    "service web: the files that it publishes are missing or broken on this host; upload the source again",
		noImage: "service web: its source on this host is missing or damaged; upload the source again",
		noData:  "service web: its data is no longer on this host; ask the operator, or upload the source again to begin without data",
	} {
		h.becomes(t, st, "failed")
		require.Equal(t, reason, h.show(t, st, "").reason())
		h.get(t, st.url("web", "/")).refused(t, http.StatusServiceUnavailable)
		require.Equal(t, 1, count(h.events(t, st), "stack.failed"))
	}
	require.Equal(t, "another", h.get(t, other.url("web", "/")).body)
	require.Equal(t, "hello from web", h.get(t, noLog.url("web", "/")).body)
	h.onceRestored(t, other, 1)
	h.onceRestored(t, noLog, 1)
	h.onceRestored(t, builtAgain, 1)
	require.Equal(t, "data", h.file(t, builtAgain, "web", "kept"))
	require.Equal(t, 200, h.get(t, noLog.url("web", "/log?from=0&to=5")).status)
	h.logged(t, noLog, "", "line 4\n")
	require.Equal(t, "mended", h.get(t, h.redeploy(t, site, page("mended"), nil).url("web", "/")).body)
	require.Equal(t, "live", h.redeploy(t, noData, program(t), manifest(programManifest)).Status)
}

// Files that have changed count like missing ones.
func TestStart_FailsOnlyTheStackWhoseFilesAreBroken(t *testing.T) {
	t.Parallel()
	h := start(t)
	two := page("a site").plus(Tree{"sub/more.html": "more"})
	emptied, cut, whole := h.live(t, two, nil), h.live(t, two, nil), h.live(t, two, nil)
	noData := h.live(t, program(t), manifest(programManifest))
	container := h.inspect(t, noData, "web")
	h.stop(t)
	folder := func(st *Stack) string { return filepath.Join(h.dir, "stacks", st.hex(), "sites", "web", "g1") }
	require.NoError(t, os.RemoveAll(filepath.Join(folder(emptied), "index.html")))
	require.NoError(t, os.RemoveAll(filepath.Join(folder(emptied), "sub")))
	require.NoError(t, os.Truncate(filepath.Join(folder(cut), "sub", "more.html"), 0))
	h.stopContainer(t, container.ID)
	require.NoError(t, os.RemoveAll(container.Mounts[0].Source))
	h.run(t)
	const site = "service web: the files that it publishes are missing or broken on this host; upload the source again"
	for st, reason := range map[*Stack]string{
		emptied: site,
		cut:     site,
		noData:  "service web: its image or its data on this host is broken: it could not be started in 5 attempts; upload the source again",
	} {
		h.becomes(t, st, "failed")
		require.Equal(t, reason, h.show(t, st, "").reason())
		h.get(t, st.url("web", "/")).refused(t, http.StatusServiceUnavailable)
		events := h.events(t, st)
		require.Equal(t, 1, count(events, "stack.failed"))
		require.Zero(t, count(events, "service.crashed"))
	}
	h.onceRestored(t, whole, 1)
	require.Equal(t, "more", h.get(t, whole.url("web", "/sub/more")).body)
	require.Equal(t, "mended", h.get(t, h.redeploy(t, emptied, page("mended"), nil).url("web", "/")).body)
}
