package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"filippo.io/age"
)

// Source is a backup that is read, an archive or a folder.
type Source struct {
	Path       string
	Identities []age.Identity // that open it if it is encrypted
	From       string         // the folder of the backup that Restore unpacks
}

// Check reads all of a backup, and returns its manifest if every sum is as it was written and
// Restore can write every entry.
func (s Source) Check(ctx context.Context) (*Manifest, error) { return s.read(ctx, ignore) }

// Elsewhere is where a restore writes what does not go into the folder.
type Elsewhere interface {
	// Clear removes what a restore has left that has failed or was cut off.
	Clear(ctx context.Context) error
	// Take writes an entry, and reports whether that has its place elsewhere.
	Take(ctx context.Context, e Entry, content io.Reader) (bool, error)
	// End ends the restore once all entries are written. Until it has returned, the folder is
	// Unfinished.
	End() error
}

// Restore unpacks the folder From of the backup to dir, a folder that is empty or not there, and
// leaves out the rest that goes nowhere else. Check has to come first: Restore compares the sums
// again, but has written by then. After an error dir is as empty as it was, and after the death
// of the process it is Unfinished.
func (s Source) Restore(ctx context.Context, dir string, other Elsewhere) error {
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
	defer root.Close()
	mark, err := begin(dir)
	if err != nil {
		return err
	}
	defer mark.Close()
	if err := s.restore(ctx, root, other); err != nil {
		left := errors.Join(other.Clear(context.WithoutCancel(ctx)), empty(root))
		if left = errors.Join(left, root.Remove(unfinished)); left != nil {
			return fmt.Errorf("%w; not all that was restored could be removed again: %w", err, left)
		}
		return err
	}
	if err := root.Remove(unfinished); err != nil {
		return err
	}
	return syncAll(root)
}

func (s Source) restore(ctx context.Context, root *os.Root, other Elsewhere) error {
	if err := errors.Join(other.Clear(ctx), empty(root)); err != nil {
		return err
	}
	w := writer{root: root, from: s.From, other: other}
	if _, err := s.read(ctx, func(e Entry, content io.Reader) error { return w.write(ctx, e, content) }); err != nil {
		return err
	}
	if err := w.finish(); err != nil {
		return err
	}
	if err := syncAll(root); err != nil {
		return err
	}
	return other.End()
}

// unfinished is a file in a folder that a restore has not ended in. The restore has it locked.
const unfinished = "restoring"

// Unfinished reports whether a restore into a folder was cut off, so that not all is there.
func Unfinished(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, unfinished))
	return err == nil
}

// begin marks a folder as unfinished, and returns the mark, whose Close ends its lock. The mark
// of a restore that was cut off is taken over.
func begin(dir string) (*os.File, error) {
	name := filepath.Join(dir, unfinished)
	mark, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(mark.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil && isAt(mark, name) { // not if its restore has ended meanwhile
		return mark, nil
	}
	_ = mark.Close() // nothing was written
	return nil, fmt.Errorf("another restore into %s runs or has just ended; look at what it says", dir)
}

// isAt reports whether a file is the one at a path.
func isAt(file *os.File, name string) bool {
	mine, err1 := file.Stat()
	there, err2 := os.Lstat(name)
	return err1 == nil && err2 == nil && os.SameFile(mine, there)
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

// read reads the backup from its beginning to its end, and calls do with each entry, which can
// be unpacked.
func (s Source) read(ctx context.Context, do func(Entry, io.Reader) error) (*Manifest, error) {
	each := func(e Entry, content io.Reader) error {
		if err := e.checkBelow(s.From); err != nil {
			return err
		}
		return do(e, content)
	}
	info, err := os.Stat(s.Path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return readFolder(ctx, s.Path, each)
	}
	file, err := os.Open(s.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	buffered := bufio.NewReaderSize(untilDone{ctx, file}, 1<<16)
	if begin, _ := buffered.Peek(len(ageIntro)); string(begin) != ageIntro {
		return readArchive(buffered, each)
	}
	plain, err := decrypt(ctx, buffered, s.Identities)
	if err != nil {
		return nil, err
	}
	return readArchive(plain, each)
}

// untilDone reads until the context is done.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

// writer writes entries to a folder.
type writer struct {
	root  *os.Root
	from  string
	other Elsewhere
	links []Entry // made at the end, so that nothing is written through one
	dirs  []Entry // whose modes and times are set at the end
}

func (w *writer) write(ctx context.Context, e Entry, content io.Reader) error {
	if taken, err := w.other.Take(ctx, e, content); taken || err != nil {
		return err
	}
	name, ok := strings.CutPrefix(e.Name, w.from+"/")
	if !ok {
		return nil
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
	_, err = io.Copy(file, content)
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
