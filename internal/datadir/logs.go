package datadir

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
)

// The kinds of logs of a service.
const (
	runLog   = "run"
	BuildLog = "build"
)

// Log returns the path of a service's log of a kind.
func (d Dir) Log(id, service, kind string) string {
	return filepath.Join(d.logs(id), service+"."+kind+".log")
}

// OpenRunLog opens the log of a service's processes, which holds limit bytes before it
// is rotated. The time is that of its last line.
func (d Dir) OpenRunLog(id, service string, limit int64) (*logfile.File, time.Time, error) {
	if err := os.MkdirAll(d.logs(id), 0o700); err != nil {
		return nil, time.Time{}, fmt.Errorf("make the folder of a log: %w", err)
	}
	return logfile.Open(d.Log(id, service, runLog), limit)
}

// Logs writes the last lines of each service's log, or of one service's, in a section
// each (docs/api.md, "GET /v0/stacks/{id}/logs"). The lines contain the bytes that
// programs wrote.
func (d Dir) Logs(_ context.Context, st *stack.Stack, service, kind string, tail int, w io.Writer) error {
	for _, name := range st.LogNames(kind) {
		if service != "" && service != name {
			continue
		}
		if _, err := fmt.Fprintf(w, "### %s (%s)\n", name, kind); err != nil {
			return err
		}
		if err := logfile.Tail(w, d.Log(st.ID, name, kind), tail); err != nil {
			return err
		}
	}
	return nil
}

// followEvery is the time between two reads of a followed log.
const followEvery = 250 * time.Millisecond

// FollowLogs calls emit with the last tail lines of a service's log and then with new
// ones, until ctx ends or emit fails. They contain the bytes that programs wrote. If a
// build begins its log anew, anew is true and the earlier lines no longer count.
func (d Dir) FollowLogs(ctx context.Context, st *stack.Stack, service, kind string, tail int, emit func(lines []string, anew bool) error) error {
	log := logfile.Follow(d.Log(st.ID, service, kind), tail)
	defer log.Close()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		lines, anew, err := log.Next()
		if err != nil {
			return err
		}
		if len(lines) > 0 || anew {
			if err := emit(lines, anew); err != nil {
				return err
			}
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
