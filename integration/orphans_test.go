package integration

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// byHand has an operator run docker.
func (h *Host) byHand(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("docker", args...)
	if h.engine != nil {
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+h.engine.host())
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "docker %v: %s", args, out)
}

// names waits until the log names all of these.
func (h *Host) names(t *testing.T, names ...string) {
	t.Helper()
	eventually(t, "the log names them", func() error {
		for _, name := range names {
			if !strings.Contains(h.log.String(), `"`+name+`"`) {
				return errors.New(name + " is missing")
			}
		}
		return nil
	})
}

func TestOrphans_ADatabaseThatKnowsNoneOfTheDataStopsTheStart(t *testing.T) {
	t.Parallel()
	h := start(t, short, with("BERTH_ORPHAN_GRACE", "1ms"))
	key := h.accountCreate(t, "ana@example.com")
	st := h.live(t, program(t), manifest(programManifest))
	h.put(t, st, "web", "kept", "data of web")
	expired := h.live(t, program(t), manifest(programManifest))
	h.put(t, expired, "web", "kept", "data of the expired one")
	h.expire(t, expired)
	h.keeps(t, expired, "image web:g1", "image web:data")
	site := h.live(t, page("the site"), nil)
	before, files := h.objects(t), h.files(t)
	h.stop(t)

	putBack := h.takeDatabase(t)
	for range 2 {
		said := h.refusesToStart(t)
		for _, part := range []string{filepath.Join(h.dir, "berth.db"), "2 found", "--allow-unknown-data=true"} {
			require.Contains(t, said, part)
		}
		require.Equal(t, before, h.objects(t))
		require.Equal(t, files, h.files(t))
	}
	putBack()
	h.run(t)
	require.Equal(t, "data of web", h.file(t, st, "web", "kept"))
	require.Equal(t, "the site", h.get(t, site.url("web", "/")).body)
	require.Equal(t, http.StatusOK, h.claim(t, key, expired.ClaimCode, "?wait=true").status)
	require.Equal(t, "data of the expired one", h.file(t, expired, "web", "kept"))
}

func TestOrphans_OfAnEmptyDatabaseLoseAllButTheirDataOnceTheGraceIsOver(t *testing.T) {
	t.Parallel()
	h, neighbour := start(t, short), start(t)
	stays := neighbour.live(t, program(t), manifest(programManifest))
	st := h.live(t, program(t), manifest(programManifest))
	h.put(t, st, "web", "kept", "data of web")
	expired := h.live(t, program(t), manifest(programManifest))
	h.expire(t, expired)
	h.keeps(t, expired, "image web:g1", "image web:data")
	volume, snapshot := "berth-"+st.hex()+"-web-data", "berth/"+expired.hex()+"-web:data"
	pid := h.inspect(t, st, "web").State.Pid
	h.stop(t)
	h.takeDatabase(t)
	h.env["BERTH_ALLOW_UNKNOWN_DATA"] = "true"
	h.run(t)
	h.names(t, volume, snapshot)
	require.Equal(t, pid, h.inspect(t, st, "web").State.Pid)
	h.keeps(t, st, serving(st)...)
	h.keeps(t, expired, "image web:g1", "image web:data")

	h.stop(t)
	h.env["BERTH_ORPHAN_GRACE"] = "1ms"
	h.run(t)
	h.keeps(t, st, "volume web-data")
	h.keeps(t, expired, "image web:data")
	eventually(t, "the files are removed", func() error {
		for _, id := range []string{st.hex(), expired.hex()} {
			if _, err := os.Stat(filepath.Join(h.dir, "stacks", id)); !errors.Is(err, os.ErrNotExist) {
				return errors.New(id + " is there")
			}
		}
		return nil
	})
	require.Equal(t, "hello from web", neighbour.get(t, stays.url("web", "/")).body)

	h.byHand(t, "volume", "rm", volume)
	h.byHand(t, "image", "rm", snapshot)
	delete(h.env, "BERTH_ALLOW_UNKNOWN_DATA")
	h.restart(t)
	for _, gone := range []*Stack{st, expired} {
		h.forgetStack(gone.ID)
	}
}

// What an older database does not know loses its container, and not its data.
func TestOrphans_OfAnOlderDatabaseKeepTheirData(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_ORPHAN_GRACE", "1ms"))
	old := h.live(t, program(t), manifest(programManifest))
	h.stop(t)
	putBack := h.copyDatabase(t)
	h.run(t)
	st := h.live(t, program(t), manifest(programManifest))
	h.stop(t)
	putBack()
	h.run(t)
	require.Equal(t, "hello from web", h.get(t, old.url("web", "/")).body)
	h.names(t, "berth-"+st.hex()+"-web-data")
	h.keeps(t, st, "volume web-data")
	h.keeps(t, old, serving(old)...)
	h.byHand(t, "volume", "rm", "berth-"+st.hex()+"-web-data")
	h.forgetStack(st.ID)
}

// An older database counts on from its own last stack, and the next one must get
// neither the network nor the user of one that it does not know and that still runs.
func TestOrphans_OfAnOlderDatabaseLeaveRoomForNewStacks(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_ALLOW_UNKNOWN_DATA", "true"))
	h.stop(t)
	putOld := h.copyDatabase(t)
	h.run(t)
	unknown := h.live(t, program(t), manifest(programManifest))
	h.stop(t)
	putBack := h.takeDatabase(t)
	putOld()
	h.run(t)
	st := h.live(t, program(t), manifest(programManifest))
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
	h.keeps(t, unknown, serving(unknown)...)
	require.NotEqual(t, h.inspect(t, unknown, "web").Config.User, h.inspect(t, st, "web").Config.User)
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	h.forgetStack(st.ID)
	h.stop(t)
	putBack()
	h.run(t)
	require.Equal(t, "hello from web", h.get(t, unknown.url("web", "/")).body)
}

// An older row does not explain the generations that were deployed after it. Its
// stack fails, since what it served is gone, and loses nothing of them.
func TestOrphans_OfAnOlderRowStayForTheGrace(t *testing.T) {
	t.Parallel()
	h := start(t)
	st, site := h.live(t, program(t), manifest(programManifest)), h.live(t, page("one"), nil)
	late := h.broken(t, program(t), manifest(`services: [{name: web, runtime: node, build: exit 1, start: x}]`))
	h.stop(t)
	putOld := h.copyDatabase(t)
	h.run(t)
	for _, text := range []string{"two", "three"} {
		h.redeploy(t, site, page(text), nil)
		for _, s := range []*Stack{st, late} {
			s.Generation = h.redeploy(t, s, program(t).plus(Tree{"more": text}), manifest(programManifest)).Generation
		}
	}
	h.put(t, st, "web", "kept", "data of web")
	h.keeps(t, st, serving(st)...)
	h.keeps(t, late, serving(late)...)
	pid := h.inspect(t, st, "web").State.Pid
	h.stop(t)
	putNew := h.takeDatabase(t)
	putOld()
	h.run(t)
	published := filepath.Join(h.dir, "stacks", site.hex(), "sites", "web", "g3")
	h.names(t, "berth-"+st.hex()+"-web-g3", "berth/"+st.hex()+"-web:g3", "berth/"+late.hex()+"-web:g3", published)
	for _, s := range []*Stack{st, site, late} {
		h.becomes(t, s, "failed")
	}
	h.keeps(t, st, serving(st)...)
	h.keeps(t, late, serving(late)...)
	require.FileExists(t, filepath.Join(published, "index.html"))

	h.stop(t)
	putNew()
	h.run(t)
	require.Equal(t, pid, h.inspect(t, st, "web").State.Pid)
	require.Equal(t, "data of web", h.file(t, st, "web", "kept"))
	require.Equal(t, "three", h.get(t, site.url("web", "/")).body)
	require.Equal(t, "hello from web", h.get(t, late.url("web", "/")).body)
}

// Once the grace is over they go, and before that where a deploy takes their number.
func TestOrphans_OfAnOlderRowMakeRoom(t *testing.T) {
	t.Parallel()
	h := start(t)
	st, site := h.live(t, program(t), manifest(programManifest)), h.live(t, page("one"), nil)
	h.put(t, st, "web", "kept", "data of web")
	h.stop(t)
	putOld := h.copyDatabase(t)
	h.run(t)
	for _, text := range []string{"two", "three"} {
		h.redeploy(t, st, program(t).plus(Tree{"more": text}), manifest(programManifest))
		h.redeploy(t, site, page(text).plus(Tree{"late.html": "late"}), nil)
	}
	newest := []string{"container web-g3", "image web:g3", "volume web-data", "network g3"}
	h.keeps(t, st, newest...)
	h.stop(t)
	putOld()
	h.run(t)
	h.becomes(t, site, "failed")
	for _, text := range []string{"zwei", "drei"} {
		h.redeploy(t, site, page(text), nil)
		require.Equal(t, text, h.get(t, site.url("web", "/")).body)
		require.Equal(t, text, h.get(t, site.url("web", "/late")).body, "of what is deployed now")
	}
	h.becomes(t, st, "failed")
	h.keeps(t, st, newest...)
	h.stop(t)
	h.env["BERTH_ORPHAN_GRACE"] = "1ms"
	h.run(t)
	h.keeps(t, st, "volume web-data")
	h.redeploy(t, st, program(t), manifest(programManifest))
	require.Equal(t, "data of web", h.file(t, st, "web", "kept"))
}

// A stack that the database knows as deleted goes at once, its data included.
func TestOrphans_OfADeletedStackGoAtOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	gone := h.live(t, program(t), manifest(programManifest))
	require.Equal(t, http.StatusOK, h.delete(t, gone).status)
	h.forgetStack(gone.ID)
	h.stop(t)
	there := foreign(t, "berth-"+gone.hex()+"-web-data", map[string]string{labelInstance: h.instance, "berth.stack": gone.ID})
	require.NoError(t, os.MkdirAll(filepath.Join(h.dir, "stacks", gone.hex(), "logs"), 0o700))
	h.run(t)
	require.Zero(t, there())
	require.NoDirExists(t, filepath.Join(h.dir, "stacks", gone.hex()))
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
}
