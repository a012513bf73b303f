package archive

import (
	"fmt"

	"github.com/berth-host/berth/internal/stack"
)

// mostLost is how many of the entries that were left out are named.
const mostLost = 10

// losses are the entries that were left out of an archive.
type losses struct {
	first []stack.Lost
	count int
}

// add notes an entry. Its name has been made fit to be shown.
func (l *losses) add(entry, reason string) {
	if l.count++; l.count <= mostLost {
		l.first = append(l.first, stack.Lost{Entry: entry, Reason: reason})
	}
}

// list names the first ones and counts the rest.
func (l *losses) list() []stack.Lost {
	if l.count <= mostLost {
		return l.first
	}
	return append(l.first, stack.Lost{Entry: fmt.Sprintf("and %d more", l.count-mostLost)})
}
