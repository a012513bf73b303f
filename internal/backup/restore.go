package backup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"filippo.io/age"
)

// Source is a backup that is read, an archive or a folder.
type Source struct {
	Path       string
	Identities []age.Identity // that open it if it is encrypted
}

// Check reads all of a backup, and returns its manifest if every sum is as it was written.
func (s Source) Check() (*Manifest, error) { return s.read(ignore) }

// Restore writes the entries below a folder of the backup to an empty folder, which it makes if
// it is not there, and gives the others to rest. Check has to come first: Restore compares the
// sums again, but has written by then. After an error it leaves the folder as empty as it was,
// and after its death Unfinished.
func (s Source) Restore(from, dir string, rest func(Entry, io.Reader) error) (err error) {
	if err := CheckEmpty(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := root.WriteFile(unfinished, nil, 0o600); err != nil {
		return err
	}
	if err := empty(root); err != nil { // what an earlier one has left
		return err
	}
	w := writer{root: root, from: from, rest: rest}
	if _, err = s.read(w.write); err == nil {
		err = w.finish()
	}
	if err != nil {
		return errors.Join(err, empty(root), root.Remove(unfinished))
	}
	return root.Remove(unfinished)
}

// unfinished is a file in a folder that a restore has not ended in.
const unfinished = "restoring"

// Unfinished reports whether a restore into a folder was cut off, so that not all is there.
func Unfinished(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, unfinished))
	return err == nil
}

// CheckEmpty returns an error unless a folder is not there, or has nothing in it but what an
// unfinished restore has left.
func CheckEmpty(dir string) error {
	names, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case Unfinished(dir):
		return nil
	}
	for _, entry := range names {
		if entry.Name() != ofFileSystem {
			return fmt.Errorf("%s is not empty; restore into an empty data directory, named by --data-dir", dir)
		}
	}
	return nil
}

// ofFileSystem is a folder that is in the root of each file system of Linux's own.
const ofFileSystem = "lost+found"

// empty removes all but the mark of a restore.
func empty(root *os.Root) error {
	names, err := fs.ReadDir(root.FS(), ".")
	for _, entry := range names {
		if name := entry.Name(); name != unfinished && name != ofFileSystem {
			err = errors.Join(err, root.RemoveAll(name))
		}
	}
	return err
}

// read reads the backup from its beginning to its end.
func (s Source) read(each func(Entry, io.Reader) error) (*Manifest, error) {
	info, err := os.Stat(s.Path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return readFolder(s.Path, each)
	}
	file, err := os.Open(s.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	buffered := bufio.NewReaderSize(file, 1<<16)
	if begin, _ := buffered.Peek(len(ageIntro)); string(begin) != ageIntro {
		return readArchive(buffered, each)
	}
	plain, err := decrypt(buffered, s.Identities)
	if err != nil {
		return nil, err
	}
	return readArchive(plain, each)
}

// writer writes entries to a folder.
type writer struct {
	root  *os.Root
	from  string
	rest  func(Entry, io.Reader) error
	links []Entry // made at the end, so that nothing is written through one
	dirs  []Entry // whose modes and times are set at the end
}

func (w *writer) write(e Entry, content io.Reader) error {
	name, ok := strings.CutPrefix(e.Name, w.from+"/")
	if !ok {
		return w.rest(e, content)
	}
	e.Name = name
	if err := w.root.MkdirAll(path.Dir(e.Name), 0o700); err != nil {
		return err
	}
	switch {
	case e.Mode.IsDir():
		w.dirs = append(w.dirs, e)
		return w.root.MkdirAll(e.Name, 0o700)
	case !e.Mode.IsRegular():
		w.links = append(w.links, e)
		return nil
	}
	file, err := w.root.OpenFile(e.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, e.Mode.Perm())
	if err != nil {
		return err
	}
	if _, err = io.Copy(file, content); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := w.root.Chmod(e.Name, e.Mode.Perm()); err != nil {
		return err
	}
	return w.root.Chtimes(e.Name, e.ModTime, e.ModTime)
}

func (w *writer) finish() error {
	for _, e := range w.links {
		if err := w.root.Symlink(e.Link, e.Name); err != nil {
			return err
		}
	}
	for i := len(w.dirs) - 1; i >= 0; i-- { // those within others first
		e := w.dirs[i]
		if err := w.root.Chmod(e.Name, e.Mode.Perm()); err != nil {
			return err
		}
		if err := w.root.Chtimes(e.Name, e.ModTime, e.ModTime); err != nil {
			return err
		}
	}
	return nil
}
