package docker

import (
	"testing"
	"time"

	"github.com/docker/docker/api/types/system"
	"github.com/stretchr/testify/require"
)

func TestDescribe_SaysWhatOperatorsWantToKnow(t *testing.T) {
	b := testBench(t)
	d, err := b.engine.Describe(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, d.Version)
	require.NotEmpty(t, d.API)
	require.NotEmpty(t, d.Driver)
	require.WithinDuration(t, time.Now(), d.Time, time.Minute)
}

func TestStorage_FindsFileSystemsWithoutTypes(t *testing.T) {
	filesystem, none := storage(system.Info{DriverStatus: [][2]string{{"Backing Filesystem", "xfs"}, {"Supports d_type", "false"}}})
	require.Equal(t, "xfs", filesystem)
	require.True(t, none)
	filesystem, none = storage(system.Info{})
	require.Empty(t, filesystem)
	require.False(t, none)
}
