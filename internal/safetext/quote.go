package safetext

import (
	"strconv"
	"strings"
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
