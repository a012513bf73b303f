package archive

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/berth-host/berth/internal/safetext"
)

// Limits of a name, below Linux's own, so that the same tree fits under any folder of
// the server and of a container.
const (
	maxName   = 4000 // bytes of a whole name
	maxPart   = 255  // bytes between two slashes
	maxDepth  = 64   // parts of a name; each costs a step on disk
	maxTarget = 4000 // bytes of a symlink's target
)

// splitName checks an entry's name and returns its parts, none for the root.
func splitName(name string) ([]string, error) {
	if strings.HasPrefix(name, "/") {
		return nil, leavesRoot(name, "begins with a slash")
	}
	if fault := nameFault(name); fault != "" {
		return nil, badArchive("the entry %s %s", safetext.Quote(name), fault)
	}
	parts := make([]string, 0, strings.Count(name, "/")+1)
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return nil, leavesRoot(name, "has a \"..\" in it")
		case len(part) > maxPart:
			return nil, badArchive("the entry %s has a part of %d bytes between two slashes; %d are allowed", safetext.Quote(name), len(part), maxPart)
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) > maxDepth {
		return nil, badArchive("the entry %s lies %d folders deep; %d are allowed", safetext.Quote(name), len(parts)-1, maxDepth-1)
	}
	return parts, nil
}

// leavesRoot returns the error of a name that leads out of the archive.
func leavesRoot(name, how string) error {
	return &foreignError{"the entry " + safetext.Quote(name) + " leaves the archive's root: its name " + how}
}

// nameFault returns what is wrong with a name as a whole; "" if nothing is.
func nameFault(name string) string {
	switch {
	case name == "":
		return "has no name"
	case len(name) > maxName:
		return "has a name of " + strconv.Itoa(len(name)) + " bytes; " + strconv.Itoa(maxName) + " are allowed"
	case !utf8.ValidString(name):
		return "has a name that is not UTF-8; rename the file"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has a control character in its name; rename the file"
	}
	return ""
}
