package supervisor

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// room is how many bytes of data a stack of these tests may have.
const room = 1000

// weighed returns a live stack without data, after a start of a server that limits all stacks to
// what this one takes and room.
func (w *world) weighed() *stack.Stack {
	w.t.Helper()
	st := w.long(service("web"))
	synctest.Wait()
	st = w.get(st.ID)
	require.Positive(w.t, st.Disk.Files)
	w.limit(st.Disk.Total() + room)
	return st
}

// limit starts a server that limits what stacks take.
func (w *world) limit(bytes int64) {
	w.t.Helper()
	w.stopServer()
	w.configure = func(c *Config) { c.MaxData, c.DiskLimit = 1<<20, stack.DiskLimit(bytes) }
	w.startServer()
}

// writes makes the program of a stack write so many bytes of data.
func (w *world) writes(bytes int) { w.writesTo(stack.DataDir[1:]+"/kept", bytes) }

func (w *world) writesTo(name string, bytes int) {
	w.t.Helper()
	synctest.Wait()
	require.NoError(w.t, w.driver.CopyIn(w.t.Context(), w.sup.Serving()[0].Container, w.tarOf(name, bytes)))
}

func (w *world) tarOf(name string, size int) *bytes.Buffer {
	w.t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	require.NoError(w.t, out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(size)}))
	_, err := out.Write(bytes.Repeat([]byte("x"), size))
	require.NoError(w.t, err)
	require.NoError(w.t, out.Close())
	return &b
}

// sends replaces the data of a stack by so many bytes.
func (w *world) sends(st *stack.Stack, bytes int) error {
	return w.replaceData(st, strings.Repeat("x", bytes))
}

// redeploys asks for the next generation of a stack.
func (w *world) redeploys(st *stack.Stack) error {
	w.t.Helper()
	return w.supersede(st.ID, service("web"))
}

// swept waits until everything has been measured again.
func swept() {
	time.Sleep(2 * leftoverGrace)
	synctest.Wait()
}

func (w *world) noRoom(err error, says string) {
	w.t.Helper()
	require.Equal(w.t, stack.NoRoom, stack.KindOf(err), "%v", err)
	require.ErrorContains(w.t, err, says)
}

func TestDisk_IsMeasuredNowAndThen(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		w.writes(800)
		swept()
		require.Equal(t, map[string]int64{"web": 800}, w.get(st.ID).Disk.Data)
		bytes, at, ok := w.sup.DataSize(st.ID, "web")
		require.True(t, ok)
		require.EqualValues(t, 800, bytes)
		require.WithinRange(t, at, time.Now().Add(-2*leftoverGrace), time.Now())

		// What little has changed is not recorded before a while is over.
		before := w.get(st.ID).Disk
		w.writes(801)
		swept()
		require.Equal(t, before, w.get(st.ID).Disk)
		time.Sleep(recordAgain)
		require.Equal(t, map[string]int64{"web": 801}, w.get(st.ID).Disk.Data)
	})
}

func TestDisk_OfAnExpiredStackHasItsSnapshot(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.becomes(w.createFor(time.Minute, service("web")).ID, stack.Live)
		w.writes(800)
		w.awaitEvent(st.ID, "stack.expired", 1)
		swept()
		require.EqualValues(t, 800, w.get(st.ID).Disk.AllData())
	})
}

func TestDisk_OverTheLimitThereAreNoDeploysAndNoLargerData(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.weighed()
		w.noRoom(w.sends(st, room+1), "the data of web may be replaced by at most")
		require.NoError(t, w.sends(st, room))
		require.NoError(t, w.redeploys(st), "it takes as much as it may")
		w.serves(st.ID, 2)
		require.Empty(t, w.db.told)

		w.writes(room + 100)
		swept()
		require.Len(t, w.db.told, 1)
		before := w.events(st.ID)
		w.noRoom(w.redeploys(st), "berth data push")
		_, err := w.sup.Rebuild(w.t.Context(), st.ID)
		w.noRoom(err, "so it takes no deploy")
		_, err = w.sup.Configure(w.t.Context(), st.ID, stack.EnvChange{Values: map[string]map[string]*string{"web": {"KEY": new(string)}}}, nil)
		w.noRoom(err, "so it takes no deploy")
		w.noRoom(w.sends(st, room+101), "nothing was replaced")
		require.Equal(t, before, w.events(st.ID))
		require.Len(t, w.volume(st, 1)["kept"], room+100)
		require.True(t, w.answers(st, "web"))

		// Less data is taken, even if it is still too much, and opens deploys again.
		require.NoError(t, w.sends(st, room+50))
		w.noRoom(w.redeploys(st), "so it takes no deploy")
		require.NoError(t, w.sends(st, room-50))
		require.NoError(t, w.redeploys(st))
		w.serves(st.ID, 3)

		// What a program has just deleted counts.
		w.writes(room + 100)
		swept()
		w.writes(1)
		require.NoError(t, w.redeploys(st))
		w.serves(st.ID, 4)
	})
}

// What a program writes beside its data counts as well, until the program is replaced.
func TestDisk_HasWhatIsWrittenBesideTheData(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.weighed()
		before := w.get(st.ID).Disk
		w.writesTo("tmp/big", room+100)
		swept()
		require.Equal(t, before.Layers+room+100, w.get(st.ID).Disk.Layers)
		require.Len(t, w.db.told, 1)
		w.noRoom(w.redeploys(st), fmt.Sprintf("files beside the data %.1f MB", float64(before.Layers+room+100)/1e6))
		w.writesTo("tmp/big", 0)
		require.NoError(t, w.redeploys(st))
		w.serves(st.ID, 2)

		w.writesTo("tmp/big", 2*int(w.sup.cfg.DiskLimit))
		st = w.becomes(st.ID, stack.Failed)
		require.Contains(t, st.Error, "stopped at more than 1.2 times its disk space")
		swept()
		require.Zero(t, w.get(st.ID).Disk.Layers)
	})
}

// Less data than there is now is taken, whatever was measured last.
func TestDisk_LessDataThanThereIsNowIsTaken(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.weighed()
		w.writes(room / 2)
		swept()
		w.writes(room + 100)
		require.NoError(t, w.sends(st, room+50))
		w.writes(2 * int(w.sup.cfg.DiskLimit))
		require.NoError(t, w.sends(st, room/2), "it is the way out")
		swept()
		require.Equal(t, stack.Live, w.get(st.ID).Status)
	})
}

func TestDisk_FarOverTheLimitTheStackIsStopped(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.weighed()
		limit := int(w.sup.cfg.DiskLimit)
		w.writes(limit * 6 / 5)
		st = w.becomes(st.ID, stack.Failed)
		require.Contains(t, st.Error, "stopped at more than 1.2 times its disk space: the stack takes ")
		require.Equal(t, 1, count(w.events(st.ID), "stack.failed"))
		swept()
		require.Empty(t, w.there(st).Containers)
		require.Equal(t, 1, count(w.events(st.ID), "stack.failed"))
		require.Len(t, w.volume(st, 0)["kept"], limit*6/5)

		// It stays so over a restart, until there is less data.
		w.stopServer()
		w.startServer()
		swept()
		w.noRoom(w.redeploys(st), "so it takes no deploy")
		var out bytes.Buffer
		require.NoError(t, w.sup.ReadData(w.t.Context(), st.ID, "web", false, &out))
		require.NoError(t, w.sends(st, 10))
		require.NoError(t, w.redeploys(st))
		w.serves(st.ID, 2)
		require.Len(t, w.volume(st, 1)["kept"], 10)
	})
}

func TestDisk_BuildCachesGoFirst(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		found := w.cached()
		st := w.long(built("web"))
		synctest.Wait()
		st = w.get(st.ID)
		require.Positive(t, st.Disk.Caches)
		w.limit(st.Disk.Total() - 1)
		swept()
		require.Zero(t, w.get(st.ID).Disk.Caches)
		require.NoError(t, w.supersede(st.ID, built("web")))
		w.serves(st.ID, 2)
		require.Empty(t, found())
	})
}
