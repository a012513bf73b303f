package stack

import (
	"fmt"
	"maps"
	"math"
	"time"
)

// Disk is what a stack takes on the disk of its host, in bytes, when that was measured last.
type Disk struct {
	At     time.Time        `json:"at"`     // zero before it was measured
	Data   map[string]int64 `json:"data"`   // by service: of the data volume, or its snapshot
	Images int64            `json:"images"` // without base images; what several have in common counts once
	Files  int64            `json:"files"`  // the source, and what is published of it
	Layers int64            `json:"layers"` // what processes have written beside their data
	Caches int64            `json:"caches"` // of builds
}

// AllData returns how many bytes the data of all services takes.
func (d Disk) AllData() (bytes int64) {
	for _, size := range d.Data {
		bytes += size
	}
	return bytes
}

// Total returns how many bytes the stack takes.
func (d Disk) Total() int64 { return d.AllData() + d.Images + d.Files + d.Layers + d.Caches }

// String names the parts.
func (d Disk) String() string {
	const mega = 1e6
	return fmt.Sprintf("data %.1f MB, images %.1f MB, source %.1f MB, files beside the data %.1f MB, build caches %.1f MB",
		float64(d.AllData())/mega, float64(d.Images)/mega, float64(d.Files)/mega, float64(d.Layers)/mega, float64(d.Caches)/mega)
}

// DiskLimit is how many bytes a stack may take on the disk; 0 for no limit (docs/api.md, "Disk
// space of a stack").
type DiskLimit int64

// stop returns above how many bytes a stack is stopped: a fifth more than the limit.
func (l DiskLimit) stop() int64 { return int64(l + min(l/5, math.MaxInt64-l)) }

// IsOver reports whether something takes more than the limit.
func (l DiskLimit) IsOver(d Disk) bool { return l > 0 && d.Total() > int64(l) }

// diskRetry is the Retry-After of what a stack does not accept while it takes too much: what was
// deleted counts by then.
const diskRetry = time.Minute

// Check returns a NoRoom error if a stack takes more than the limit, so that no deploy begins.
func (l DiskLimit) Check(d Disk, now time.Time) error {
	if !l.IsOver(d) {
		return nil
	}
	return &Error{Kind: NoRoom, RetryAfter: diskRetry, Detail: fmt.Sprintf("%s, measured %s ago, so it takes no deploy; %s",
		l.says(d), FormatDuration(max(now.Sub(d.At), 0).Truncate(time.Second)), lessData)}
}

// lessData says how a stack gets smaller.
const lessData = "delete data with a command in a running service (berth exec), or replace the data of a service by less (berth data push), " +
	"then try again; a stack whose images or source are too large by themselves has to be deleted"

// says returns how a stack compares to the limit.
func (l DiskLimit) says(d Disk) string {
	return fmt.Sprintf("the stack takes %s of the disk (%s) and may take %s", megabytes(d.Total()), d, megabytes(int64(l)))
}

// Tell returns what the owner of a stack is told when it gets over the limit.
func (l DiskLimit) Tell(d Disk) string {
	return fmt.Sprintf("%s: it takes no deploy until it is smaller, and is stopped above %s", l.says(d), megabytes(l.stop()))
}

// StopReason returns why a stack is to be stopped, "" if it is not.
func (l DiskLimit) StopReason(d Disk) string {
	if l == 0 || d.Total() <= l.stop() {
		return ""
	}
	return fmt.Sprintf("stopped at more than 1.2 times its disk space: %s. Its data is kept: download it, "+
		"replace it by less (berth data push), then deploy again", l.says(d))
}

// DataRoom returns how many bytes the next data of a service may take: what leaves the stack
// within the limit, or else as much as the present data.
func (l DiskLimit) DataRoom(d Disk, service string) int64 {
	if l == 0 {
		return math.MaxInt64
	}
	has := d.Data[service]
	return max(int64(l)-(d.Total()-has), has)
}

// DataTooLarge is the NoRoom error for data that needs more than the room.
func (l DiskLimit) DataTooLarge(d Disk, service string) error {
	return NewError(NoRoom, fmt.Sprintf("%s, so the data of %s may be replaced by at most %s; nothing was replaced: send less",
		l.says(d), service, megabytes(l.DataRoom(d, service))))
}

// SetData records that the data of a service takes so many bytes, if it was measured before.
func (d *Disk) SetData(service string, bytes int64) {
	if d.At.IsZero() {
		return
	}
	d.Data = maps.Clone(d.Data)
	if d.Data == nil {
		d.Data = map[string]int64{}
	}
	d.Data[service] = bytes
}
