package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	h.keeps(t, expired, "image web", "image web:data")
	site := h.live(t, page("the site"), nil)
	var before objects
	var files []string
	eventually(t, "what is made after a deploy is there", func() error {
		before, files = h.objects(t), h.files(t)
		time.Sleep(2 * time.Second)
		if now := h.objects(t); now != before || !slices.Equal(files, h.files(t)) {
			return fmt.Errorf("%+v became %+v", before, now)
		}
		return nil
	})
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
	require.Subset(t, h.has(t, unknown), []string{"container web-g1", "image web:i1", "volume web-data", "network g1"})
	require.NotEqual(t, h.inspect(t, unknown, "web").Config.User, h.inspect(t, st, "web").Config.User)
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	h.forgetStack(st.ID)
	h.stop(t)
	putBack()
	h.run(t)
	require.Equal(t, "hello from web", h.get(t, unknown.url("web", "/")).body)
}
