// Package disk says how much room there is.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"syscall"
)

// Space is what is free on a disk for everybody.
type Space struct {
	Dir    string // the folder that was asked about
	Bytes  int64
	Inodes int64
}

// Endless is how much there is of what nobody counts.
const Endless = math.MaxInt64

// Free returns what is free on the disk of a folder. The space of a folder that is not
// on this machine is Endless, and so are the inodes of a file system that does not
// count them.
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
