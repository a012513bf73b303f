package supervisor

import (
	"context"
	"time"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
)

// followEvery is the time between two looks at a log that is followed.
const followEvery = 250 * time.Millisecond

// FollowLogs gives emit the last tail lines of a service's log and then those
// that come, until ctx ends or emit fails. They hold the bytes that programs
// wrote. Kind is run or build. When a build begins its log anew, anew is true and
// what came before is over.
func (s *Supervisor) FollowLogs(ctx context.Context, st *stack.Stack, service, kind string, tail int, emit func(lines []string, anew bool) error) error {
	log := logfile.Follow(s.logPath(st, service, kind), tail)
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
