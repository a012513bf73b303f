package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-host/berth/internal/engine"
)

// maxLine is the longest line that Follow passes on in one piece, in bytes.
const maxLine = 64 << 10

// Follow implements engine.Driver. A container that does not run has its log passed on to the
// end. Lines have the engine's time; those beyond maxLine come in pieces of the same time.
func (d *Driver) Follow(ctx context.Context, id string, after time.Time, line func(at time.Time, line []byte)) error {
	stdout := &joiner{since: after, emit: line}
	stderr := &joiner{since: after, emit: line}
	if err := d.readLog(ctx, id, true, stdout, stderr); err != nil {
		return wrap(err, "follow log of container %s", id)
	}
	// The engine may leave out the end of the log of a container that ends just as the
	// following begins. What is there now is everything.
	if err := d.readLog(ctx, id, false, stdout, stderr); err != nil && !errors.Is(err, engine.ErrNotFound) {
		return wrap(err, "read log of container %s", id)
	}
	return nil
}

// readLog passes on what the joiners have not had yet: what the log has now, or with
// follow what it gets until the container ends.
func (d *Driver) readLog(ctx context.Context, id string, follow bool, stdout, stderr *joiner) error {
	opts := container.LogsOptions{ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: follow}
	since := slices.MinFunc([]time.Time{stdout.since, stderr.since}, time.Time.Compare)
	if !since.IsZero() {
		opts.Since = unixNano(since)
	}
	body, err := d.api.ContainerLogs(ctx, id, opts)
	if err != nil {
		return wrap(err, "open log")
	}
	defer body.Close() // only read
	stdout.fresh, stderr.fresh = false, false
	if _, err := stdcopy.StdCopy(stdout, stderr, body); err != nil {
		return err
	}
	stdout.flush()
	stderr.flush()
	return nil
}

// joiner makes lines of the engine's messages on one stream. StdCopy calls Write once for
// each message: a time, a space, and text that ends with a newline unless the engine split
// the line, which it does at 16 KiB. All pieces of a line have the same time.
type joiner struct {
	since time.Time // messages up to it were passed on
	fresh bool      // the last message was after since, so one of the same time is new too
	emit  func(at time.Time, line []byte)
	at    time.Time // of the line that has begun
	line  []byte    // of it, so far
	begun bool
}

// Write takes one message.
func (j *joiner) Write(message []byte) (int, error) {
	stamp, text, _ := bytes.Cut(message, []byte{' '})
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return 0, fmt.Errorf("time of a log message: %w", err)
	}
	if at.Before(j.since) || at.Equal(j.since) && !j.fresh {
		j.fresh = false // the engine sends a file again that it rotated
		return len(message), nil
	}
	j.fresh = true
	if j.begun && !at.Equal(j.at) {
		j.flush() // the rest of that line was lost when the log was rotated
	}
	text, ends := bytes.CutSuffix(text, []byte{'\n'})
	j.at, j.begun = at, true
	j.line = append(j.line, text...)
	for len(j.line) > maxLine {
		j.emit(j.at, j.line[:maxLine])
		j.line = append(j.line[:0], j.line[maxLine:]...)
	}
	if ends {
		j.flush()
	}
	return len(message), nil
}

// flush passes on the line that has begun, if any.
func (j *joiner) flush() {
	if !j.begun {
		return
	}
	j.emit(j.at, j.line)
	j.since = j.at
	j.line, j.begun = j.line[:0], false
}

// unixNano returns a time as the engine takes it in a query.
func unixNano(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }
