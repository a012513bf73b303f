package pack

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
)

// Tree is what is packed of a folder.
type Tree struct {
	root    string
	prefix  string
	names   []string // slash-separated, in the order of the archive
	LeftOut []string // files and folders that the rules excluded, slash-separated, only the outermost
}

// File is a file or symlink of a tree, as a server lists it.
type File struct {
	Mode   string `json:"mode"`   // four octal digits
	SHA256 string `json:"sha256"` // of the content, or of a symlink's target; hexadecimal
	Link   bool   `json:"link,omitempty"`
}

// Scan returns what is packed of a folder. What the patterns of include match, in
// .gitignore's syntax and relative to the folder, is packed whatever the rules say.
func Scan(ctx context.Context, dir string, include []string) (*Tree, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir, errors.Unwrap(err)) // the cause without the path
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("pack %s: it is not a folder", dir)
	}
	rules, err := newRules(abs, include)
	if err != nil {
		return nil, err
	}
	s := &scanner{tree: &Tree{root: abs, prefix: folderName(abs)}, rules: rules}
	return s.tree, s.folder(ctx, "", false)
}

// Files returns the files and symlinks of the tree by their names.
func (t *Tree) Files(ctx context.Context) (map[string]File, error) {
	p := &packer{tree: t, files: map[string]File{}, out: tar.NewWriter(io.Discard)}
	return p.files, p.all(ctx, t.names)
}

// Write writes the tree as tar.gz. Its entries are below one folder with the folder's
// name, which the server uses as the stack's default name.
func (t *Tree) Write(ctx context.Context, w io.Writer) (Summary, error) {
	return t.write(ctx, t.names, t.prefix+"/", w)
}

// WriteSome writes the named files as tar.gz, by their own names, as changes of a source.
func (t *Tree) WriteSome(ctx context.Context, names []string, w io.Writer) (Summary, error) {
	return t.write(ctx, names, "", w)
}

func (t *Tree) write(ctx context.Context, names []string, prefix string, w io.Writer) (Summary, error) {
	zip := gzip.NewWriter(w)
	p := &packer{tree: t, prefix: prefix, out: tar.NewWriter(zip), files: map[string]File{}}
	if err := p.all(ctx, names); err != nil {
		return Summary{}, err
	}
	if err := errors.Join(p.out.Close(), zip.Close()); err != nil {
		return Summary{}, fmt.Errorf("write the archive: %w", err)
	}
	return Summary{Files: p.count, Bytes: p.bytes, LeftOut: t.LeftOut, Packed: p.files}, nil
}

// packer writes files of one tree, and hashes what it writes.
type packer struct {
	tree   *Tree
	prefix string
	out    *tar.Writer
	files  map[string]File
	count  int
	bytes  int64
}

func (p *packer) all(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.addFile(name); err != nil {
			return err
		}
	}
	return nil
}

// addFile packs a file or a link.
func (p *packer) addFile(name string) error {
	full := filepath.Join(p.tree.root, filepath.FromSlash(name))
	info, err := os.Lstat(full)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	switch {
	case info.Mode().IsRegular():
		return p.file(name, full)
	case info.Mode()&fs.ModeSymlink != 0:
		return p.link(name, full, info)
	}
	return nil
}

func (p *packer) link(name, full string, info fs.FileInfo) error {
	target, err := os.Readlink(full)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	target = filepath.ToSlash(target)
	sum := sha256.Sum256([]byte(target))
	p.files[name] = File{Mode: "0777", SHA256: hex.EncodeToString(sum[:]), Link: true}
	return p.header(&tar.Header{
		Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: info.ModTime(),
	})
}

func (p *packer) file(name, full string) error {
	f, err := os.Open(full)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	err = p.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: mode, ModTime: info.ModTime()})
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := p.content(name, f, info.Size(), sum); err != nil {
		return err
	}
	p.files[name] = File{Mode: fmt.Sprintf("%04o", mode), SHA256: hex.EncodeToString(sum.Sum(nil))}
	p.count++
	p.bytes += info.Size()
	return nil
}

// content packs the content of a file.
func (p *packer) content(name string, f io.Reader, size int64, sum hash.Hash) error {
	n, err := io.Copy(io.MultiWriter(p.out, sum), io.LimitReader(f, size))
	if err == nil && n < size {
		return fmt.Errorf("pack: %s became shorter while it was read; try again", name)
	}
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	return nil
}

func (p *packer) header(h *tar.Header) error {
	h.Name = p.prefix + h.Name
	if err := p.out.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %s: %w", h.Name, err)
	}
	return nil
}
