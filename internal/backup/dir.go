package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// WriteFolder reads a backup from r, a tar that is not encrypted, and writes it as plain files
// to a folder, which it makes if it is not there. It leaves a file of an earlier backup as it is
// if its content is the same, so that a program that keeps folders need not read it again, and
// refuses a folder that has something else than a backup. After an error what is there is not a
// backup, and the next one may be written over it.
func WriteFolder(dir string, r io.Reader) (*Manifest, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := unmark(root); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	f := &folder{root: root, kept: map[string]bool{}}
	m, err := readArchive(r, f.add)
	if err != nil {
		return nil, err
	}
	if err := f.end(m); err != nil {
		return nil, fmt.Errorf("end the backup: %w", err)
	}
	return m, nil
}

// folder is a backup that is being written as plain files.
type folder struct {
	root *os.Root
	kept map[string]bool // names of this backup
}

// incoming is the name of a file while it is written.
const incoming = ".incoming"

// unmark removes the manifest's sum of an earlier backup, so that it is no longer one. A
// manifest stays, or is made, which says that the folder is for backups.
func unmark(root *os.Root) error {
	names, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	if len(names) == 0 {
		text, err := (&Manifest{}).encode()
		if err != nil {
			return err
		}
		return root.WriteFile(manifestName, text, 0o600)
	}
	text, err := root.ReadFile(manifestName)
	if err == nil {
		_, err = decode(text)
	}
	if err != nil {
		return errors.New("the folder is not empty and has no earlier backup; name another")
	}
	if err := root.Remove(sumName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// add writes an entry.
func (f *folder) add(e Entry, content io.Reader) error {
	if err := f.write(e, content); err != nil {
		return fmt.Errorf("write %s: %w", e.Name, err)
	}
	return nil
}

func (f *folder) write(e Entry, content io.Reader) error {
	for name := e.Name; name != "."; name = path.Dir(name) {
		f.kept[name] = true
	}
	if !e.Mode.IsRegular() {
		return f.place(e)
	}
	if err := f.makeWay(path.Dir(e.Name)); err != nil {
		return err
	}
	sum, err := f.receive(e, content)
	if err != nil {
		return err
	}
	if there, err := fileSum(f.root, e.Name); err == nil && there == sum {
		return f.root.Remove(incoming)
	}
	if err := f.giveWay(e.Name); err != nil {
		return err
	}
	return f.root.Rename(incoming, e.Name)
}

// receive writes a file beside the others.
func (f *folder) receive(e Entry, content io.Reader) (string, error) {
	file, err := f.root.OpenFile(incoming, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(file, sum), content, e.Size)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), f.root.Chtimes(incoming, e.ModTime, e.ModTime)
}

// place makes a folder or a link unless it is there.
func (f *folder) place(e Entry) error {
	if e.Mode.IsDir() {
		return f.makeWay(e.Name)
	}
	if target, err := f.root.Readlink(e.Name); err == nil && target == e.Link {
		return nil
	}
	if err := f.makeWay(path.Dir(e.Name)); err != nil {
		return err
	}
	if err := f.root.RemoveAll(e.Name); err != nil {
		return err
	}
	return f.root.Symlink(e.Link, e.Name)
}

// makeWay makes a folder and those above it, in place of what is there under their names. A
// link of an earlier backup is not followed.
func (f *folder) makeWay(name string) error {
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		if info, err := f.root.Lstat(at); err == nil && !info.IsDir() {
			if err := f.root.Remove(at); err != nil {
				return err
			}
		}
	}
	return f.root.MkdirAll(name, 0o700)
}

// giveWay removes what is not a file from where one is to be.
func (f *folder) giveWay(name string) error {
	info, err := f.root.Lstat(name)
	if err != nil || info.Mode().IsRegular() {
		return nil
	}
	return f.root.RemoveAll(name)
}

// end removes what earlier backups had besides, and writes the manifest with its sum.
func (f *folder) end(m *Manifest) error {
	text, err := m.encode()
	if err == nil {
		err = f.prune()
	}
	if err != nil {
		return err
	}
	if err := f.root.WriteFile(manifestName, text, 0o600); err != nil {
		return err
	}
	if err := syncAll(f.root); err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if err := f.root.WriteFile(sumName, []byte(hex.EncodeToString(sum[:])), 0o600); err != nil {
		return err
	}
	return syncAll(f.root)
}

// syncAll returns once everything in a folder is on the disk, with what else is on that disk.
func syncAll(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", root.Name(), err)
	}
	return nil
}

// prune removes what is not of this backup.
func (f *folder) prune() error {
	return fs.WalkDir(f.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".", name == manifestName, f.kept[name]:
			return nil
		}
		if err := f.root.RemoveAll(name); err != nil {
			return err
		}
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// fileSum returns the sum of a regular file's content.
func fileSum(root *os.Root, name string) (string, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", name)
	}
	file, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// readFolder reads a backup that WriteFolder wrote, as readArchive reads a tar.
func readFolder(ctx context.Context, dir string, each func(Entry, io.Reader) error) (*Manifest, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	m, err := readManifest(root)
	if err != nil {
		return nil, err
	}
	for _, e := range m.Entries {
		if err := readPlain(ctx, root, e, each); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func readManifest(root *os.Root) (*Manifest, error) {
	text, err := root.ReadFile(manifestName)
	if err != nil {
		return nil, fmt.Errorf("the folder has no backup: %w", err)
	}
	written, err := root.ReadFile(sumName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if sum := sha256.Sum256(text); string(written) != hex.EncodeToString(sum[:]) {
		return nil, errChanged
	}
	return decode(text)
}

// readPlain reads one entry from a folder.
func readPlain(ctx context.Context, root *os.Root, e Entry, each func(Entry, io.Reader) error) error {
	if err := e.check(); err != nil {
		return err
	}
	info, err := root.Lstat(filepath.FromSlash(e.Name))
	if err != nil {
		return fmt.Errorf("%w: %w", errListed, err)
	}
	if info.Mode().Type() != e.Mode.Type() {
		return fmt.Errorf("%w: %s", errListed, e.Name)
	}
	if !e.Mode.IsRegular() {
		if e.Mode.IsDir() {
			return each(e, nil)
		}
		if target, err := root.Readlink(e.Name); err != nil || target != e.Link {
			return fmt.Errorf("%w: %s", errListed, e.Name)
		}
		return each(e, nil)
	}
	file, err := root.Open(e.Name)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	content := io.TeeReader(untilDone{ctx, file}, sum)
	if err := each(e, content); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != e.SHA256 {
		return fmt.Errorf("the backup was changed: %s does not have the sum it was written with; use another backup", e.Name)
	}
	return nil
}
