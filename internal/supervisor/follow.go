package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/lastlines"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// The end of a log that an error contains: an error keeps no more than one line of the
// longest.
const (
	keptLines = 40
	keptBytes = keptLines * utf8.UTFMax * stack.ErrorChars
)

// follower copies the log of a container into its service's log.
type follower struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when the log has been read to its end
	last   *lastlines.Buffer

	mu    sync.Mutex
	since time.Time // of the last line written
}

// follow copies the container's log, from the line after since, until the process ends
// or unfollow is called.
func (p *process) follow(since time.Time) (*follower, error) {
	log, _, err := p.gen.runner.runLog(p.service.Spec.Name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(p.gen.runner.ctx)
	f := &follower{cancel: cancel, ended: make(chan struct{}), since: since, last: lastlines.OfLog(keptLines, keptBytes)}
	p.gen.runner.work.Go(func() {
		defer close(f.ended)
		defer cancel()
		p.copyLog(ctx, log, f)
	})
	return f, nil
}

func (p *process) copyLog(ctx context.Context, log *logfile.File, f *follower) {
	for {
		err := p.copyOnce(ctx, log, f)
		if err == nil || ctx.Err() != nil || errors.Is(err, engine.ErrNotFound) {
			return
		}
		if errors.Is(err, errSilent) {
			continue
		}
		p.log.Warn("log not followed; trying again", "error", err)
		if !pause.For(ctx, time.Second) || !p.gen.runner.sup.awaitEngine(ctx) {
			return
		}
	}
}

// An engine that rotates a log faster than it is read may stop sending later lines. So
// if nothing comes for the duration silence, after as many bytes as make the engine
// rotate the log, the follower starts again where it was.
const (
	silence = 5 * time.Second
	burst   = 8 << 20
)

// errSilent ends a follower that must start again.
var errSilent = errors.New("the engine sends no more of the log")

// copyOnce copies the log until it ends, or until the follower must start again.
func (p *process) copyOnce(ctx context.Context, log *logfile.File, f *follower) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var read int
	var lost *time.Timer
	err := p.cfg.Engine.Follow(ctx, p.id, f.position(), func(at time.Time, line []byte) {
		if read += len(line); read > burst {
			if lost == nil {
				lost = time.AfterFunc(silence, func() { cancel(errSilent) })
			}
			lost.Reset(silence)
		}
		f.note(at, line)
		if err := log.Line(at, p.gen.made.Number, line); err != nil {
			p.log.Error("log line not written", "error", err)
		}
	})
	if lost != nil {
		lost.Stop()
	}
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

func (f *follower) note(at time.Time, line []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = at
	fmt.Fprintf(f.last, "%s\n", line)
}

func (f *follower) position() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.since
}

// following returns the follower of the process as it runs now.
func (p *process) following() *follower {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.follower
}

// unfollow stops following the log while the process goes on. It returns the time of
// the last line written.
func (p *process) unfollow() time.Time {
	f := p.following()
	if f == nil {
		return time.Time{}
	}
	f.cancel()
	<-f.ended
	return f.position()
}

// letGo is unfollow for a process that may be adopted, whose log then goes on from there.
func (p *process) letGo() {
	if p.following() != nil {
		p.gen.runner.leaveLog(p.service.Spec.Name, p.unfollow())
	}
}

// awaitLog waits until the log of a process that ended has been read, for as long as
// more of it comes.
func (p *process) awaitLog(ctx context.Context) {
	f := p.following()
	if f == nil {
		return
	}
	for {
		before := f.position()
		select {
		case <-f.ended:
			return
		case <-ctx.Done():
			return
		case <-time.After(2 * silence):
		}
		if f.position().Equal(before) {
			p.log.Warn("the end of a log is not read")
			return
		}
	}
}

// logLine writes a line of the host's own into the service's run log.
func (p *process) logLine(text string) {
	p.writeLog(func(log *logfile.File) error { return log.Note(time.Now(), p.gen.made.Number, "== "+text) })
}

// markStart notes in the service's run log, for readers who ask for it, that the process
// was started at a time.
func (p *process) markStart(at time.Time) {
	p.endNoted.Store(false)
	p.writeMark(at, "started")
}

// markEnd notes in the same way how the process ended, unless the log says so already.
// Stopped means that the host ended it.
func (p *process) markEnd(ctx context.Context, stopped bool) {
	c, err := p.look(ctx)
	if err != nil || c.Running || p.endNoted.Swap(true) {
		return
	}
	how, _ := exitOf(c)
	if stopped && c.ID != "" {
		how = "was stopped by the host: exit code " + strconv.Itoa(c.ExitCode)
	}
	p.writeMark(time.Now(), how)
}

func (p *process) writeMark(at time.Time, text string) {
	p.writeLog(func(log *logfile.File) error {
		return log.Mark(at, p.gen.made.Number, "== "+p.service.Spec.Name+" "+text)
	})
}

// hasEnded reports whether the process ended and its log has been read to the end.
func (p *process) hasEnded() bool {
	f := p.following()
	if f == nil {
		return false
	}
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

func (p *process) writeLog(write func(*logfile.File) error) {
	log, _, err := p.gen.runner.runLog(p.service.Spec.Name)
	if err == nil {
		err = write(log)
	}
	if err != nil {
		p.log.Error("log line not written", "error", err)
	}
}

// lastLines returns the end of the process's log in words that follow an error.
func (p *process) lastLines() string {
	f := p.following()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last.Phrase()
}
