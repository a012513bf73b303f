package pack

import (
	"maps"
	"path"
	"slices"
)

// Diff is what makes one tree of files another.
type Diff struct {
	Send   []string // new and changed files
	Remove []string // files that are gone, or the outermost folders with nothing left in them
}

// NewDiff returns what makes the tree base the tree now, sorted.
func NewDiff(base, now map[string]File) Diff {
	var d Diff
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if was, there := base[name]; !there || was != now[name] {
			d.Send = append(d.Send, name)
		}
	}
	folders := map[string]bool{".": true} // that still have files
	for name := range now {
		for up := path.Dir(name); !folders[up]; up = path.Dir(up) {
			folders[up] = true
		}
	}
	gone := map[string]bool{}
	for name := range base {
		if _, there := now[name]; !there {
			gone[outermost(name, folders)] = true
		}
	}
	d.Remove = slices.Sorted(maps.Keys(gone))
	return d
}

// outermost returns the outermost folder above a removed file that has no files left, or
// the file itself.
func outermost(name string, folders map[string]bool) string {
	for up := path.Dir(name); !folders[up]; up = path.Dir(up) {
		name = up
	}
	return name
}
