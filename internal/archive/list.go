package archive

import (
	"context"
	"crypto/sha256"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// Entry is a file, folder or symlink of an unpacked tree.
type Entry struct {
	Path     string            // slash-separated, from the root of the tree
	Mode     fs.FileMode       // kind and permissions; those of a symlink are 0777
	Size     int64             // of a file, in bytes
	Sum      [sha256.Size]byte // of a file's content
	Modified int64             // of a file, in Unix seconds
	Target   string            // of a symlink
	Implied  bool              // of changes: a folder that only stood in the names of other entries
}

// facts is what an Entry has of a file or folder beyond the node in the tree.
type facts struct {
	mode     fs.FileMode
	modified int64
	implied  bool
	sum      [sha256.Size]byte
}

// UnpackListed is like Unpack and also returns what it made, sorted by path. The files
// are hashed while they are written. It refuses an archive whose paths take more than
// 32 MiB together.
func UnpackListed(ctx context.Context, r io.Reader, dir string, lim Limits) ([]Entry, []stack.Lost, error) {
	return unpackListed(ctx, r, dir, unpacker{lim: lim, sum: sha256.New()})
}

// UnpackChanges is like UnpackListed for an archive that is laid over another tree. It
// refuses an archive that names a path twice, accepts one without files, and does not
// create the symlinks: where they lead depends on both trees (see OuterLinks).
func UnpackChanges(ctx context.Context, r io.Reader, dir string, lim Limits) ([]Entry, []stack.Lost, error) {
	return unpackListed(ctx, r, dir, unpacker{lim: lim, sum: sha256.New(), once: true})
}

func unpackListed(ctx context.Context, r io.Reader, dir string, what unpacker) ([]Entry, []stack.Lost, error) {
	u, err := unpack(ctx, r, dir, what)
	if err != nil {
		return nil, nil, err
	}
	return u.made, u.lost.list(), nil
}

// noteFolder returns the facts of a folder; nil unless the entries are asked for.
func (u *unpacker) noteFolder(mode fs.FileMode, implied bool) *facts {
	if u.sum == nil {
		return nil
	}
	return &facts{mode: fs.ModeDir | mode, implied: implied && u.once}
}

// noteFile returns the facts of the file that was written last; nil unless the entries
// are asked for.
func (u *unpacker) noteFile(mode fs.FileMode, modified time.Time) *facts {
	if u.sum == nil {
		return nil
	}
	f := &facts{mode: mode, modified: modified.Unix()}
	u.sum.Sum(f.sum[:0])
	return f
}

// checkOnce refuses an entry for a node that another entry has made, where each path may
// be named only once.
func (u *unpacker) checkOnce(n *fileNode) error {
	if !u.once || n.kind == folderNode && n.facts.implied {
		return nil
	}
	return badArchive("the path %s is in the archive twice; send each path once", safetext.Quote(u.at))
}

// entries returns the tree's entries, sorted by path.
func (t *fileTree) entries() ([]Entry, error) {
	all := make([]Entry, 0, len(t.nodes))
	length := 0
	for _, n := range t.nodes {
		e := n.entry()
		if length += len(e.Path); length > MaxNames {
			return nil, badArchive("the paths of all files and folders take more than %d MiB together; give them shorter names and fewer folders", MaxNames>>20)
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// entry returns the node as an Entry.
func (n *fileNode) entry() Entry {
	if n.kind == linkNode {
		return Entry{Path: n.path(), Mode: fs.ModeSymlink | 0o777, Target: n.target}
	}
	f := n.facts
	return Entry{Path: n.path(), Mode: f.mode, Size: n.size, Sum: f.sum, Modified: f.modified, Implied: f.implied}
}

// OuterLinks returns the symlinks of a tree, sorted by path, that lead out of it,
// directly or through others, and links that form a circle.
func OuterLinks(entries []Entry) []Entry {
	isLink := func(e Entry) bool { return e.Mode&fs.ModeSymlink != 0 }
	if !slices.ContainsFunc(entries, isLink) {
		return nil
	}
	tree := treeOf(entries)
	_, outer := tree.dropOuter(tree.links, tree.root)
	links := make([]Entry, len(outer))
	for i, n := range outer {
		links[i] = n.entry()
	}
	return links
}

// LostLinks returns the first of the symlinks that were left out since they lead out, for
// the build log.
func LostLinks(links []Entry) []stack.Lost {
	var lost losses
	for _, e := range links {
		lost.addOuter(e.Path, e.Target)
	}
	return lost.list()
}

// treeOf returns the tree of entries that are sorted by path, so that each folder comes
// before what is in it.
func treeOf(entries []Entry) *fileTree {
	t := newFileTree()
	folders := map[string]*fileNode{"": t.root}
	for _, e := range entries {
		at := strings.LastIndexByte(e.Path, '/')
		parent, name := folders[e.Path[:max(at, 0)]], e.Path[at+1:]
		node := fileNode{kind: plainNode}
		switch {
		case e.Mode.IsDir():
			node.kind = folderNode
		case e.Mode&fs.ModeSymlink != 0:
			node = fileNode{kind: linkNode, target: e.Target}
		}
		t.addNode(parent, name, node)
		if e.Mode.IsDir() {
			folders[e.Path] = t.child(parent, name)
		}
	}
	return t
}
