package docker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMaskedPaths_HaveTheHeatOfEveryProcessor(t *testing.T) {
	cpus := t.TempDir()
	for _, dir := range []string{"cpu0/thermal_throttle", "cpu1/cache", "cpu17/thermal_throttle", "cpufreq/thermal_throttle"} {
		require.NoError(t, os.MkdirAll(filepath.Join(cpus, dir), 0o700))
	}
	assert.Equal(t, []string{cpus + "/cpu0/thermal_throttle", cpus + "/cpu17/thermal_throttle"}, throttles(cpus))
	assert.Subset(t, maskedPaths(), throttles("/sys/devices/system/cpu"), "this machine's own")
}
