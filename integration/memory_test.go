package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
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

// longNames is an archive whose names and links' targets are just under the 32
// MiB that are allowed. The links lead out, so they cost memory and no disk.
func longNames(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	require.NoError(t, err)
	w := tar.NewWriter(z)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "index.html", Mode: 0o644}))
	const links, name, target = 99_900, 255, 80
	require.Less(t, links*(name+target), 32<<20)
	for i := range links {
		require.NoError(t, w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeSymlink,
			Name:     fmt.Sprintf("%0*d", name, i),
			Linkname: "../" + strings.Repeat("t", target-3),
		}))
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

func TestMemory_ConcurrentUploadsAreBounded(t *testing.T) {
	h := start(t, asShipped, with("BERTH_VALIDATIONS_PER_MINUTE", "10000"))
	body, contentType := form(t, longNames(t), nil)
	require.Equal(t, http.StatusOK, h.validate(t, page("hello"), nil).status)
	before := h.peakMemory(t)
	var uploads sync.WaitGroup
	for range 10 {
		uploads.Go(func() {
			for {
				r := h.attempt(t, http.MethodPost, "/v0/validate", string(body), "Content-Type", contentType)
				if r.status == http.StatusServiceUnavailable && r.header.Get("Retry-After") != "" {
					continue // a slow machine: its turn did not come within a minute
				}
				if r.status != http.StatusOK || !strings.Contains(r.body, `"valid":true`) {
					t.Errorf("status %d: %s", r.status, r.body)
				}
				return
			}
		})
	}
	uploads.Wait()
	grown := h.peakMemory(t) - before
	t.Logf("ten uploads raised the server by %d MB, from %d MB", grown/1e6, before/1e6)
	require.Less(t, grown, int64(600e6))
}
