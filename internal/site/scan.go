package site

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/hostfault"
)

// A folder may be this deep and a path this long; what lies beyond is not served. Both
// limit the cost of a hostile tree. The Extent of a published site depends on them and
// on servable, and is stored: after a change here, sites published before would count
// as broken.
const (
	maxDepth = 64
	maxPath  = 2048
)

// tree is the part of a folder that may be served.
type tree struct {
	files map[string]*file  // by path
	links map[string]string // path of a symlinked folder -> path of the folder
}

// extent returns the size of the tree.
func (t tree) extent() Extent {
	e := Extent{Files: len(t.files) + len(t.links)}
	for _, f := range t.files {
		e.Bytes += f.plain.size
	}
	return e
}

// inode identifies a file, whatever its names.
type inode struct{ dev, ino uint64 }

// scanner walks a folder without following links: it looks at links last, when it knows
// all of their possible targets. It reads several folders at once.
type scanner struct {
	root   *os.Root
	hidden []string // names in the root that are left out
	group  *errgroup.Group

	mu      sync.Mutex
	found   tree
	regular map[inode]*file
	folders map[inode]string
	linked  []string
}

// scan reads the tree below root: regular files, and links to one of them or to a
// folder of the tree. It ignores everything else, and what has a hidden name in the root.
func scan(ctx context.Context, root *os.Root, hidden []string) (tree, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	s := scanner{
		root:    root,
		hidden:  hidden,
		group:   group,
		found:   tree{files: map[string]*file{}, links: map[string]string{}},
		regular: map[inode]*file{},
		folders: map[inode]string{},
	}
	group.Go(func() error { return s.folder(ctx, root, "", 0) })
	if err := group.Wait(); err != nil {
		return tree{}, err
	}
	for _, name := range s.linked {
		if err := s.link(name); err != nil {
			return tree{}, err
		}
	}
	attachCoded(s.found.files)
	return s.found, nil
}

// folder adds the content of dir; prefix is dir's path with a slash at its end, or ""
// for the root.
func (s *scanner) folder(ctx context.Context, dir *os.Root, prefix string, depth int) error {
	handle, err := dir.Open(".")
	if err != nil {
		return fmt.Errorf("open folder %q: %w", prefix, err)
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return fmt.Errorf("stat folder %q: %w", prefix, err)
	}
	s.mu.Lock()
	s.folders[inodeOf(info)] = strings.TrimSuffix(prefix, "/")
	s.mu.Unlock()
	entries, err := handle.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("read folder %q: %w", prefix, err)
	}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.entry(ctx, dir, prefix, entry, depth); err != nil {
			return err
		}
	}
	return nil
}

// entry adds one file, remembers one link or descends into one folder.
func (s *scanner) entry(ctx context.Context, dir *os.Root, prefix string, entry fs.DirEntry, depth int) error {
	path := prefix + entry.Name()
	if !servable(prefix, entry.Name()) || prefix == "" && slices.Contains(s.hidden, entry.Name()) {
		return nil
	}
	switch entry.Type() {
	case 0:
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("stat %q: %w", path, err)
		}
		f := newFile(path, path, info)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.found.files[path] = f
		s.regular[inodeOf(info)] = f
	case fs.ModeSymlink:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.linked = append(s.linked, path)
	case fs.ModeDir:
		if depth == maxDepth {
			return nil
		}
		child, err := dir.OpenRoot(entry.Name())
		if err != nil {
			return fmt.Errorf("open folder %q: %w", path, err)
		}
		read := func() error {
			defer child.Close()
			return s.folder(ctx, child, path+"/", depth+1)
		}
		if !s.group.TryGo(read) {
			return read()
		}
	}
	return nil
}

// link adds a symbolic link if its target was already found, and so is never hidden or
// outside the folder. It ignores a broken or circular link; a fault of the host is an
// error.
func (s *scanner) link(path string) error {
	info, err := s.root.Stat(path)
	if hostfault.Is(err) {
		return fmt.Errorf("follow link %q: %w", path, err)
	}
	if err != nil {
		return nil
	}
	if target, ok := s.regular[inodeOf(info)]; ok {
		s.found.files[path] = newFile(path, target.plain.path, info)
	} else if target, ok := s.folders[inodeOf(info)]; ok {
		s.found.links[path] = target
	}
	return nil
}

// servable reports whether a name may appear in a URL: no hidden name but /.well-known,
// and nothing that a browser or a log could read as another path.
func servable(prefix, name string) bool {
	if name[0] == '.' && !(prefix == "" && name == wellKnown) {
		return false
	}
	return len(prefix)+len(name) <= maxPath && !strings.ContainsFunc(name, isHostile)
}

const wellKnown = ".well-known"

// isHostile reports whether c is a backslash or a control character.
func isHostile(c rune) bool { return c == '\\' || c < ' ' || c == 0x7f }

// attachCoded ties each precompressed file to the one it is a form of.
func attachCoded(files map[string]*file) {
	for name, f := range files {
		for c, suffix := range suffixes {
			base, ok := strings.CutSuffix(name, suffix)
			if plain := files[base]; ok && plain != nil {
				plain.coded[c] = &f.plain
			}
		}
	}
}

// inodeOf identifies the file that info describes, across all of its names.
func inodeOf(info fs.FileInfo) inode {
	st := info.Sys().(*syscall.Stat_t)
	return inode{dev: uint64(st.Dev), ino: st.Ino}
}

// changed returns when a file came to be as it is. The modification time will not do:
// archives repeat it, even for other content, from one generation to the next, and a
// client that asks by date would keep the old file.
func changed(info fs.FileInfo) time.Time {
	return time.Unix(info.Sys().(*syscall.Stat_t).Ctim.Unix())
}
