package archive

import (
	"fmt"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// mostLost is how many of the dropped entries are listed.
const mostLost = 10

// losses are the entries of an archive that were dropped.
type losses struct {
	first []stack.Lost
	count int
}

// addLoss records an entry. Its name must already be safe to show.
func (l *losses) addLoss(entry, reason string) {
	if l.count++; l.count <= mostLost {
		l.first = append(l.first, stack.Lost{Entry: entry, Reason: reason})
	}
}

// addOuter records a symlink that leads out.
func (l *losses) addOuter(path, target string) {
	l.addLoss(safetext.Quote(path)+" -> "+safetext.Quote(target), "a symlink that leads out of the project, or nowhere")
}

// list returns the first entries and counts the rest.
func (l *losses) list() []stack.Lost {
	if l.count <= mostLost {
		return l.first
	}
	return append(l.first, stack.Lost{Entry: fmt.Sprintf("and %d more", l.count-mostLost)})
}
