// Package pack creates the archive of a folder for a deploy.
//
// It packs what .gitignore files and the folder's .dockerignore do not exclude. It
// excludes .git, node_modules and files whose names begin with .env unless the caller
// asks for them. It packs symbolic links as links, and no devices and sockets. The same
// folder gives the same entries in the same order. It only reads the folder.
package pack

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"
)

// Summary describes what was packed.
type Summary struct {
	Files   int
	Bytes   int64           // of the files, before compression
	LeftOut []string        // as of a Tree
	Packed  map[string]File // by name; hashed while they were packed
}

// Write packs a folder as tar.gz into w; see Scan and Tree.Write.
func Write(ctx context.Context, dir string, include []string, w io.Writer) (Summary, error) {
	t, err := Scan(ctx, dir, include)
	if err != nil {
		return Summary{}, err
	}
	return t.Write(ctx, w)
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

// scanner finds what is packed of one folder.
type scanner struct {
	tree  *Tree
	rules *rules
}

// folder adds the content of a folder, given by its name below the root. ignored means
// that the rules exclude the folder, so that only what was asked for is packed.
func (s *scanner) folder(ctx context.Context, name string, ignored bool) error {
	if err := s.rules.enter(name, ignored); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(s.tree.root, filepath.FromSlash(name)))
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.entry(ctx, path.Join(name, e.Name()), e, ignored); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) entry(ctx context.Context, name string, e fs.DirEntry, ignored bool) error {
	out, err := s.rules.leavesOut(name, e.IsDir(), ignored)
	if err != nil {
		return err
	}
	if out && !ignored {
		s.tree.LeftOut = append(s.tree.LeftOut, name)
	}
	switch {
	case e.IsDir() && (!out || s.rules.mayIncludeBelow(name)):
		return s.folder(ctx, name, out)
	case !e.IsDir() && !out:
		s.tree.names = append(s.tree.names, name)
	}
	return nil
}
