package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/berth-host/berth/internal/safetext"
)

// MaxNames limits the names of all entries and the targets of all symlinks together, in
// bytes: they are in memory until the archive is unpacked. It also limits the paths of a
// tree that is listed.
const MaxNames = 32 << 20

// entry writes one entry of the archive to disk, drops it, or refuses it.
func (u *unpacker) entry(h *tar.Header) error {
	u.at = h.Name
	if err := u.count(); err != nil {
		return err
	}
	if err := u.chargeName(h.Name); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader || h.Typeflag == typeVolume {
		return nil
	}
	parts, err := splitName(h.Name)
	if err != nil {
		return u.explain(err)
	}
	if len(parts) == 0 && !isFolder(h) {
		return badArchive("the entry %s stands for the archive's root and must be a folder", safetext.Quote(u.at))
	}
	switch h.Typeflag {
	case tar.TypeDir, typeDumpDir:
		return u.folder(parts, h)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		if isFolder(h) {
			return u.folder(parts, h)
		}
		return u.file(parts, h)
	case tar.TypeSymlink:
		return u.symlink(parts, h)
	case tar.TypeLink:
		return u.hardLink(parts, h)
	case tar.TypeChar, tar.TypeBlock:
		u.lost.addLoss(safetext.Quote(u.at), "a device")
		return nil
	case tar.TypeFifo:
		u.lost.addLoss(safetext.Quote(u.at), "a FIFO")
		return nil
	default:
		return badArchive("the entry %s is of the unknown type %q", safetext.Quote(u.at), h.Typeflag)
	}
}

// GNU tar's own types that archive/tar has no names for.
const (
	typeVolume  = 'V' // a label, not a file
	typeDumpDir = 'D' // a folder, with a list of names as content
)

// isFolder reports whether h creates a folder. Old archives have no type for folders,
// only a slash at the end of the name.
func isFolder(h *tar.Header) bool {
	switch h.Typeflag {
	case tar.TypeDir, typeDumpDir:
		return true
	case tar.TypeReg, tar.TypeCont:
		return h.Size == 0 && strings.HasSuffix(h.Name, "/")
	}
	return false
}

func (u *unpacker) folder(parts []string, h *tar.Header) error {
	if len(parts) == 0 {
		return nil
	}
	parent, base, err := u.parentOf(parts)
	if err != nil {
		return err
	}
	mode := folderMode(h.Mode)
	n := u.tree.child(parent, base)
	if n == nil {
		return u.makeFolder(parent, base, u.noteFolder(mode, false), mode)
	}
	if n.kind != folderNode {
		return badArchive("the entry %s is a folder, but an earlier one of that name is not", safetext.Quote(u.at))
	}
	if err := u.checkOnce(n); err != nil {
		return err
	}
	n.facts = u.noteFolder(mode, false)
	dir, err := u.enter(parent)
	if err != nil {
		return err
	}
	return wrapDisk(dir.Chmod(base, mode))
}

func (u *unpacker) file(parts []string, h *tar.Header) error {
	if err := u.charge(h.Size); err != nil {
		return err
	}
	parent, base, err := u.replace(parts)
	if err != nil {
		return err
	}
	dir, err := u.enter(parent)
	if err != nil {
		return err
	}
	mode, modified := fileMode(h.Mode), u.fileTime(h.ModTime)
	if err := u.write(dir, base, mode); err != nil {
		return err
	}
	if err := dir.Chtimes(base, time.Time{}, modified); err != nil {
		return wrapDisk(err)
	}
	u.tree.addNode(parent, base, fileNode{kind: plainNode, size: h.Size, facts: u.noteFile(mode, modified)})
	return nil
}

// write copies the current entry's content to the new file name in dir.
func (u *unpacker) write(dir *os.Root, name string, mode fs.FileMode) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return wrapDisk(err)
	}
	if err := f.Chmod(mode); err != nil { // the umask may have taken bits
		f.Close()
		return wrapDisk(err)
	}
	u.in.free = true // bounded by the size that was charged
	err = u.copyTo(f)
	u.in.free = false
	if closed := f.Close(); err == nil {
		err = wrapDisk(closed)
	}
	return err
}

func (u *unpacker) copyTo(f *os.File) error {
	if u.sum != nil {
		u.sum.Reset()
	}
	for {
		if err := u.in.stopped(); err != nil { // a sparse file's holes never reach the stream
			return u.explain(err)
		}
		n, err := u.tr.Read(u.buf)
		if n > 0 {
			if err := u.room(); err != nil {
				return err
			}
			if _, err := f.Write(u.buf[:n]); err != nil {
				return wrapDisk(err)
			}
			if u.sum != nil {
				u.sum.Write(u.buf[:n])
			}
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return u.explain(err)
		}
	}
}

func (u *unpacker) symlink(parts []string, h *tar.Header) error {
	target := h.Linkname
	if target == "" || len(target) > maxTarget {
		return badArchive("the entry %s is a symlink with a target of %d bytes; 1 to %d are allowed", safetext.Quote(u.at), len(target), maxTarget)
	}
	if err := u.chargeName(target); err != nil {
		return err
	}
	parent, base, err := u.replace(parts)
	if err != nil {
		return err
	}
	u.tree.addNode(parent, base, fileNode{kind: linkNode, target: strings.Clone(target)})
	return nil
}

func (u *unpacker) hardLink(parts []string, h *tar.Header) error {
	to, err := u.tree.linked(h.Linkname)
	if err != nil {
		return badArchive("the entry %s is a hard link to %s, %v", safetext.Quote(u.at), safetext.Quote(h.Linkname), err)
	}
	if err := u.charge(to.size); err != nil {
		return err
	}
	if u.tree.find(parts) == to {
		return badArchive("the entry %s is a hard link to itself", safetext.Quote(u.at))
	}
	parent, base, err := u.replace(parts)
	if err != nil {
		return err
	}
	switch err := u.root.Link(to.path(), parent.join(base)); {
	case errors.Is(err, syscall.EMLINK):
		return badArchive("the entry %s is one hard link too many: this host's disk allows no more to %s; send copies or symlinks instead", safetext.Quote(u.at), safetext.Quote(h.Linkname))
	case err != nil:
		return wrapDisk(err)
	}
	u.tree.addNode(parent, base, fileNode{kind: plainNode, size: to.size, facts: to.facts})
	return nil
}

// replace makes room for a file or link: it creates the folders above and removes an
// earlier file or link of the same name, since a later entry wins.
func (u *unpacker) replace(parts []string) (parent *fileNode, base string, err error) {
	parent, base, err = u.parentOf(parts)
	if err != nil {
		return nil, "", err
	}
	old := u.tree.child(parent, base)
	if old == nil {
		return parent, base, nil
	}
	if old.kind == folderNode {
		return nil, "", badArchive("the entry %s is not a folder, but an earlier one of that name is", safetext.Quote(u.at))
	}
	if err := u.checkOnce(old); err != nil {
		return nil, "", err
	}
	if old.kind == plainNode {
		dir, err := u.enter(parent)
		if err != nil {
			return nil, "", err
		}
		if err := dir.Remove(base); err != nil {
			return nil, "", wrapDisk(err)
		}
	}
	u.tree.removeNode(old)
	return parent, base, nil
}

// parentOf returns the folder of an entry and creates the folders that no entry
// announced.
func (u *unpacker) parentOf(parts []string) (parent *fileNode, base string, err error) {
	at := u.tree.root
	for _, part := range parts[:len(parts)-1] {
		next := u.tree.child(at, part)
		if next == nil {
			if err := u.count(); err != nil {
				return nil, "", err
			}
			if err := u.makeFolder(at, part, u.noteFolder(0o755, true), 0o755); err != nil {
				return nil, "", err
			}
			next = u.tree.child(at, part)
		}
		if next.kind != folderNode {
			return nil, "", badArchive("the entry %s lies below %s, which is not a folder", safetext.Quote(u.at), safetext.Quote(next.path()))
		}
		at = next
	}
	return at, parts[len(parts)-1], nil
}

func (u *unpacker) makeFolder(parent *fileNode, base string, about *facts, mode fs.FileMode) error {
	dir, err := u.enter(parent)
	if err != nil {
		return err
	}
	if err := dir.Mkdir(base, mode); err != nil {
		return wrapDisk(err)
	}
	if err := dir.Chmod(base, mode); err != nil {
		return wrapDisk(err)
	}
	u.tree.addNode(parent, base, fileNode{kind: folderNode, facts: about})
	return nil
}

// makeLinks creates the symlinks on disk, last of all, so that nothing was ever written
// through one. It does not create symlinks that lead out.
func (u *unpacker) makeLinks() error {
	inner, outer := u.tree.sortLinks()
	for _, n := range outer {
		u.lost.addOuter(n.path(), n.target)
	}
	for _, n := range inner {
		if err := u.room(); err != nil {
			return err
		}
		dir, err := u.enter(n.at.parent)
		if err != nil {
			return err
		}
		if err := dir.Symlink(n.target, n.at.name); err != nil {
			return wrapDisk(err)
		}
	}
	return nil
}

// enter opens a folder of the tree, and keeps it open until the next one.
func (u *unpacker) enter(n *fileNode) (*os.Root, error) {
	if n.at.parent == nil {
		return u.root, nil
	}
	if u.here == n {
		return u.dir, nil
	}
	dir, err := u.root.OpenRoot(n.path())
	if err != nil {
		return nil, wrapDisk(err)
	}
	u.leave()
	u.here, u.dir = n, dir
	return dir, nil
}

func (u *unpacker) leave() {
	if u.dir != nil {
		u.dir.Close()
	}
	u.here, u.dir = nil, nil
}

func (u *unpacker) fileTime(t time.Time) time.Time {
	switch {
	case t.After(u.now):
		return u.now
	case t.Unix() < 0:
		return time.Unix(0, 0)
	}
	return t
}

func fileMode(mode int64) fs.FileMode   { return fs.FileMode(mode)&0o755 | 0o600 }
func folderMode(mode int64) fs.FileMode { return fs.FileMode(mode)&0o755 | 0o700 }

// wrapDisk marks an error of the server's own disk.
func wrapDisk(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("unpack: %w", err)
}
