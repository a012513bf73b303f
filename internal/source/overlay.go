package source

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/docker/go-units"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// Changes is what an upload changes in a source.
type Changes struct {
	Archive io.Reader // tar or tar.gz of the new files, by their paths in the source; nil for none
	Delete  []string  // paths to remove before, folders with all in them

	// KeepModes gives a file that replaces another the mode of that one, for uploads
	// whose modes are guesses. What the upload makes executable is.
	KeepModes bool
}

// Overlay makes a new source in dir, an empty folder: the base without what is deleted,
// and the archive over it. What was left out is for the build log. A fault of the upload
// is an Unprocessable *stack.Error that names it, and a base that is not as it was kept
// is one of kind Conflict. After an error the caller removes dir. The base stays as it
// is.
func (s *Source) Overlay(ctx context.Context, c Changes, dir string, lim archive.Limits) (*Source, []stack.Lost, error) {
	if err := os.Mkdir(Tree(dir), 0o700); err != nil {
		return nil, nil, fmt.Errorf("lay an upload over the source: %w", err)
	}
	var changed []Entry
	var lost []stack.Lost
	if c.Archive != nil {
		var err error
		if changed, lost, err = archive.UnpackChanges(ctx, c.Archive, Tree(dir), lim); err != nil {
			return nil, nil, fmt.Errorf("lay an upload over the source: %w", err)
		}
	}
	m := &merge{base: s, keepModes: c.KeepModes, own: make(map[string]Entry, len(changed)), hidden: map[string]Entry{}}
	if err := m.merge(changed, c.Delete); err != nil {
		return nil, nil, err
	}
	lost = append(lost, archive.LostLinks(m.dropOuterLinks())...)
	if err := checkLimits(m.made, lim); err != nil {
		return nil, nil, err
	}
	if err := m.lay(ctx, m.made, Tree(dir), lim.Room); err != nil {
		return nil, nil, err
	}
	laid := newSource(dir, m.made)
	laid.laid, laid.written = true, m.written
	return laid, lost, nil
}

// checkLimits checks the result of an overlay against the limits of a whole upload.
func checkLimits(entries []Entry, lim archive.Limits) error {
	files, size, names := 0, int64(0), 0
	for i := range entries {
		names += len(entries[i].Path)
		if entries[i].Mode.IsRegular() {
			files++
			size += entries[i].Size
		}
	}
	switch {
	case files == 0:
		return unfit("no files are left in the source with these changes; keep or send at least one")
	case len(entries) > lim.MaxEntries:
		return unfit("with these changes the source has %d files and folders, and %d are allowed; leave out or delete what the build installs, such as node_modules", len(entries), lim.MaxEntries)
	case size > lim.MaxUnpacked:
		return unfit("with these changes the source takes %s, over the limit of %s unpacked; delete files that are no longer needed",
			units.HumanSize(float64(size)), units.HumanSize(float64(lim.MaxUnpacked)))
	case names > archive.MaxNames:
		return unfit("with these changes the paths of all files and folders take more than %d MiB together; give them shorter names and fewer folders", archive.MaxNames>>20)
	}
	return nil
}

// merge lays the listing of an upload over that of a base.
type merge struct {
	base      *Source
	keepModes bool
	made      []Entry          // the result, sorted by path
	own       map[string]Entry // what the upload made of it, as it made it
	hidden    map[string]Entry // what the upload's symlinks replace in the base
	written   []string         // the upload's files
}

// merge fills in the result.
func (m *merge) merge(changed []Entry, remove []string) error {
	gone, err := m.base.marked(remove)
	if err != nil {
		return err
	}
	m.made = make([]Entry, 0, len(m.base.entries)+len(changed))
	for i := range m.base.entries {
		old := m.base.entries[i]
		for len(changed) > 0 && changed[0].Path < old.Path {
			m.add(changed[0], Entry{})
			changed = changed[1:]
		}
		replaced := len(changed) > 0 && changed[0].Path == old.Path
		switch {
		case replaced && !gone[i] && old.Mode.IsDir() != changed[0].Mode.IsDir():
			return m.conflict(old, changed[0])
		case replaced && gone[i]:
			m.add(changed[0], Entry{})
		case replaced:
			m.add(changed[0], old)
		case !gone[i]:
			m.made = append(m.made, old)
		}
		if replaced {
			changed = changed[1:]
		}
	}
	for _, e := range changed {
		m.add(e, Entry{})
	}
	return nil
}

// add adds an entry of the upload in place of an old one, whose Path is "" if there is
// none.
func (m *merge) add(e, old Entry) {
	m.own[e.Path] = e
	if e.Mode.IsRegular() {
		m.written = append(m.written, e.Path)
	}
	if e.Mode&fs.ModeSymlink != 0 && old.Path != "" {
		m.hidden[e.Path] = old
	}
	switch {
	case old.Path == "":
	case e.Implied:
		e.Mode = old.Mode
	case m.keepModes && e.Mode.IsRegular() && old.Mode.IsRegular():
		e.Mode = old.Mode | e.Mode&0o111
	}
	e.Implied = false
	m.made = append(m.made, e)
}

// dropOuterLinks removes from the result the symlinks that lead out of it, and returns
// them. First those of the upload: the base's entry of that name stays, and what leads
// through that may be fine.
func (m *merge) dropOuterLinks() []Entry {
	outer := archive.OuterLinks(m.made)
	if len(outer) == 0 {
		return nil
	}
	var dropped []Entry
	gone := map[string]bool{}
	for _, e := range outer {
		if _, own := m.own[e.Path]; !own {
			continue
		}
		delete(m.own, e.Path)
		dropped = append(dropped, e)
		if old, hides := m.hidden[e.Path]; hides {
			i, _ := slices.BinarySearchFunc(m.made, e.Path, func(e Entry, path string) int { return strings.Compare(e.Path, path) })
			m.made[i] = old
		} else {
			gone[e.Path] = true
		}
	}
	m.remove(gone)
	clear(gone)
	for _, e := range archive.OuterLinks(m.made) {
		dropped = append(dropped, e)
		gone[e.Path] = true
	}
	m.remove(gone)
	return dropped
}

// remove removes paths from the result.
func (m *merge) remove(gone map[string]bool) {
	m.made = slices.DeleteFunc(m.made, func(e Entry) bool { return gone[e.Path] })
}

// conflict returns the error for a folder in place of something else, or the other way
// round.
func (m *merge) conflict(old, changed Entry) error {
	return unfit("%s is %s in the source and %s in this upload; delete it in the same request to replace it",
		safetext.Quote(old.Path), kindOf(old.Mode), kindOf(changed.Mode))
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeSymlink != 0:
		return "a symlink"
	}
	return "a file"
}

// marked returns for each entry whether it is at or below one of the paths.
func (s *Source) marked(paths []string) ([]bool, error) {
	gone := make([]bool, len(s.entries))
	seen := make(map[string]bool, len(paths))
	for _, name := range paths {
		clean, err := cleanPath(name)
		if err != nil {
			return nil, err
		}
		i, found := s.index(clean)
		switch {
		case seen[clean]:
			return nil, unfit("%s is to be deleted twice; name each path once", safetext.Quote(name))
		case !found:
			return nil, unfit("%s is to be deleted, but it is not in the source; leave it out, or name it as the listing of the source does", safetext.Quote(name))
		}
		seen[clean], gone[i] = true, true
		from, to := s.span(clean)
		for ; from < to; from++ {
			gone[from] = true
		}
	}
	return gone, nil
}

// cleanPath returns a path as the listing writes it. "./a/" is the same as "a".
func cleanPath(name string) (string, error) {
	clean := path.Clean(name)
	switch {
	case name == "" || clean == ".":
		return "", unfit("%s is to be deleted, and that is the whole source; send the new source whole instead, without base", safetext.Quote(name))
	case strings.HasPrefix(clean, "/") || strings.Contains("/"+name+"/", "/../"):
		return "", unfit("%s is to be deleted, and it leads out of the source; name it as the listing of the source does", safetext.Quote(name))
	}
	return clean, nil
}

func unfit(format string, args ...any) error {
	return stack.NewError(stack.Unprocessable, fmt.Sprintf(format, args...))
}
