package stack

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDiskLimit_NamesTheFiguresAndWhatToDo(t *testing.T) {
	now := Now()
	d := Disk{At: now.Add(-20 * time.Second), Data: map[string]int64{"web": 6e6, "api": 1e6}, Images: 3e6, Files: 1e6, Caches: 1e6}
	const says = "the stack takes 12 MB of the disk (data 7.0 MB, images 3.0 MB, source 1.0 MB, files beside the data 0.0 MB, build caches 1.0 MB) and may take 10 MB"
	limit := DiskLimit(10e6)

	err := limit.Check(d, now)
	require.Equal(t, NoRoom, KindOf(err))
	require.ErrorContains(t, err, says+", measured 20s ago, so it takes no deploy; delete data with")
	require.Equal(t, says+": it takes no deploy until it is smaller, and is stopped above 12 MB", limit.Tell(d))
	require.Empty(t, limit.StopReason(d), "1.2 times is not above it")
	require.ErrorContains(t, limit.DataTooLarge(d, "web"), says+", so the data of web may be replaced by at most 6 MB; nothing was replaced")

	d.Caches++
	require.Contains(t, limit.StopReason(d), "stopped at more than 1.2 times its disk space: the stack takes 12 MB")
	require.NoError(t, DiskLimit(12e6+1).Check(d, now))
	require.NoError(t, limit.Check(Disk{}, now), "it was not measured yet")
	for _, none := range []DiskLimit{0, math.MaxInt64} {
		require.NoError(t, none.Check(d, now))
		require.Empty(t, none.StopReason(d))
	}
}

func TestDiskLimit_LeavesRoomForDataThatIsNoLarger(t *testing.T) {
	d := Disk{At: Now(), Data: map[string]int64{"web": 6, "api": 1}, Images: 2}
	require.EqualValues(t, 7, DiskLimit(10).DataRoom(d, "web"))
	require.EqualValues(t, 2, DiskLimit(10).DataRoom(d, "api"))
	require.EqualValues(t, 1, DiskLimit(10).DataRoom(d, "db"))
	require.EqualValues(t, 6, DiskLimit(8).DataRoom(d, "web"), "it is over the limit already")
	require.EqualValues(t, 0, DiskLimit(8).DataRoom(d, "db"))
	require.EqualValues(t, math.MaxInt64, DiskLimit(0).DataRoom(d, "web"))
}

func TestUseData_CountsFromNowOn(t *testing.T) {
	st := New("shop", []Spec{{Name: "web"}}, Now())
	st.UseData("web", 1, 10)
	require.Zero(t, st.Disk, "it was not measured yet")
	before := Disk{At: Now(), Data: map[string]int64{"web": 6, "api": 1}}
	st.Disk = before
	st.UseData("web", 2, 10)
	require.EqualValues(t, 11, st.Disk.Total())
	require.EqualValues(t, 7, before.Total())
	require.Equal(t, map[string]int{"web": 2}, st.DataVolumes)
}
