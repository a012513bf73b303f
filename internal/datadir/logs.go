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

// Logs writes a view of each service's log, or of one service's, in a section each
// (docs/api.md, "GET /v0/stacks/{id}/logs"). The lines contain the bytes that programs
// wrote.
func (d Dir) Logs(_ context.Context, st *stack.Stack, service, kind string, v logfile.View, w io.Writer) error {
	for _, name := range st.LogNames(kind) {
		if service != "" && service != name {
			continue
		}
		if _, err := fmt.Fprintf(w, "### %s (%s)\n", name, kind); err != nil {
			return err
		}
		if err := logfile.Tail(w, d.Log(st.ID, name, kind), v); err != nil {
			return err
		}
	}
	return nil
}

// ReadLog returns lines of all that is kept of a service's log of a kind.
func (d Dir) ReadLog(st *stack.Stack, service, kind string, q logfile.Query) (logfile.Page, error) {
	return logfile.Read(d.Log(st.ID, service, kind), q)
}

// CopyLog writes all that is kept of a service's log of a kind to w. The lines contain
// the bytes that programs wrote.
func (d Dir) CopyLog(st *stack.Stack, service, kind string, w io.Writer) error {
	return logfile.Copy(w, d.Log(st.ID, service, kind))
}

// followEvery is the time between two reads of a followed log.
const followEvery = 250 * time.Millisecond

// FollowLogs calls emit with what a view begins with of a service's log, even if that is
// nothing, and then with what is added, until ctx ends or emit fails. The lines contain
// the bytes that programs wrote.
func (d Dir) FollowLogs(ctx context.Context, st *stack.Stack, service, kind string, v logfile.View, emit func(logfile.News) error) error {
	log := logfile.Follow(d.Log(st.ID, service, kind), v)
	defer log.Close()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		news, err := log.Next()
		if err != nil {
			return err
		}
		if first || len(news.Lines) > 0 || news.Anew {
			if err := emit(news); err != nil {
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
