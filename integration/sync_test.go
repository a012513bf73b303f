package integration

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	sys "golang.org/x/sys/unix"
)

// fiemap is what FS_IOC_FIEMAP of linux/fiemap.h takes, with room for the first
// extent of a file.
type fiemap struct {
	start, length            uint64
	flags, mapped, count, _  uint32
	logical, physical, bytes uint64
	_                        [2]uint64
	extent                   uint32 // flags
	_                        [3]uint32
}

const (
	fiemapRequest = 0xC020660B
	unallocated   = 0x4 // FIEMAP_EXTENT_DELALLOC: the bytes are in memory only
)

// inMemoryOnly reports whether what was written into a file has no place on the
// disk yet; not every file system can say.
func inMemoryOnly(name string) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	ask := fiemap{length: 1 << 30, count: 1}
	if _, _, errno := sys.Syscall(sys.SYS_IOCTL, f.Fd(), fiemapRequest, uintptr(unsafe.Pointer(&ask))); errno != 0 {
		return false, errno
	}
	return ask.mapped > 0 && ask.extent&unallocated != 0, nil
}

// Once a generation is built its source and its sites are on the disk: a power cut
// after the commit takes neither.
func TestSync_SourcesAndSitesAreOnDiskBeforeTheCommit(t *testing.T) {
	t.Parallel()
	h := install(t)
	written := filepath.Join(h.dir, "written")
	require.NoError(t, os.WriteFile(written, make([]byte, 10_000), 0o600))
	if lazy, err := inMemoryOnly(written); err != nil || !lazy {
		lacks(t, "the file system of %s does not tell what it has not written yet (%v); set TMPDIR to a folder on ext4 or XFS", h.dir, err)
	}
	h.run(t)
	tree := page(randomText(10_000)).plus(Tree{"a/b/more.html": randomText(10_000)})
	onDisk := func(st *Stack, folder string, least int) {
		files := 0
		require.NoError(t, filepath.WalkDir(filepath.Join(h.dir, "stacks", st.hex(), folder), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			files++
			lazy, err := inMemoryOnly(name)
			if lazy {
				err = errors.New(name + " is in memory only")
			}
			return err
		}))
		require.GreaterOrEqual(t, files, least)
	}
	built := h.create(t, tree, manifest("services: [{name: web, runtime: node, release: 'echo it is built; sleep 600', start: x}]"))
	h.logged(t, built, "kind=build", "\nit is built\n")
	onDisk(built, "sources", 2)
	plain := h.live(t, tree, nil)
	onDisk(plain, "sites", 1) // a link into the source
	onDisk(plain, "sources", 2)
	packed := h.live(t, tree, manifest("services: [{name: web, runtime: static, build: 'mkdir dist && cp -r index.html a dist', publish: dist}]"))
	onDisk(packed, "sites", 2)
}
