package safetext

import (
	"strconv"
	"strings"
	"unicode"
)

// Quote returns a stranger's name for a message: quoted, escaped, and without its
// middle if it is long.
func Quote(name string) string {
	const head, tail = 80, 40
	if len(name) <= head+tail {
		return strconv.Quote(name)
	}
	return strconv.Quote(strings.ToValidUTF8(name[:head], "")) + "…" + strconv.Quote(strings.ToValidUTF8(name[len(name)-tail:], ""))
}

// Name is like Quote, but without the quotes if the name is short and all its
// characters are visible.
func Name(name string) string {
	const most = 60
	hidden := func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }
	if name == "" || len(name) > most || strings.ContainsFunc(name, hidden) {
		return Quote(name)
	}
	return name
}

// Names calls Name for each name.
func Names(names []string) []string {
	safe := make([]string, len(names))
	for i, name := range names {
		safe[i] = Name(name)
	}
	return safe
}
