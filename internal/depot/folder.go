package depot

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// packFolder writes a folder as a tar.
func packFolder(w io.Writer, path string) error {
	out := tar.NewWriter(w)
	if err := out.AddFS(os.DirFS(path)); err != nil {
		return err
	}
	return out.Close()
}

// unpackFolder makes a folder from what packFolder wrote. The folder appears once it is
// whole.
func unpackFolder(path string, r io.Reader) error {
	part := path + ".part"
	err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o700))
	if err != nil {
		return err
	}
	if err := unpackInto(part, r); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	return os.Rename(part, path)
}

func unpackInto(folder string, r io.Reader) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close() // nothing is written by it
	in := tar.NewReader(r)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, r) // to the end of what was sealed
			return err
		}
		if err != nil {
			return err
		}
		if err := unpackEntry(root, header, in); err != nil {
			return fmt.Errorf("unpack %q: %w", header.Name, err)
		}
	}
}

func unpackEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	name, mode := filepath.Clean(header.Name), header.FileInfo().Mode().Perm()
	switch header.Typeflag {
	case tar.TypeDir:
		if name == "." {
			return root.Chmod(name, mode|0o700)
		}
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeReg:
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
		return root.Chtimes(name, header.ModTime, header.ModTime)
	}
	return errors.New("it is neither a file, a folder nor a link")
}
