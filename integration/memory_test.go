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
	pid := h.process.proc.Pid
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

// longLinks is the archive whose tree takes the most memory: just under the 100,000
// entries that are allowed, with the longest names, and just under the 32 MiB of names
// and targets. Links that lead out cost no disk. Package archive measures the trees of
// folders and files, which are smaller.
func longLinks(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	require.NoError(t, err)
	w := tar.NewWriter(z)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "index.html", Mode: 0o644}))
	for i := range 99_900 {
		link := tar.Header{Typeflag: tar.TypeSymlink, Name: fmt.Sprintf("%0255d", i), Linkname: "../" + strings.Repeat("t", 77)}
		require.NoError(t, w.WriteHeader(&link))
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

func TestMemory_ConcurrentUploadsAreBounded(t *testing.T) {
	h := start(t, asShipped, smallDisk(t, "1g,nr_inodes=0"), with("BERTH_DISK_FLOOR", "0"), with("BERTH_VALIDATIONS_PER_MINUTE", "10000"))
	body, contentType := form(t, longLinks(t), nil)
	require.Equal(t, http.StatusOK, h.validate(t, page("hello"), nil).status)
	before := h.peakMemory(t)
	var uploads sync.WaitGroup
	for range 10 {
		uploads.Go(func() { h.validateInTurn(t, string(body), contentType) })
	}
	uploads.Wait()
	grown := h.peakMemory(t) - before
	t.Logf("ten uploads raised the server by %d MB, from %d MB", grown/1e6, before/1e6)
	require.Less(t, grown, int64(600e6))
}

// validateInTurn asks again while a slow machine gives it no turn within a minute.
func (h *Host) validateInTurn(t *testing.T, body, contentType string) {
	t.Helper()
	for {
		r := h.attempt(t, http.MethodPost, "/v0/validate", body, "Content-Type", contentType)
		if r.status == http.StatusServiceUnavailable && r.header.Get("Retry-After") != "" {
			continue
		}
		if r.status != http.StatusOK || !strings.Contains(r.body, `"valid":true`) {
			t.Errorf("status %d: %s", r.status, r.body)
		}
		return
	}
}
