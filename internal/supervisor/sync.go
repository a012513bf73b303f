package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// syncsAtOnce is how many files are synced side by side: a file system makes
// one write of its journal for many that wait.
const syncsAtOnce = 64

// syncKept returns once a folder of a stack is on the disk with everything below
// it, so that a row may name it: a power cut takes neither.
func (s *Supervisor) syncKept(dir string) error {
	var group errgroup.Group
	group.SetLimit(syncsAtOnce)
	for up := filepath.Dir(dir); up != s.Dir; up = filepath.Dir(up) {
		group.Go(func() error { return syncFile(up) })
	}
	names := map[uint64]bool{} // inodes of files with several names: those are synced once
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		file := info.Sys().(*syscall.Stat_t)
		if !d.IsDir() && file.Nlink > 1 {
			if names[file.Ino] {
				return nil
			}
			names[file.Ino] = true
		}
		group.Go(func() error { return syncFile(name) })
		return nil
	})
	if err := errors.Join(err, group.Wait()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// syncFile returns once a file, or the names in a folder, are on the disk.
func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
