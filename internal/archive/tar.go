package archive

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// WriteTar streams the tree below dir into w, each name under prefix and owned by uid
// and gid, in the order of the names. A prefix other than "" gets its own entry. Modes,
// times and symlinks stay as they are. WriteTar never reads through a symlink and
// leaves out whatever is not a folder, file or symlink. It does not close w.
func WriteTar(ctx context.Context, w *tar.Writer, dir, prefix string, uid, gid int) error {
	return WritePart(ctx, w, dir, prefix, uid, gid, func(string, bool) bool { return true })
}

// WritePart is WriteTar for those entries that wanted selects, by their slash-separated
// paths below dir. What is below a folder that it does not select is left out too.
func WritePart(ctx context.Context, w *tar.Writer, dir, prefix string, uid, gid int, wanted func(name string, folder bool) bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("write source to tar: %w", err)
	}
	defer root.Close()
	t := &tarWriter{ctx: ctx, w: w, prefix: prefix, uid: uid, gid: gid, wanted: wanted, buf: make([]byte, blockSize)}
	if prefix != "" {
		err = t.folder(root, prefix)
	}
	if err == nil {
		err = t.content(root, prefix)
	}
	if err != nil {
		return fmt.Errorf("write source to tar: %w", err)
	}
	return nil
}

type tarWriter struct {
	ctx      context.Context
	w        *tar.Writer
	prefix   string
	uid, gid int
	wanted   func(name string, folder bool) bool
	buf      []byte
}

// content writes the content of the folder that dir has open.
func (t *tarWriter) content(dir *os.Root, as string) error {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		name := path.Join(as, e.Name())
		if !t.wanted(strings.TrimPrefix(strings.TrimPrefix(name, t.prefix), "/"), e.IsDir()) {
			continue
		}
		switch e.Type() {
		case fs.ModeDir:
			err = t.tree(dir, e.Name(), name)
		case fs.ModeSymlink:
			err = t.symlink(dir, e.Name(), name)
		case 0:
			err = t.file(dir, e.Name(), name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tarWriter) tree(parent *os.Root, name, as string) error {
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := t.folder(dir, as); err != nil {
		return err
	}
	return t.content(dir, as)
}

func (t *tarWriter) folder(dir *os.Root, as string) error {
	info, err := dir.Lstat(".")
	if err != nil {
		return err
	}
	return t.header(info, tar.Header{Typeflag: tar.TypeDir, Name: as + "/"})
}

func (t *tarWriter) symlink(dir *os.Root, name, as string) error {
	info, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	target, err := dir.Readlink(name)
	if err != nil {
		return err
	}
	return t.header(info, tar.Header{Typeflag: tar.TypeSymlink, Name: as, Linkname: target})
}

func (t *tarWriter) file(dir *os.Root, name, as string) error {
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.header(info, tar.Header{Typeflag: tar.TypeReg, Name: as, Size: info.Size()}); err != nil {
		return err
	}
	return t.copyFrom(f, info.Size())
}

// copyFrom copies size bytes of f; a shorter file is an error.
func (t *tarWriter) copyFrom(f *os.File, size int64) error {
	for size > 0 {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		n, err := f.Read(t.buf[:min(size, blockSize)])
		if err == io.EOF {
			return fmt.Errorf("%s: %w", f.Name(), io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
		if _, err := t.w.Write(t.buf[:n]); err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

func (t *tarWriter) header(info fs.FileInfo, h tar.Header) error {
	h.Mode = int64(info.Mode().Perm())
	h.ModTime = info.ModTime()
	h.Uid, h.Gid = t.uid, t.gid
	return t.w.WriteHeader(&h)
}
