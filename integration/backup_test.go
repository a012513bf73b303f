package integration

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/store/postgrestest"
)

// twin is an installation without a server, whose data directory is empty and whose address is
// that of a server that is lost.
func (h *Host) twin(t *testing.T, opts ...Option) *Host {
	t.Helper()
	next := install(t, append(opts, brief)...)
	require.NoError(t, os.Remove(filepath.Join(next.dir, "instance")))
	next.port, next.instance = h.port, h.instance
	for _, name := range []string{"BERTH_LISTEN", "BERTH_BASE_URL"} {
		next.env[name] = h.env[name]
	}
	return next
}

// takesOver runs a restored server with the stacks of the lost one, and waits until it has brought
// back those that are live.
func (h *Host) takesOver(t *testing.T, stacks ...*Stack) {
	t.Helper()
	for _, st := range stacks {
		h.adoptStack(st)
	}
	h.run(t)
	for _, st := range stacks {
		if h.show(t, st, "").Status == "live" {
			h.onceRestored(t, st, 1)
		}
	}
}

// backedUp backs the server up and returns the path.
func (h *Host) backedUp(t *testing.T, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	_, err := h.berthd(t, "", append([]string{"backup", path}, args...)...)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.Empty(t, leftBeside(t, path))
	return path
}

// leftBeside returns the names of what is beside a file.
func leftBeside(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	for _, entry := range entries {
		if entry.Name() != filepath.Base(path) {
			names = append(names, entry.Name())
		}
	}
	return names
}

// governed returns the accounts and the bans.
func (h *Host) governed(t *testing.T) (all []string) {
	t.Helper()
	for _, command := range [][]string{{"accounts", "list"}, {"ban", "--list"}} {
		out, err := h.berthd(t, "", append(command, "--json")...)
		require.NoError(t, err)
		all = append(all, out)
	}
	return all
}

// withPassphrase returns a file with a passphrase.
func withPassphrase(t *testing.T, phrase string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "phrase")
	require.NoError(t, os.WriteFile(path, []byte(phrase+"\n"), 0o600))
	return path
}

// builtManifest is of a service whose image a build makes.
const builtManifest = `{name: built, services: [{name: web, runtime: node, install: echo installed > installed.txt, build: cat installed.txt > built.txt, start: node server.js}]}`

// A machine is lost, and another one with an engine of its own takes its place.
func TestBackup_IsRestoredOnAnotherEngine(t *testing.T) {
	t.Parallel()
	h := start(t, brief)
	key := h.accountCreate(t, "ana@example.com")
	site := h.live(t, page("the site"), nil)
	h.redeploy(t, site, page("the second site"), nil)
	plain := h.deployAs(t, key, program(t), manifest(programManifest))
	h.put(t, plain, "web", "kept", "in the volume")
	built := h.live(t, program(t), manifest(builtManifest))
	h.put(t, built, "web", "kept", "beside a build")
	databases := h.live(t, packed(t), manifest(packedManifest))
	for _, path := range []string{"/pg/one", "/redis/one"} {
		require.Equal(t, http.StatusOK, h.get(t, databases.url("web", path)).status)
	}
	expired := h.live(t, program(t), manifest(programManifest))
	h.put(t, expired, "web", "kept", "since the expiry")
	h.expire(t, expired)
	failed := h.deployAs(t, key, program(t), manifest(programManifest))
	h.put(t, failed, "web", "kept", "of a stopped one")
	_, err := h.berthd(t, "", "stacks", "stop", failed.ID, "--reason", "it mines coins")
	require.NoError(t, err)
	all := []*Stack{site, plain, built, databases, expired, failed}
	_, err = h.berthd(t, "", "ban", "203.0.113.0/24")
	require.NoError(t, err)
	events, shown := map[string][]Event{}, map[string]*Stack{}
	for _, st := range all {
		events[st.ID], shown[st.ID] = h.events(t, st), h.show(t, st, "")
	}
	governed := h.governed(t)
	phrase := withPassphrase(t, "correct horse battery staple")
	backup := h.backedUp(t, "--passphrase-file", phrase)
	require.Equal(t, "in the volume", h.file(t, plain, "web", "kept"), "a stack is still paused")
	h.kill(t)

	e := startEngine(t, "")
	e.take(t, "node", "postgres", "valkey")
	next := h.twin(t, on(e))
	_, err = next.berthd(t, "", "restore", backup)
	require.ErrorContains(t, err, "--passphrase-file")
	_, err = next.berthd(t, "", "restore", backup, "--passphrase-file", withPassphrase(t, "another"))
	require.ErrorContains(t, err, "another passphrase")
	require.NoError(t, os.WriteFile(filepath.Join(next.dir, "mine"), nil, 0o600))
	_, err = next.berthd(t, "", "restore", backup, "--passphrase-file", phrase)
	require.ErrorContains(t, err, "not empty")
	require.NoError(t, os.Remove(filepath.Join(next.dir, "mine")))
	_, err = next.berthd(t, "", "restore", backup, "--passphrase-file", phrase)
	require.NoError(t, err)
	next.takesOver(t, all...)

	require.Equal(t, "the second site", next.get(t, site.url("web", "/")).body)
	for st, text := range map[*Stack]string{plain: "in the volume", built: "beside a build"} {
		require.Equal(t, text, next.file(t, st, "web", "kept"))
	}
	require.Equal(t, "installed\n", next.prints(t, built, "cat built.txt"))
	next.wrote(t, databases, "one")
	require.Equal(t, map[string]bool{"rolsuper": false, "owns": true}, of[map[string]bool](t, next, databases, "/role"))
	require.Contains(t, next.show(t, failed, "").reason(), "it mines coins")
	failed.ManageToken = key
	eventually(t, "the data of a failed stack is back", func() error {
		if r := next.getAs(t, key, dataPath(failed, "web")); r.status != http.StatusOK {
			return fmt.Errorf("it answers %s", r)
		}
		return nil
	})
	require.Equal(t, "of a stopped one", next.pullData(t, failed, "web", "")["kept"])
	require.Equal(t, governed, next.governed(t))
	for _, st := range all {
		was := shown[st.ID]
		was.Services = nil // services have new processes
		now := next.show(t, st, "")
		now.Services, now.Role, now.ManageToken = nil, was.Role, was.ManageToken
		require.Equal(t, was, now)
	}
	for _, st := range all {
		now := next.events(t, st)
		require.Equal(t, events[st.ID], now[:len(events[st.ID])])
		for _, more := range now[len(events[st.ID]):] {
			require.Contains(t, []string{"stack.restored", "service.ready", "service.restarted"}, more.Type)
		}
	}
	require.Equal(t, http.StatusOK, next.claim(t, key, expired.ClaimCode, "?wait=true").status)
	require.Equal(t, "since the expiry", next.file(t, expired, "web", "kept"))
	next.redeploy(t, failed, program(t), manifest(programManifest))
	require.Equal(t, "of a stopped one", next.file(t, failed, "web", "kept"))
	next.restart(t)
	require.Equal(t, "in the volume", next.file(t, plain, "web", "kept"))
	next.wrote(t, databases, "one")
	left, err := filepath.Glob(filepath.Join(next.dir, "stacks", "*", "backup", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// With images nothing is built, and a folder needs the key that was kept apart.
func TestBackup_OfPlainFilesHasImages(t *testing.T) {
	t.Parallel()
	h := start(t)
	built := h.live(t, program(t), manifest(builtManifest))
	h.put(t, built, "web", "kept", "beside a build")
	dir := filepath.Join(t.TempDir(), "backup")
	for range 2 {
		_, err := h.berthd(t, "", "backup", "--dir", dir, "--images")
		require.NoError(t, err)
	}
	require.NoFileExists(t, filepath.Join(dir, "dir", "key"))
	tar := filepath.Join(dir, "dir", "stacks", built.hex(), "backup", "web.tar")
	before, err := os.Stat(tar)
	require.NoError(t, err)
	_, err = h.berthd(t, "", "backup", "--dir", dir, "--images")
	require.NoError(t, err)
	after, err := os.Stat(tar)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "what has not changed was written again")
	key := filepath.Join(t.TempDir(), "key")
	text, err := os.ReadFile(filepath.Join(h.dir, "key"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, text, 0o600))
	builds := h.logs(t, built, "kind=build")
	image := h.inspect(t, built, "web").Image

	h.kill(t)
	_, err = h.berthd(t, "", "restore", dir, "--key", key, "--data-dir", t.TempDir())
	require.ErrorContains(t, err, "the engine still has what the installation of the backup made")

	next := h.twin(t, on(startEngine(t, "")))
	_, err = next.berthd(t, "", "restore", dir)
	require.ErrorContains(t, err, "--key")
	other := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(other, []byte(strings.Repeat("k", 32)), 0o600))
	_, err = next.berthd(t, "", "restore", dir, "--key", other)
	require.ErrorContains(t, err, "is not the key")
	damaged := filepath.Join(dir, "dir", "stacks", built.hex(), "backup", "web.tar")
	require.NoError(t, flip(damaged))
	_, err = next.berthd(t, "", "restore", dir, "--key", key)
	require.ErrorContains(t, err, "was changed")
	require.NoError(t, flip(damaged))
	names, err := os.ReadDir(next.dir)
	require.NoError(t, err)
	require.Empty(t, names, "a restore that was refused has written something")
	_, err = next.berthd(t, "", "restore", dir, "--key", key)
	require.NoError(t, err)
	next.takesOver(t, built)
	require.Equal(t, "beside a build", next.file(t, built, "web", "kept"))
	require.Equal(t, builds, next.logs(t, built, "kind=build"))
	require.Equal(t, image, next.inspect(t, built, "web").Image)
}

// The key and the database go where the settings say, and a restore that was killed is begun
// again.
func TestRestore_PutsKeyAndDatabaseWhereTheyBelong(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("the site"), nil)
	built := h.live(t, program(t), manifest(builtManifest))
	mine, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	identity := filepath.Join(t.TempDir(), "key.txt")
	require.NoError(t, os.WriteFile(identity, []byte(mine.String()+"\n"), 0o600))
	private := filepath.Join("acme", "certificates", "private.key")
	require.NoError(t, os.MkdirAll(filepath.Join(h.dir, filepath.Dir(private)), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, private), []byte("secret"), 0o600))
	backup := h.backedUp(t, "--recipient", mine.Recipient().String(), "--images")
	h.kill(t)

	away := t.TempDir()
	e := startEngine(t, "")
	database, key := filepath.Join(away, "state", "berth.db"), filepath.Join(away, "secrets", "key")
	next := h.twin(t, on(e), with("BERTH_DATABASE_URL", "sqlite://"+database), with("BERTH_KEY_FILE", key))
	for _, missing := range []string{"state", "secrets"} {
		_, err := next.berthd(t, "", "restore", backup, "--identity", identity)
		require.ErrorContains(t, err, "there is no folder "+filepath.Join(away, missing))
		require.NoError(t, os.Mkdir(filepath.Join(away, missing), 0o700))
	}
	_, err = next.berthd(t, "", "restore", backup, "--identity", identity)
	require.NoError(t, err)
	_, err = next.berthd(t, "", "restore", backup, "--identity", identity)
	require.ErrorContains(t, err, "is not empty")
	require.NoError(t, os.WriteFile(filepath.Join(next.dir, "restoring"), nil, 0o600)) // as if it had been killed
	require.NoError(t, os.Remove(database))
	require.Contains(t, next.refusesToStart(t), "was cut off")
	_, err = next.berthd(t, "", "restore", backup, "--identity", identity)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(next.dir, private))
	require.Empty(t, leftBeside(t, database))
	require.Empty(t, leftBeside(t, key))
	for _, name := range []string{"key", "berth.db", "restoring"} {
		require.NoFileExists(t, filepath.Join(next.dir, name))
	}
	next.takesOver(t, st, built)
	require.Equal(t, "the site", next.get(t, st.url("web", "/")).body)
	require.Equal(t, "hello from web", next.get(t, built.url("web", "/")).body)
}

// A database of PostgreSQL is backed up by its own program, and the rest goes with it.
func TestBackup_LeavesThePostgreSQLDatabaseOut(t *testing.T) {
	t.Parallel()
	h := start(t, onPostgres(t, postgrestest.Shared(t)))
	st := h.live(t, program(t), manifest(programManifest))
	h.put(t, st, "web", "kept", "in the volume")
	phrase := withPassphrase(t, "correct horse")
	backup := h.backedUp(t, "--passphrase-file", phrase)
	h.kill(t)
	h.forgetStack(st.ID)
	removeObjects(h.docker, h.instance)

	next := h.twin(t, with("BERTH_DATABASE_URL", h.env["BERTH_DATABASE_URL"]))
	_, err := next.berthd(t, "", "restore", backup, "--passphrase-file", phrase)
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(next.dir, "berth.db"))
	next.takesOver(t, st)
	require.Equal(t, "in the volume", next.file(t, st, "web", "kept"))
	next.remove(t, st)
	next.stop(t)
}

// flip changes a byte in the middle of a file, or changes it back.
func flip(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text[len(text)/2] ^= 1
	return os.WriteFile(path, text, 0o600)
}

// A backup that a killed server could not end leaves nothing, and no stack paused.
func TestBackup_IsCutOffByTheServersDeath(t *testing.T) {
	t.Parallel()
	h := install(t)
	h.failAt("data-paused")
	h.run(t)
	st := h.live(t, program(t), manifest(programManifest))
	p := h.running()
	path := filepath.Join(t.TempDir(), "backup")
	_, err := h.berthd(t, "", "backup", path)
	require.Error(t, err)
	_ = p.wait(t)
	require.NoFileExists(t, path)
	require.Empty(t, leftBeside(t, path))
	_, err = h.berthd(t, "", "backup", path)
	require.ErrorContains(t, err, "no berthd is running on "+h.dir)
	h.failAt("")
	h.run(t)
	h.onceRestored(t, st, 1)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
	h.backedUp(t)
}

// A server that stops does not wait for whoever reads a backup, who is told.
func TestBackup_IsCutOffByTheServersStop(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	h.put(t, st, "web", "kept", strings.Repeat("more than pipes hold\n", 1<<19))
	cmd := h.command(t, "backup", "-")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 1<<10))
	require.NoError(t, err)
	p := h.signal(t, syscall.SIGTERM)
	_, err = io.Copy(io.Discard, out)
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.NoError(t, p.wait(t))
	require.NotContains(t, h.log.String(), "commands of an operator cut", "the server waited for it")
	require.Contains(t, said.String(), "the server is stopping, and the backup is not complete; ")
	require.Equal(t, 1, strings.Count(said.String(), "\n"), said.String())
}

func TestBackup_GoesToTheStandardOutput(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	h.put(t, st, "web", "kept", "data")
	private := filepath.Join(h.dir, "acme", "private.key")
	require.NoError(t, os.MkdirAll(filepath.Dir(private), 0o700))
	require.NoError(t, os.WriteFile(private, []byte("secret"), 0o600))
	out, err := h.berthd(t, "", "backup", "-")
	require.NoError(t, err)
	require.Contains(t, out, "manifest.json")
	require.Contains(t, out, "dir/stacks/"+st.hex()+"/backup/web.tar")
	require.NotContains(t, out, "dir/key")
	require.NotContains(t, out, "private.key", "a backup that is not encrypted has keys of certificates")
	for _, args := range [][]string{{"backup"}, {"backup", "--dir", t.TempDir(), "x"}, {"backup", t.TempDir()}, {"backup", filepath.Join(h.dir, "b")}, {"backup", "--dir", filepath.Join(h.dir, "b", "c")}, {"backup", "/nowhere/b"}, {"backup", "x", "--recipient", "me"}, {"restore", "-"}, {"restore", "nowhere"}, {"restore", "/dev/null"}} {
		_, err := h.berthd(t, "", args...)
		require.Error(t, err, "%v", args)
		require.Equal(t, 1, strings.Count(err.Error()+"\n", "\n"), err.Error())
	}
}
