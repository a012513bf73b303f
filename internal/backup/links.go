package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// linkTree finds out where symbolic links lead as a kernel does, through each other: uploads may have
// links that stay inside only because of what others are, and the text of such a link does not
// show it.
type linkTree struct {
	top   place // the folder of the backup
	known map[*place]spot
}

// place is a name on the way to a link, or a link.
type place struct {
	parent *place // nil for the folder of the backup
	below  map[string]*place
	target string // of a link; "" for a folder
}

// spot is where a path leads: a place, or a number of folders below one that has no links. The zero
// spot leads out.
type spot struct {
	at     *place
	deep   int
	circle bool // it leads nowhere, and at is nil
}

// errOut is why a link is not part of a backup.
var errOut = errors.New("it leads out of the data directory, or nowhere")

// add notes a link.
func (l *linkTree) add(name, target string) *place {
	at := &l.top
	for part := range strings.SplitSeq(name, "/") {
		if at.below == nil {
			at.below = map[string]*place{}
		}
		next := at.below[part]
		if next == nil {
			next = &place{parent: at}
			at.below[part] = next
		}
		at = next
	}
	at.target = target
	return at
}

// stays reports whether a link that was added leads to a place in the folder at the top of its name,
// once all are added.
func (l *linkTree) stays(link *place) bool {
	return l.follow(link).at != nil
}

// leaves reports whether a link that was added leads out of the folder at the top of its name, once
// all are added.
func (l *linkTree) leaves(link *place) bool {
	s := l.follow(link)
	return s.at == nil && !s.circle
}

func (l *linkTree) follow(link *place) spot {
	if l.known == nil {
		l.known = map[*place]spot{}
	}
	if s, is := l.known[link]; is {
		return s
	}
	l.known[link] = spot{circle: true} // to meet it again on its own way is one
	s := spot{}
	if !path.IsAbs(link.target) {
		s = l.walk(link.parent, link.target)
	}
	l.known[link] = s
	return s
}

func (l *linkTree) walk(from *place, target string) spot {
	s := spot{at: from}
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			s = l.up(s)
		default:
			s = l.down(s, part)
		}
		if s.at == nil {
			break
		}
	}
	return s
}

func (l *linkTree) up(s spot) spot {
	switch {
	case s.deep > 0:
		return spot{at: s.at, deep: s.deep - 1}
	case s.at.parent == nil || s.at.parent.parent == nil: // of the folder at the top
		return spot{}
	}
	return spot{at: s.at.parent}
}

func (l *linkTree) down(s spot, name string) spot {
	next := s.at.below[name]
	switch {
	case s.deep > 0:
		return spot{at: s.at, deep: s.deep + 1}
	case next == nil:
		return spot{at: s.at, deep: 1}
	case next.target != "":
		return l.follow(next)
	}
	return spot{at: next}
}

// checkLinks refuses a link that leads out of the folder at the top of its name. One in a circle does
// no harm, and backups of before have them.
func (m *Manifest) checkLinks() error {
	all := &linkTree{}
	places := map[string]*place{}
	for _, e := range m.Entries {
		if e.Mode.Type() == fs.ModeSymlink {
			places[e.Name] = all.add(e.Name, e.Link)
		}
	}
	for name, link := range places {
		if all.leaves(link) {
			return fmt.Errorf("the entry %q: %w", name, errOut)
		}
	}
	return nil
}
