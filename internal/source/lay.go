package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/failpoint"
)

// lay completes a tree in which the upload is unpacked: folders and links to the files of
// the base, modes, and, last of all, the symlinks, so that nothing was ever written
// through one.
func (m *merge) lay(ctx context.Context, made []Entry, tree string, room func() error) error {
	kept := map[string][]*Entry{} // files of the base, by folder
	var links []*Entry
	for i := range made {
		e := &made[i]
		_, own := m.own[e.Path]
		switch {
		case e.Mode&fs.ModeSymlink != 0:
			links = append(links, e)
		case own:
			if err := m.mend(tree, e); err != nil {
				return fmt.Errorf("lay an upload over the source: %w", err)
			}
		case e.Mode.IsDir():
			if err := makeFolder(tree, e); err != nil {
				return fmt.Errorf("lay an upload over the source: %w", err)
			}
		default:
			kept[path.Dir(e.Path)] = append(kept[path.Dir(e.Path)], e)
		}
	}
	failpoint.Here("overlay-unpacked")
	if err := m.linkAll(ctx, kept, tree, room); err != nil {
		return err
	}
	for _, e := range links {
		if err := os.Symlink(e.Target, filepath.Join(tree, e.Path)); err != nil {
			return fmt.Errorf("lay an upload over the source: %w", err)
		}
	}
	failpoint.Here("overlay-laid")
	return nil
}

// mend gives what the upload made the mode that it has from the base.
func (m *merge) mend(tree string, e *Entry) error {
	if m.own[e.Path].Mode == e.Mode {
		return nil
	}
	return os.Chmod(filepath.Join(tree, e.Path), e.Mode.Perm())
}

func makeFolder(tree string, e *Entry) error {
	name := filepath.Join(tree, e.Path)
	if err := os.Mkdir(name, e.Mode.Perm()); err != nil {
		return err
	}
	return os.Chmod(name, e.Mode.Perm()) // the umask may have taken bits
}

// linkAll links files of the base into the tree, several folders at once.
func (m *merge) linkAll(ctx context.Context, kept map[string][]*Entry, tree string, room func() error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for folder, files := range kept {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if room != nil {
				if err := room(); err != nil {
					return err
				}
			}
			return linkFolder(filepath.Join(m.base.Tree(), folder), filepath.Join(tree, folder), files)
		})
	}
	return group.Wait()
}

// linkFolder links files of one folder into another, if they are still as they were
// kept.
func linkFolder(from, to string, files []*Entry) error {
	old, err := openFolder(from)
	if err != nil {
		return damaged(err)
	}
	defer unix.Close(old)
	made, err := openFolder(to)
	if err != nil {
		return fmt.Errorf("lay an upload over the source: %w", err)
	}
	defer unix.Close(made)
	for _, e := range files {
		if err := linkFile(old, made, e); err != nil {
			return err
		}
	}
	return nil
}

func openFolder(name string) (int, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// linkFile links a file of the base from one open folder to another. A file with as many
// links as the file system allows is copied.
func linkFile(old, made int, e *Entry) error {
	name := path.Base(e.Path)
	var is unix.Stat_t
	if err := unix.Fstatat(old, name, &is, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return damaged(&fs.PathError{Op: "stat", Path: e.Path, Err: err})
	}
	if is.Mode != unix.S_IFREG|uint32(e.Mode.Perm()) || is.Size != e.Size || is.Mtim.Sec != e.Modified {
		return damaged(fmt.Errorf("%s is not as it was kept", e.Path))
	}
	err := unix.Linkat(old, name, made, name, 0)
	if errors.Is(err, unix.EMLINK) {
		err = copyFile(old, made, name, e)
	}
	if err != nil {
		return fmt.Errorf("lay an upload over the source: %w", &fs.PathError{Op: "link", Path: e.Path, Err: err})
	}
	return nil
}

// copyFile copies a file from one open folder to another.
func copyFile(old, made int, name string, e *Entry) error {
	in, err := openAt(old, name, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := openAt(made, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, uint32(e.Mode.Perm()))
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(e.Mode.Perm()), out.Sync(), out.Close())
	at := unix.NsecToTimespec(e.Modified * int64(time.Second))
	return errors.Join(err, unix.UtimesNanoAt(made, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
}

func openAt(folder int, name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(folder, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
