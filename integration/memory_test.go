package integration

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// peakMemory is the most memory that the server has had so far, in bytes.
func (h *Host) peakMemory(t *testing.T) int64 {
	t.Helper()
	h.mu.Lock()
	pid := h.process.cmd.Process.Pid
	h.mu.Unlock()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			require.NoError(t, err)
			return n << 10
		}
	}
	t.Fatal("the kernel does not tell VmHWM")
	return 0
}
