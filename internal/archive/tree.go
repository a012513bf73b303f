package archive

import (
	"errors"
	"slices"
	"strings"
)

type nodeKind uint8

const (
	folderNode nodeKind = iota
	plainNode           // a regular file
	linkNode            // a symlink, which is on disk only at the end
)

// fileNode is a name in the unpacked tree. Several trees may have a hundred thousand
// each, so every word of it costs megabytes.
type fileNode struct {
	at     place
	kind   nodeKind
	size   int64  // of a file
	target string // of a symlink
	facts  *facts // of a file or folder whose entry is asked for
}

// place is the position of a node.
type place struct {
	parent *fileNode // nil for the root
	name   string
}

// path returns the node's name from the root, slash-separated; "." for the root.
func (n *fileNode) path() string {
	if n.at.parent == nil {
		return "."
	}
	return n.at.parent.join(n.at.name)
}

// join returns the path of a name in the folder n.
func (n *fileNode) join(name string) string {
	if n.at.parent == nil {
		return name
	}
	parts := []string{name}
	for ; n.at.parent != nil; n = n.at.parent {
		parts = append(parts, n.at.name)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "/")
}

// fileTree is what an archive has created so far. It is kept in memory so that no
// decision depends on the disk, where a link could mislead it.
type fileTree struct {
	root  *fileNode
	nodes map[place]*fileNode // all but the root; a map in each folder would take more memory than the names
	files int                 // regular files
	links []*fileNode
}

func newFileTree() *fileTree {
	return &fileTree{root: &fileNode{}, nodes: map[place]*fileNode{}}
}

// child returns the node with a name in a folder, or nil.
func (t *fileTree) child(parent *fileNode, name string) *fileNode {
	return t.nodes[place{parent, name}]
}

// addNode adds n to the tree. Names are cloned: they share memory with headers that may
// be far larger.
func (t *fileTree) addNode(parent *fileNode, name string, n fileNode) {
	n.at = place{parent, strings.Clone(name)}
	t.nodes[n.at] = &n
	switch n.kind {
	case plainNode:
		t.files++
	case linkNode:
		t.links = append(t.links, &n)
	}
}

func (t *fileTree) removeNode(n *fileNode) {
	delete(t.nodes, n.at)
	if n.kind == plainNode {
		t.files--
	}
}

// find returns the node at parts, or nil. It does not follow links.
func (t *fileTree) find(parts []string) *fileNode {
	n := t.root
	for _, part := range parts {
		if n = t.child(n, part); n == nil {
			return nil
		}
	}
	return n
}

// linked returns the file that a hard link may share. The error continues a sentence.
func (t *fileTree) linked(name string) (*fileNode, error) {
	parts, err := splitName(name)
	if err != nil {
		return nil, errors.New("which is not the name of a file in the archive")
	}
	switch n := t.find(parts); {
	case n == nil:
		return nil, errors.New("which does not come before it in the archive")
	case n.kind == linkNode:
		return nil, errors.New("which is a symlink")
	case n.kind == folderNode:
		return nil, errors.New("which is a folder")
	default:
		return n, nil
	}
}

// project returns the node that Root will find on disk once the links are created.
func (t *fileTree) project() *fileNode {
	var found *fileNode
	for at, n := range t.nodes {
		switch {
		case at.parent != t.root || isNoise(at.name):
		case found == nil && n.kind == folderNode:
			found = n
		default:
			return t.root
		}
	}
	if found == nil {
		return t.root
	}
	return found
}

// sortLinks removes from the tree the symlinks that lead out of the project, directly
// or through others, and symlinks that form a circle; these are outer. Both results keep
// the archive's order. It first removes symlinks that leave the archive, as they must
// not decide whether its only folder stands alone.
func (t *fileTree) sortLinks() (inner, outer []*fileNode) {
	inner, outer = t.dropOuter(t.links, t.root)
	if p := t.project(); p != t.root {
		kept, more := t.dropOuter(inner, p)
		return kept, append(outer, more...)
	}
	return inner, outer
}

func (t *fileTree) dropOuter(links []*fileNode, bound *fileNode) (inner, outer []*fileNode) {
	r := linkResolver{tree: t, bound: bound, known: make(map[*fileNode]spot, len(links))}
	for _, n := range links {
		if t.nodes[n.at] != n {
			continue // a later entry took its place
		}
		if r.follow(n).node != nil {
			inner = append(inner, n)
		} else {
			outer = append(outer, n)
		}
	}
	for _, n := range outer {
		t.removeNode(n)
	}
	return inner, outer
}

// spot is where a path leads: a node, or a number of levels below it that the archive
// does not have. A build may create those, so they count as folders.
type spot struct {
	node    *fileNode // nil: out of the bound, or in a circle
	missing int
}

// linkResolver follows symlinks through the tree as a kernel would, each link once.
type linkResolver struct {
	tree  *fileTree
	bound *fileNode
	known map[*fileNode]spot
}

// follow returns where the symlink n leads.
func (r *linkResolver) follow(n *fileNode) spot {
	if s, seen := r.known[n]; seen {
		return s
	}
	r.known[n] = spot{} // so that meeting it again on its own way is a circle
	if n.target[0] != '/' {
		r.known[n] = r.walk(spot{node: n.at.parent}, n.target)
	}
	return r.known[n]
}

func (r *linkResolver) walk(at spot, path string) spot {
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "", ".":
		case "..":
			at = r.up(at)
		default:
			at = r.down(at, part)
		}
		if at.node == nil {
			break
		}
	}
	return at
}

func (r *linkResolver) up(at spot) spot {
	switch {
	case at.missing > 0:
		return spot{at.node, at.missing - 1}
	case at.node == r.bound:
		return spot{}
	}
	return spot{node: at.node.at.parent} // nil above the root
}

func (r *linkResolver) down(at spot, name string) spot {
	if at.missing > 0 {
		return spot{at.node, at.missing + 1}
	}
	switch next := r.tree.child(at.node, name); {
	case next == nil:
		return spot{at.node, 1}
	case next.kind == linkNode:
		return r.follow(next)
	default:
		return spot{node: next}
	}
}
