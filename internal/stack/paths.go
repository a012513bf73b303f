package stack

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Path is where requests below a path of a service's URL go instead of to the service
// (docs/manifest.md, "paths").
type Path struct {
	Service string `json:"service"`
	Strip   bool   `json:"strip,omitempty"` // the other service gets the rest of the path only
}

// MaxPaths is the greatest number of paths of a service.
const MaxPaths = 20

const maxPathLength = 200 // bytes

// CleanPath returns a path of a manifest without a slash at its end, or what is wrong
// with it.
func CleanPath(s string) (string, error) {
	clean := strings.TrimSuffix(s, "/")
	switch {
	case !strings.HasPrefix(s, "/"):
		return "", errors.New("does not begin with /; write it as in /api")
	case clean == "":
		return "", errors.New("stands for every path; write a longer one, as in /api, or send requests to the other service's own URL")
	case len(s) > maxPathLength:
		return "", fmt.Errorf("is longer than %d bytes", maxPathLength)
	case strings.Contains(s, "%"):
		return "", errors.New("holds a %; write the character itself, since paths are compared decoded")
	case !utf8.ValidString(s) || strings.ContainsFunc(s, notOfPath):
		return "", errors.New("holds a character that no path has; write it as in /api, without ?, #, * and spaces")
	}
	for segment := range strings.SplitSeq(clean[1:], "/") {
		switch segment {
		case "":
			return "", errors.New("holds two slashes in a row; write it as in /api/v2")
		case ".", "..":
			return "", errors.New("holds a segment of dots; write the path that it leads to")
		}
	}
	return clean, nil
}

// notOfPath reports whether a path of a manifest must not have r. A * is refused since it
// would not stand for anything else.
func notOfPath(r rune) bool {
	return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`?#*\`, r)
}
