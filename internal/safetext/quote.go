package safetext

import (
	"strconv"
	"strings"
	"unicode"
)

// Quote returns a stranger's name as a message shows it: quoted, escaped, and
// without its middle where it is long.
func Quote(name string) string {
	const head, tail = 80, 40
	if len(name) <= head+tail {
		return strconv.Quote(name)
	}
	return strconv.Quote(strings.ToValidUTF8(name[:head], "")) + "…" + strconv.Quote(strings.ToValidUTF8(name[len(name)-tail:], ""))
}

// Name returns a stranger's name as Quote does, without the quotes where it is
// short and every character of it can be seen.
func Name(name string) string {
	const most = 60
	hidden := func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }
	if name == "" || len(name) > most || strings.ContainsFunc(name, hidden) {
		return Quote(name)
	}
	return name
}

// Names is Name for each of a list.
func Names(names []string) []string {
	safe := make([]string, len(names))
	for i, name := range names {
		safe[i] = Name(name)
	}
	return safe
}
