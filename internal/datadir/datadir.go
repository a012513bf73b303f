// Package datadir keeps the files of stacks: sources while they are built, published
// sites, logs, and uploads while they are unpacked. It knows all paths in the data
// directory, and uses neither the database nor the engine.
//
// A stack's files are in <data>/stacks/<hex>: sources/<one for each upload>/,
// sites/<service>/g<attempt> (a folder, or a link into a source), logs/<service>.<kind>.log, <service>.no-room,
// <service>.filled and, after a restore, backup/<service>.tar. Uploads are unpacked in
// <data>/uploads, on the same disk, so that taking one over is a rename.
package datadir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/stackid"
)

// Dir is the path of a data directory. Its methods identify stacks by their ids.
type Dir string

// Lock returns the file that the running server locks.
func (d Dir) Lock() string { return filepath.Join(string(d), "lock") }

// IsLocked reports whether a server has locked the data directory. A server that starts in the
// same instant may find it locked by this.
func (d Dir) IsLocked() bool {
	lock, err := os.Open(d.Lock())
	if err != nil {
		return false
	}
	defer lock.Close() // ends the lock too
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// Instance returns the file with the id of the installation.
func (d Dir) Instance() string { return filepath.Join(string(d), "instance") }

// Key returns the file with the installation's key.
func (d Dir) Key() string { return filepath.Join(string(d), "key") }

// Postgres returns the file with the address, without a password, of the database of
// PostgreSQL that the installation has used.
func (d Dir) Postgres() string { return filepath.Join(string(d), "postgres") }

// Takeable returns the file with the stacks of this node that others may take if it is lost.
func (d Dir) Takeable() string { return filepath.Join(string(d), "takeable") }

// Database returns the database's file if the configuration does not name another.
func (d Dir) Database() string { return filepath.Join(string(d), "berth.db") }

// Metrics returns the file of the database of what was measured.
func (d Dir) Metrics() string { return filepath.Join(string(d), "metrics.db") }

// Certificates returns the folder of the certificates that an authority issued.
func (d Dir) Certificates() string { return filepath.Join(string(d), "acme") }

func (d Dir) uploads() string { return filepath.Join(string(d), "uploads") }

// StacksFolder returns the folder of the files of all stacks.
func (d Dir) StacksFolder() string { return filepath.Join(string(d), "stacks") }

// Stack returns the folder of a stack's files.
func (d Dir) Stack(id string) string {
	return filepath.Join(d.StacksFolder(), stackid.Hex(id))
}

func (d Dir) sources(id string) string { return filepath.Join(d.Stack(id), "sources") }
func (d Dir) logs(id string) string    { return filepath.Join(d.Stack(id), "logs") }

// Site returns the folder of a service that an attempt to deploy publishes. It may be a
// relative link to a folder of a source.
func (d Dir) Site(id, service string, attempt int) string {
	return filepath.Join(d.Stack(id), "sites", service, "g"+strconv.Itoa(attempt))
}

// Sites returns the published folders that which accepts.
func (d Dir) Sites(id string, which func(service string, attempt int) bool) []string {
	return slices.DeleteFunc(d.find(id, "sites/*/g*"), func(site string) bool {
		attempt, err := strconv.Atoi(filepath.Base(site)[1:])
		return err != nil || !which(filepath.Base(filepath.Dir(site)), attempt)
	})
}

// Source returns the folder of a source by its name.
func (d Dir) Source(id, name string) string { return filepath.Join(d.sources(id), name) }

// Sources returns the folders of a stack's sources, except that of one name.
func (d Dir) Sources(id, except string) []string {
	return slices.DeleteFunc(d.find(id, "sources/*"), func(folder string) bool { return filepath.Base(folder) == except })
}

// Size returns how many bytes the folder of a source or of a site takes on the disk; none if it is
// missing, or is a link into another one. It calls step for each file, and ends with its error.
func (d Dir) Size(folder string, step func() error) (int64, error) {
	size, err := disk.Used(folder, step)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("size of a stack's files: %w", err)
	}
	return size, nil
}

// Listing returns the folder of a listing that is kept for a layer with a source of that
// digest.
func (d Dir) Listing(id, digest string) string { return filepath.Join(d.Stack(id), "layers", digest) }

// KeepListing keeps the listing of a source, by its digest, for as long as a layer has it.
func (d Dir) KeepListing(id, name, digest string) error {
	folder := d.Listing(id, digest)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("keep the listing of a source: %w", err)
	}
	err := os.Link(filepath.Join(d.Source(id, name), "listing"), filepath.Join(folder, "listing"))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep the listing of a source: %w", err)
	}
	return nil
}

// Listings returns the folders of the kept listings whose digests unneeded selects.
func (d Dir) Listings(id string, unneeded func(digest string) bool) []string {
	return slices.DeleteFunc(d.find(id, "layers/*"), func(folder string) bool { return !unneeded(filepath.Base(folder)) })
}

// find returns the paths below a stack's folder that match a constant pattern.
func (d Dir) find(id, pattern string) []string {
	found, _ := fs.Glob(os.DirFS(d.Stack(id)), pattern) // it fails for a malformed pattern alone
	for i, name := range found {
		found[i] = filepath.Join(d.Stack(id), name)
	}
	return found
}

// Stacks returns the ids of the stacks that have files.
func (d Dir) Stacks() ([]string, error) {
	entries, err := os.ReadDir(d.StacksFolder())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the stacks' files: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id := stackid.FromHex(e.Name()); stackid.Valid(id) { // the rest is not the server's
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Has reports whether a stack may have files.
func (d Dir) Has(id string) bool {
	_, err := os.Lstat(d.Stack(id))
	return !errors.Is(err, fs.ErrNotExist)
}

// Remove removes all files of a stack.
func (d Dir) Remove(id string) error {
	if err := os.RemoveAll(d.Stack(id)); err != nil {
		return fmt.Errorf("remove the stack's files: %w", err)
	}
	return nil
}

// RemoveFolders removes sources and sites, given by the paths that other methods return.
// It goes on after an error, so that as little as possible stays.
func (d Dir) RemoveFolders(folders ...string) error {
	var errs []error
	for _, folder := range folders {
		errs = append(errs, os.RemoveAll(folder))
	}
	return errors.Join(errs...)
}

// RemoveUploads removes the folders of all uploads.
func (d Dir) RemoveUploads() error { return os.RemoveAll(d.uploads()) }

// TempDir creates a folder for one upload, on the disk of the stacks. The caller
// removes it.
func (d Dir) TempDir() (string, error) {
	if err := os.MkdirAll(d.uploads(), 0o700); err != nil {
		return "", fmt.Errorf("make a folder for the upload: %w", err)
	}
	dir, err := os.MkdirTemp(d.uploads(), "")
	if err != nil {
		return "", fmt.Errorf("make a folder for the upload: %w", err)
	}
	return dir, nil
}

// TempFile creates a file without a name, on the disk of the stacks. It goes when the caller
// closes it.
func (d Dir) TempFile() (*os.File, error) {
	if err := os.MkdirAll(d.uploads(), 0o700); err != nil {
		return nil, fmt.Errorf("make a temporary file: %w", err)
	}
	f, err := os.CreateTemp(d.uploads(), "")
	if err != nil {
		return nil, fmt.Errorf("make a temporary file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("make a temporary file: %w", err), f.Close())
	}
	return f, nil
}

// KeepSource moves the folder of a new source (see package source) to the stack and
// returns its name; see Source.
func (d Dir) KeepSource(id, dir string) (name string, err error) {
	for _, folder := range []string{d.logs(id), d.sources(id)} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return "", fmt.Errorf("keep the source: %w", err)
		}
	}
	name = rand.Text()
	if err := os.Rename(dir, d.Source(id, name)); err != nil {
		return "", fmt.Errorf("keep the source: %w", err)
	}
	return name, nil
}
