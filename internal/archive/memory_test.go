package archive

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// longNames are the archives whose trees take the most memory: n entries and folders
// with the longest names, each of its own. Each entry may take most bytes.
var longNames = map[string]struct {
	items func(n int) []item
	most  uint64
}{
	"links": {func(n int) (all []item) {
		for i := range n {
			all = append(all, symlinkItem(fmt.Sprintf("%0255d", i), "../"+strings.Repeat("t", 77)))
		}
		return all
	}, 600},
	"folders": {func(n int) (all []item) {
		below := strings.Repeat("/"+strings.Repeat("d", 249), 15)
		for i := range n / 16 {
			all = append(all, folderItem(fmt.Sprintf("%0249d%s/", i, below)))
		}
		return all
	}, 500},
	"files": {func(n int) (all []item) {
		for i := range n {
			all = append(all, fileItem(fmt.Sprintf("%0255d", i), ""))
		}
		return all
	}, 500},
}

// The trees of several uploads, each of a hundred thousand entries, are in memory at
// once. TestMemory_ConcurrentUploadsAreBounded of package integration measures a server
// that unpacks the links.
func TestUnpack_HoldsLittleMemoryForEachEntry(t *testing.T) {
	const entries = 4_000
	for name, c := range longNames {
		t.Run(name, func(t *testing.T) {
			packed := tarOf(t, append([]item{fileItem("index.html", "x")}, c.items(entries)...)...)
			before, steps, held := inUse(), 0, uint64(0)
			limits := wide
			limits.Room = func() error {
				if steps++; steps%50 == 0 {
					held = max(held, inUse()-before)
				}
				return nil
			}
			if _, err := Unpack(t.Context(), bytes.NewReader(packed), t.TempDir(), limits); err != nil {
				t.Fatal(err)
			}
			if each := held / entries; each < 255 || each > c.most {
				t.Errorf("%d bytes for each entry with its name of 255, want at most %d", each, c.most)
			}
		})
	}
}

// inUse returns the bytes of the heap that are reachable.
func inUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
