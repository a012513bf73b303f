package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// adder is what entries are written to, an Archive.
type adder interface {
	Add(e Entry, content io.Reader, moved func() bool) error
	Miss(what string)
}

// AddTree writes the files, folders and links of a folder, below a name. It leaves out what
// skip reports, with what is below, and what is none of the three. What goes meanwhile is
// not in the backup, and a link that leads out of the folder is noted as missing: whoever uploads
// one does not keep the rest from being kept. A file that changed while it was copied is marked as
// copied in motion; one that grew, as a log does, has what it had at first.
func AddTree(to adder, root *os.Root, below string, skip func(name string) bool) error {
	var found []Entry // links, which come last
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case name == ".":
			return nil
		case skip(name) && entry.IsDir():
			return fs.SkipDir
		case skip(name):
			return nil
		}
		err = addPath(to, root, name, path.Join(below, name), &found)
		if errors.Is(err, errGone) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return addLinks(to, found)
}

// addLinks writes the links of a folder, but for those that lead out of it.
func addLinks(to adder, found []Entry) error {
	all := &linkTree{}
	places := make([]*place, len(found))
	for i, e := range found {
		places[i] = all.add(e.Name, e.Link)
	}
	for i, e := range found {
		if !all.stays(places[i]) {
			to.Miss(fmt.Sprintf("the symbolic link %s: %s", e.Name, errOut))
			continue
		}
		if err := to.Add(e, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// errGone means that a file is not there any more, and that nothing of it was written.
var errGone = errors.New("the file is gone")

func addPath(to adder, root *os.Root, name, as string, found *[]Entry) error {
	info, err := root.Lstat(name)
	if err != nil {
		return gone(err)
	}
	e := Entry{Name: as, Mode: info.Mode().Type() | info.Mode().Perm(), ModTime: info.ModTime()}
	switch {
	case info.IsDir():
		return to.Add(e, nil, nil)
	case info.Mode().Type() == fs.ModeSymlink:
		if e.Link, err = root.Readlink(name); err != nil {
			return gone(err)
		}
		*found = append(*found, e)
		return nil
	case !info.Mode().IsRegular():
		return nil
	}
	file, err := root.Open(name)
	if err != nil {
		return gone(err)
	}
	defer file.Close()
	return addFile(to, file, e)
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	return err
}

// addFile writes an open file, as large as it is now.
func addFile(to adder, file *os.File, e Entry) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	e.Size, e.ModTime = info.Size(), info.ModTime()
	content := &moving{file: file, was: info, left: e.Size}
	if err := to.Add(e, content, content.moved); err != nil {
		return fmt.Errorf("%s: %w", file.Name(), err)
	}
	return nil
}

// moving reads exactly as many bytes as a file had at first, zeros in place of what was cut
// off meanwhile.
type moving struct {
	file *os.File
	was  fs.FileInfo
	left int64
}

func (m *moving) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), m.left)]
	n, err := m.file.Read(p)
	if errors.Is(err, io.EOF) {
		clear(p)
		n, err = len(p), nil
	}
	m.left -= int64(n)
	return n, err
}

// moved reports whether something has written to the file since it was opened. What cannot
// be said may have been written to.
func (m *moving) moved() bool {
	now, err := m.file.Stat()
	return err != nil || now.Size() != m.was.Size() || !now.ModTime().Equal(m.was.ModTime())
}
