package integration

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// smallDisk puts the data directory on a disk of its own with so many bytes.
func smallDisk(t *testing.T, size string) Option {
	return func(h *Host) {
		t.Helper()
		require.NoError(t, syscall.Mount("tmpfs", h.dir, "tmpfs", 0, "size="+size))
		t.Cleanup(func() { require.NoError(t, syscall.Unmount(h.dir, syscall.MNT_DETACH)) })
		require.NoError(t, os.WriteFile(filepath.Join(h.dir, "instance"), []byte(h.instance+"\n"), 0o600))
	}
}

// fill takes all the space that a folder's disk has left, in a file that it returns.
func fill(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	require.NoError(t, err)
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err = f.Write(chunk); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			chunk = chunk[:len(chunk)/2]
		}
	}
	require.NoError(t, f.Close())
	return f.Name()
}

func TestDiskFull_OfTheServerRefusesUploads(t *testing.T) {
	t.Parallel()
	h := start(t, smallDisk(t, "24m"), with("BERTH_DISK_FLOOR", "0"))
	site := h.live(t, page("the site"), nil)
	st := h.live(t, program(t), manifest(programManifest))
	h.keeps(t, site)
	h.keeps(t, st, serving(st)...)
	before := len(h.files(t))
	filler := fill(t, h.dir)
	for _, r := range []Reply{
		h.post(t, archive(t, page("more")), nil, ""),
		h.post(t, archive(t, Tree{"large": randomText(1 << 20), "index.html": "x"}), nil, ""),
		h.postDeploy(t, site, page("more"), nil),
		h.postDeploy(t, st, program(t), manifest(programManifest)),
	} {
		require.Contains(t, r.refused(t, http.StatusInsufficientStorage), "the disk of this host is full, so nothing of the request was kept")
	}
	for _, live := range []*Stack{site, st} {
		now := h.show(t, live, "")
		require.Equal(t, "live", now.Status)
		require.Nil(t, now.Deploying)
	}
	require.Equal(t, "the site", h.get(t, site.url("web", "/")).body)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
	require.Len(t, h.files(t), before)

	require.NoError(t, os.Remove(filler))
	require.Equal(t, 2, h.redeploy(t, st, program(t).plus(Tree{"more": ""}), manifest(programManifest)).Generation)
	h.live(t, page("more"), nil)
	h.kill(t)
	db := h.openStore(t)
	all, err := db.All(t.Context())
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Len(t, all, 3, "rows of refused uploads")
	h.run(t)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
}

func TestDiskFull_OfTheEngineFailsTheBuild(t *testing.T) {
	t.Parallel()
	e := startEngine(t, "280m")
	h := start(t, on(e), with("BERTH_DISK_FLOOR", "0"))
	st := h.live(t, perl, manifest(perlManifest))
	writes := func(megabytes string) Fields {
		return manifest(`{services: [{name: web, runtime: node, build: 'head -c ` + megabytes + `M /dev/zero >zeros', start: exec perl server.pl}]}`)
	}
	// More than there is, and more than there is twice: the image needs as much again.
	for megabytes, reason := range map[string]string{
		"1000": "No space left on device",
		"110":  "the disk of the host is full; this is not the fault of your source",
	} {
		failed := h.deploy(t, perl, writes(megabytes))
		require.Equal(t, "failed", failed.Status, megabytes)
		require.Contains(t, failed.reason(), reason)
		h.keeps(t, failed)
		h.says(t, st, "web", "/keep/it", "hello from web, generation 1")
		h.says(t, st, "web", "/kept", "it")
	}
	h.live(t, perl, writes("1"))
	require.Zero(t, count(h.events(t, st), "service.crashed"))
}

// A sparse file takes no space in a container but its full size in an image.
func TestDiskFull_HolesInABuildsFilesAreCountedBeforeItsImageIsMade(t *testing.T) {
	t.Parallel()
	e := startEngine(t, "280m")
	h := start(t, on(e), with("BERTH_DISK_FLOOR", "0"))
	st := h.live(t, perl, manifest(perlManifest))
	// The server sees the disk of the machine, not the engine's small one. Whoever cannot list a
	// folder may still have filled it, and a file may have several names.
	failed := h.deploy(t, perl, manifest(`{services: [{name: web, runtime: node, build: 'mkdir hidden; for i in $(seq 200); do truncate -s 60G hidden/$i; done; chmod 0 hidden; truncate -s 50G hole; ln hole same', start: exec perl server.pl}]}`))
	require.Equal(t, "failed", failed.Status)
	require.Contains(t, failed.reason(), "takes 12339200 MiB, and the disk of the host has room for")
	require.Contains(t, failed.reason(), "/app/hole (51200 MiB, of which 0 MiB are on the disk)")
	require.Contains(t, failed.reason(), "make sparse files in $DATA_DIR when it runs")
	h.keeps(t, failed)
	h.says(t, st, "web", "/keep/it", "hello from web, generation 1")
	h.live(t, perl, manifest(`{services: [{name: web, runtime: node, build: 'truncate -s 10M hole; ! truncate -s 65G longer', start: exec perl server.pl}]}`))
}

// A sparse file takes no space in a volume but its full size in an image.
func TestDiskFull_DataThatAnImageHasNoRoomForStaysInItsVolume(t *testing.T) {
	t.Parallel()
	e := startEngine(t, "280m")
	h := start(t, on(e), short, with("BERTH_DISK_FLOOR", "0"))
	st := h.live(t, perl, manifest(`{services: [{name: web, runtime: node, start: 'truncate -s 10G $DATA_DIR/hole; exec perl server.pl'}]}`))
	h.says(t, st, "web", "/keep/it", "hello from web, generation 1")
	h.extend(t, st, "1s")
	h.becomes(t, st, "expired")
	h.keeps(t, st, "image web", "volume web-data")
	h.putsOff(t, st)

	// Room is checked again after an hour, and that is not logged again.
	h.restart(t)
	long := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(h.putOff(st), long, long))
	h.restart(t)
	eventually(t, "room for the volume is checked again", func() error {
		info, err := os.Stat(h.putOff(st))
		if err == nil && !info.ModTime().After(long) {
			err = errors.New("it is not")
		}
		return err
	})
	h.putsOff(t, st)
	h.keeps(t, st, "image web", "volume web-data")

	key := h.accountCreate(t, "ana@example.com")
	require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "?wait=true").status)
	h.mustLive(t, st)
	h.says(t, st, "web", "/kept", "it")
}

// putOff is the file that says why a snapshot waits.
func (h *Host) putOff(st *Stack) string {
	return filepath.Join(h.dir, "stacks", st.hex(), "web.no-room")
}

// putsOff waits until a snapshot is put off, and asserts that the log says so once.
func (h *Host) putsOff(t *testing.T, st *Stack) {
	t.Helper()
	eventually(t, "the snapshot waits for room", func() error {
		_, err := os.Stat(h.putOff(st))
		return err
	})
	require.Equal(t, 1, strings.Count(h.log.String(), "stays in its volume"), h.log)
	require.NotContains(t, h.log.String(), "not kept as a snapshot")
}
