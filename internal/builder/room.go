package builder

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/safetext"
)

const (
	namedFiles = 3                // how many files an error about the size of an image names
	lookFor    = 20 * time.Second // how long they are looked for
)

// largestFiles prints the largest files that a user has in a container: length in bytes, size
// on the disk in KiB, and name. It passes over folders that it cannot read.
const largestFiles = `find / -xdev -user "$1" -type f -size +0 -printf '%s %k %p\n' 2>/dev/null | LC_ALL=C sort -rn | head -n "$2"`

// noRoom returns the fault of a build whose image has no room.
func (x *box) noRoom(ctx context.Context, short *engine.NoRoomError) error {
	return fault(x.job, "the image of its files takes %d MiB, and the disk of the host has room for %d MiB. "+
		"An image has the holes of sparse files in full%s. Let the commands remove what a process does not need, "+
		"and let the process make sparse files in $DATA_DIR when it runs. If these files are not large, try again later, or tell the operator",
		short.Need>>20, max(short.Room, 0)>>20, x.largest(ctx))
}

// largest names the largest files of the stack's user, for an error; "" if it cannot. What the
// commands have left running can make that wrong: it is a help, and decides nothing.
func (x *box) largest(ctx context.Context) string {
	limited, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	if x.cfg.Engine.Unpause(limited, x.id) != nil { // as Commit left it
		return ""
	}
	found, _, err := engine.Answer(limited, x.cfg.Engine, x.id, engine.Cmd{
		Args: []string{"sh", "-c", largestFiles, "sh", strconv.Itoa(x.job.Stack.UID()), strconv.Itoa(namedFiles)}, User: x.user(), Dir: "/",
	})
	if err != nil {
		return ""
	}
	return phraseOf(found)
}

// phraseOf returns the lines that largestFiles prints as a part of a sentence.
func phraseOf(found string) string {
	var files []string
	for line := range strings.Lines(found) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(fields) < 3 || len(files) == namedFiles {
			continue
		}
		length, _ := strconv.ParseInt(fields[0], 10, 64)
		taken, _ := strconv.ParseInt(fields[1], 10, 64)
		files = append(files, fmt.Sprintf("%s (%d MiB, of which %d MiB are on the disk)", safetext.Name(fields[2]), length>>20, taken>>10))
	}
	if len(files) == 0 {
		return ""
	}
	return "; the largest files are " + strings.Join(files, ", ")
}
