package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-host/berth/internal/disk"
)

// BackedUp is the data of a service as a backup had it. It is a file that takes the place of a
// snapshot until the data is in a volume again: while it is there, a volume has a part of the
// data at most.
type BackedUp struct {
	Path string
	Dump bool // a database's dump, and not what engine.Driver.ReadData wrote
}

// BackedUpPath returns where the data of a service from a backup lies.
func (d Dir) BackedUpPath(id, service string, dump bool) string {
	kind := ".tar"
	if dump {
		kind = ".dump"
	}
	return filepath.Join(d.Stack(id), backupFolder, service+kind)
}

const backupFolder = "backup"

// IsBackedUp reports whether a path, relative to the data directory, is of a folder that
// BackedUpPath returns paths in, or of a file there.
func IsBackedUp(path string) bool {
	parts := strings.Split(path, "/")
	return len(parts) > 2 && parts[0] == "stacks" && parts[2] == backupFolder
}

// BackedUp returns the data of a service that a backup had and no volume has had since; nil if
// there is none.
func (d Dir) BackedUp(id, service string) (*BackedUp, error) {
	for _, dump := range []bool{false, true} {
		path := d.BackedUpPath(id, service, dump)
		_, err := os.Stat(path)
		switch {
		case err == nil:
			return &BackedUp{path, dump}, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("look for data of a backup: %w", err)
		}
	}
	return nil, nil
}

// AllBackedUp returns what BackedUp returns of all services of a stack, by their names.
func (d Dir) AllBackedUp(id string) (map[string]*BackedUp, error) {
	all := map[string]*BackedUp{}
	for _, path := range d.find(id, backupFolder+"/*") {
		service := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		from, err := d.BackedUp(id, service)
		if err != nil {
			return nil, err
		}
		if from != nil {
			all[service] = from
		}
	}
	return all, nil
}

// RemoveBackedUp removes what BackedUp returns, if there is any.
func (d Dir) RemoveBackedUp(id, service string) error {
	from, err := d.BackedUp(id, service)
	if err == nil && from != nil {
		err = from.Remove()
	}
	return err
}

// Open opens the file for reading.
func (b *BackedUp) Open() (*os.File, error) { return os.Open(b.Path) }

// Remove removes the file, once a volume has what is in it.
func (b *BackedUp) Remove() error {
	if err := os.Remove(b.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return disk.Sync(filepath.Dir(b.Path))
}
