package datadir

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// logFolder is the folder of the logs within that of a stack.
const logFolder = "logs"

// Pack writes a stack's files to w as a tar, for Unpack on another node: the logs, or all
// files but those. It skips what goes meanwhile.
func (d Dir) Pack(id string, logs bool, w io.Writer) error {
	out := tar.NewWriter(w)
	root := d.Stack(id)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path) // it is below
		isLog := name == logFolder || strings.HasPrefix(name, logFolder+"/")
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case name == "." || isLog != logs:
			return nil
		}
		return skipMissing(packEntry(out, path, name, entry))
	})
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		return fmt.Errorf("pack the stack's files: %w", err)
	}
	return nil
}

func skipMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// packEntry writes a file, folder or link. A file that grows meanwhile is written as far as
// it was at first.
func packEntry(out *tar.Writer, path, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	var link string
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name, header.Format = name, tar.FormatPAX // with fractions of seconds
	if !info.Mode().IsRegular() {
		return out.WriteHeader(header)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.CopyN(out, file, header.Size)
	return err
}

// Unpack adds to a stack's files those of a tar that Pack wrote.
func (d Dir) Unpack(id string, r io.Reader) error {
	if err := d.unpack(id, tar.NewReader(r)); err != nil {
		return fmt.Errorf("unpack the stack's files: %w", err)
	}
	return nil
}

func (d Dir) unpack(id string, in *tar.Reader) error {
	if err := os.MkdirAll(d.Stack(id), 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(d.Stack(id))
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackEntry(root, header, in)
		}
		if err != nil {
			return err
		}
	}
}

// unpackEntry makes a file, folder or link. Nothing is written outside the root.
func unpackEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	mode := header.FileInfo().Mode()
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(header.Name, mode.Perm())
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, header.Name)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%s is neither a file, a folder nor a link", header.Name)
	}
	file, err := root.OpenFile(header.Name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode.Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, content); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil {
		return err
	}
	return root.Chtimes(header.Name, header.ModTime, header.ModTime)
}
