package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/stack"
)

// Entry is a file, folder or symlink of a source.
type Entry = archive.Entry

// Manifest is a manifest as a request gave it, apart from the source.
type Manifest struct {
	Name   string // of its file, for messages
	Sealed []byte // its text, which may hold secrets, sealed by the caller; nil if the request brought none
}

// Source is a tree of files on disk and its listing. It does not change.
type Source struct {
	dir      string
	entries  []Entry
	digest   string
	manifest Manifest
	laid     bool     // by Overlay
	written  []string // paths of the files that Overlay has not linked
}

// New unpacks a tar or tar.gz as a whole source into dir, an empty folder. A single
// folder in the archive's root is stripped (see archive.Root); its name is returned.
// What was left out is for the build log. Errors are like those of archive.Unpack; after
// one, the caller removes dir.
func New(ctx context.Context, r io.Reader, dir string, lim archive.Limits) (s *Source, name string, lost []stack.Lost, err error) {
	unpacked := filepath.Join(dir, "unpacked")
	if err := os.Mkdir(unpacked, 0o700); err != nil {
		return nil, "", nil, fmt.Errorf("unpack the source: %w", err)
	}
	entries, lost, err := archive.UnpackListed(ctx, r, unpacked, lim)
	if err != nil {
		return nil, "", nil, fmt.Errorf("unpack the source: %w", err)
	}
	root, name, err := archive.Root(unpacked)
	if err != nil {
		return nil, "", nil, err
	}
	s = newSource(dir, below(entries, name))
	if err := os.Rename(root, s.Tree()); err != nil {
		return nil, "", nil, fmt.Errorf("unpack the source: %w", err)
	}
	if name != "" { // only what macOS adds is left beside the project's folder
		err = os.RemoveAll(unpacked)
	}
	return s, name, lost, err
}

// below returns the entries in a folder of the root, without its name; all for "".
func below(entries []Entry, folder string) []Entry {
	if folder == "" {
		return entries
	}
	prefix := folder + "/"
	inside := make([]Entry, 0, len(entries))
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Path, prefix); ok {
			e.Path = rest
			inside = append(inside, e)
		}
	}
	return inside
}

// newSource returns the source in dir whose tree has the entries, sorted by path.
func newSource(dir string, entries []Entry) *Source {
	h := sha256.New()
	WriteListing(h, entries, func(string) bool { return false })
	return &Source{dir: dir, entries: entries, digest: hex.EncodeToString(h.Sum(nil))}
}

// WriteListing writes entries as they count in a digest into a hash, except those whose
// paths without accepts.
func WriteListing(h hash.Hash, entries []Entry, without func(path string) bool) {
	var line []byte
	for i := range entries {
		if !without(entries[i].Path) {
			line = append(appendEntry(line[:0], &entries[i]), '\n')
			h.Write(line)
		}
	}
}

// Dir returns the source's folder.
func (s *Source) Dir() string { return s.dir }

// Tree returns the folder of the project's files.
func (s *Source) Tree() string { return Tree(s.dir) }

// Tree returns the folder of the project's files in a source's folder.
func Tree(dir string) string { return filepath.Join(dir, "tree") }

// Digest returns the digest of the tree: 64 hexadecimal digits.
func (s *Source) Digest() string { return s.digest }

// Entries returns what is in the tree, sorted by path. The caller does not change it.
func (s *Source) Entries() []Entry { return s.entries }

// Manifest returns the manifest that the source was saved with.
func (s *Source) Manifest() Manifest { return s.manifest }

// Synced reports whether all of the source is on disk, of one that was just saved.
func (s *Source) Synced() bool { return s.laid }

// Written returns the paths of the files that Overlay took from the upload.
func (s *Source) Written() []string { return s.written }

// Find returns the entry at a path, which is written as in the listing.
func (s *Source) Find(name string) (Entry, bool) {
	i, found := s.index(name)
	if !found {
		return Entry{}, false
	}
	return s.entries[i], true
}

// Below returns the entries in a folder at every depth; all for "".
func (s *Source) Below(folder string) []Entry {
	if folder == "" {
		return s.entries
	}
	from, to := s.span(folder)
	return s.entries[from:to]
}

// index returns where the entry at a path is, or would be.
func (s *Source) index(name string) (int, bool) {
	return slices.BinarySearchFunc(s.entries, name, func(e Entry, name string) int { return strings.Compare(e.Path, name) })
}

// span returns where the entries in a folder begin and end.
func (s *Source) span(folder string) (from, to int) {
	from, _ = s.index(folder + "/")
	to, _ = s.index(folder + "0") // the character after the slash
	return from, to
}

// Open opens a file of the source.
func (s *Source) Open(e Entry) (*os.File, error) {
	root, err := os.OpenRoot(s.Tree())
	if err != nil {
		return nil, damaged(err)
	}
	defer root.Close()
	f, err := root.Open(e.Path)
	if err != nil {
		return nil, damaged(err)
	}
	info, err := f.Stat()
	if err == nil {
		err = differs(&e, info)
	}
	if err != nil {
		f.Close()
		return nil, damaged(err)
	}
	return f, nil
}

// Check compares kinds, modes, sizes and times of all files with the listing. It does
// not read their contents.
func (s *Source) Check() error {
	root, err := os.OpenRoot(s.Tree())
	if err != nil {
		return damaged(err)
	}
	defer root.Close()
	for i := range s.entries {
		info, err := root.Lstat(s.entries[i].Path)
		if err == nil {
			err = differs(&s.entries[i], info)
		}
		if err != nil {
			return damaged(err)
		}
	}
	return nil
}

// differs returns how what is on disk differs from its entry, nil if it does not.
func differs(e *Entry, info fs.FileInfo) error {
	same := info.Mode().Type() == e.Mode.Type()
	if same && e.Mode.IsRegular() {
		same = info.Size() == e.Size && info.ModTime().Unix() == e.Modified && info.Mode().Perm() == e.Mode.Perm()
	}
	if !same {
		return fmt.Errorf("%s is not as it was kept", e.Path)
	}
	return nil
}

// damaged returns the error for a source that is gone or not as it was kept.
func damaged(cause error) error {
	return fmt.Errorf("%w (%w)", stack.NewError(stack.Conflict,
		"the kept source of this stack is gone or damaged; send the whole source, without base"), cause)
}
