package datadir

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/disk"
)

// syncsAtOnce is how many files are synced in parallel: a file system combines the
// waiting ones in one write of its journal.
const syncsAtOnce = 64

// Sync returns once a folder in the data directory is on the disk, with everything below
// it, so that a row may refer to it.
func (d Dir) Sync(ctx context.Context, dir string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(syncsAtOnce)
	group.Go(func() error { return d.SyncName(dir) })
	seen := map[uint64]bool{} // inodes of files with several names
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		if entry.IsDir() || entry.Type().IsRegular() && isNew(entry, seen) {
			group.Go(func() error { return disk.Sync(name) })
		}
		return nil
	})
	if err := cmp.Or(group.Wait(), err); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// SyncName returns once the name of a folder or link in the data directory is on the disk,
// but not what is in it.
func (d Dir) SyncName(dir string) error {
	for up := filepath.Dir(dir); up != string(d); up = filepath.Dir(up) {
		if err := disk.Sync(up); err != nil {
			return fmt.Errorf("sync %s: %w", up, err)
		}
	}
	return nil
}

// isNew reports whether a file has not been seen under another name, and records it.
func isNew(d fs.DirEntry, seen map[uint64]bool) bool {
	info, err := d.Info()
	if err != nil {
		return true // whoever opens it gets the error
	}
	file := info.Sys().(*syscall.Stat_t)
	known := seen[file.Ino]
	if file.Nlink > 1 {
		seen[file.Ino] = true
	}
	return !known
}
