// Package pack creates the archive of a folder for a deploy.
//
// It packs what .gitignore files and the folder's .dockerignore do not exclude. It
// excludes .git, node_modules and files whose names begin with .env unless the caller
// asks for them. It packs symbolic links as links, and no devices and sockets. The same
// folder gives the same entries in the same order. It only reads the folder.
package pack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/klauspost/compress/gzip"
)

// Summary describes what was packed.
type Summary struct {
	Files   int
	Bytes   int64    // of the files, before compression
	LeftOut []string // files and folders that the rules excluded, slash-separated, only the outermost
}

// Write packs a folder as tar.gz into w. Its entries are below one folder with the
// folder's name, which the server uses as the stack's default name. What the patterns
// of include match, in .gitignore's syntax and relative to the folder, is packed
// whatever the rules say.
func Write(ctx context.Context, dir string, include []string, w io.Writer) (Summary, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Summary{}, fmt.Errorf("pack %s: %w", dir, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return Summary{}, fmt.Errorf("pack %s: %w", dir, errors.Unwrap(err)) // the cause without the path
	}
	if !info.IsDir() {
		return Summary{}, fmt.Errorf("pack %s: it is not a folder", dir)
	}
	rules, err := newRules(abs, include)
	if err != nil {
		return Summary{}, err
	}
	zip := gzip.NewWriter(w)
	p := &packer{root: abs, prefix: folderName(abs), rules: rules, out: tar.NewWriter(zip)}
	if err := p.folder(ctx, "", false); err != nil {
		return Summary{}, err
	}
	if err := errors.Join(p.out.Close(), zip.Close()); err != nil {
		return Summary{}, fmt.Errorf("write the archive: %w", err)
	}
	return p.sum, nil
}

// folderName returns the name of the archive's folder that contains everything.
func folderName(abs string) string {
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, filepath.Base(abs))
	if strings.Trim(name, ". ") == "" || strings.HasPrefix(name, "._") || name == "__MACOSX" {
		return "stack"
	}
	return name
}

// packer writes the archive of one folder.
type packer struct {
	root, prefix string
	rules        *rules
	out          *tar.Writer
	sum          Summary
}

// folder packs the content of a folder, given by its name below the root. ignored means
// that the rules exclude the folder, so that only what was asked for is packed.
func (p *packer) folder(ctx context.Context, name string, ignored bool) error {
	if err := p.rules.enter(name, ignored); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(p.root, filepath.FromSlash(name)))
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.entry(ctx, path.Join(name, e.Name()), e, ignored); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) entry(ctx context.Context, name string, e fs.DirEntry, ignored bool) error {
	out, err := p.rules.leavesOut(name, e.IsDir(), ignored)
	if err != nil {
		return err
	}
	if out && !ignored {
		p.sum.LeftOut = append(p.sum.LeftOut, name)
	}
	switch {
	case e.IsDir() && (!out || p.rules.mayIncludeBelow(name)):
		return p.folder(ctx, name, out)
	case !e.IsDir() && !out:
		return p.addFile(name)
	}
	return nil
}

// addFile packs a file or a link.
func (p *packer) addFile(name string) error {
	full := filepath.Join(p.root, filepath.FromSlash(name))
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
	return p.header(&tar.Header{
		Typeflag: tar.TypeSymlink, Name: name, Linkname: filepath.ToSlash(target), Mode: 0o777, ModTime: info.ModTime(),
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
	n, err := io.Copy(p.out, io.LimitReader(f, info.Size()))
	if err == nil && n < info.Size() {
		return fmt.Errorf("pack: %s became shorter while it was read; try again", name)
	}
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	p.sum.Files++
	p.sum.Bytes += n
	return nil
}

func (p *packer) header(h *tar.Header) error {
	h.Name = p.prefix + "/" + h.Name
	if err := p.out.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %s: %w", h.Name, err)
	}
	return nil
}
