package disk

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// deepest is how many folders below each other are looked into: each has a descriptor.
	deepest = 200
	// namesAtOnce is how many names of a folder are in memory at once.
	namesAtOnce = 256
	// block is the unit in which the kernel counts a file's size on disk, in bytes.
	block = 512
	// onlyFolder opens a folder, and nothing that a program has put in its place meanwhile.
	onlyFolder = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK
)

// sizing adds up the files below a folder that a tenant's program may change at any time.
type sizing struct {
	step  func() error
	bytes int64
}

// Used returns how many bytes the files of a folder take. It follows no link. A file with
// several names counts once if all of them are in the folder. It calls step for each file, and
// ends with its error.
func Used(path string, step func() error) (int64, error) {
	fd, err := unix.Open(path, onlyFolder, 0)
	if err != nil {
		return 0, err
	}
	s := &sizing{step: step}
	err = s.addFolder(fd, 1)
	return s.bytes, err
}

// addFolder adds what is in a folder, and closes it.
func (s *sizing) addFolder(fd, depth int) error {
	folder := os.NewFile(uintptr(fd), "data")
	defer folder.Close()
	for {
		names, err := folder.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := s.add(fd, name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// add adds a file, or a folder with what is in it. One that is gone is nothing.
func (s *sizing) add(parent int, name string, depth int) error {
	if err := s.step(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return unlessMissing(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		s.bytes += st.Blocks * block / max(int64(st.Nlink), 1)
		return nil
	}
	s.bytes += st.Blocks * block
	if depth >= deepest {
		return nil
	}
	fd, err := unix.Openat(parent, name, onlyFolder, 0)
	if err != nil {
		return unlessMissing(err)
	}
	return s.addFolder(fd, depth+1)
}

// unlessMissing returns nil for a file that is gone, or is another kind of file by now.
func unlessMissing(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}
