// Package disk measures free disk space, and what folders take, and waits until files are on the
// disk. It changes nothing there.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"syscall"
)

// Space is the free space of a disk, for all users.
type Space struct {
	Dir    string // the folder that was asked about
	Bytes  int64
	Inodes int64
}

// Endless is an amount that is not limited or not known.
const Endless = math.MaxInt64

// Free returns the free space of a folder's disk. It is Endless for a folder that is
// not on this machine; the inodes of a file system that does not count them are Endless
// too.
func Free(dir string) (Space, error) {
	var stat syscall.Statfs_t
	err := syscall.Statfs(dir, &stat)
	if errors.Is(err, fs.ErrNotExist) {
		return Space{Dir: dir, Bytes: Endless, Inodes: Endless}, nil
	}
	if err != nil {
		return Space{}, fmt.Errorf("free space of %s: %w", dir, err)
	}
	free := Space{Dir: dir, Bytes: int64(stat.Bavail) * stat.Bsize, Inodes: int64(stat.Ffree)}
	if stat.Files == 0 {
		free.Inodes = Endless
	}
	return free, nil
}

// Sync returns once a file, or the names in a folder, would survive a power cut.
func Sync(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
