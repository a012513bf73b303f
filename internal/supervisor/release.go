package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/lastlines"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
)

// runRelease runs the service's release command once, in a container of its own with
// the service's data. Its output goes to the build log.
func (g *generation) runRelease(ctx context.Context, s *stack.Service) error {
	spec, err := g.containerSpec(ctx, s)
	if err != nil {
		return err
	}
	spec.Name = g.key(s.Spec.Name).Release()
	spec.Cmd = []string{"sh", "-c", s.Spec.Release}
	log, _, err := logfile.Open(g.cfg.Dir.Log(g.st.ID, s.Spec.Name, datadir.BuildLog), g.cfg.LogMax)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "== release %s gen %d\n$ %s\n", s.Spec.Name, g.made.Number, s.Spec.Release)
	id, err := g.cfg.Engine.Run(ctx, spec)
	if id != "" {
		defer g.runner.sup.stopAndRemove(ctx, id) //nolint:errcheck // abandon removes what stays
	}
	if err != nil {
		return err
	}
	last := lastlines.OfLog(keptLines, keptBytes)
	limited, cancel := context.WithTimeout(ctx, g.cfg.BuildTimeout)
	defer cancel()
	err = g.cfg.Engine.Follow(limited, id, time.Time{}, func(_ time.Time, line []byte) {
		fmt.Fprintf(last, "%s\n", line)
		fmt.Fprintf(log, "%s\n", line)
	})
	failpoint.Here("release-run")
	if limited.Err() != nil && ctx.Err() == nil {
		return serviceError(s, "release ran longer than %s and was killed: %s%s", g.cfg.BuildTimeout, stack.CommandLine(s.Spec.Release), last.Phrase())
	}
	if err != nil {
		return err
	}
	c, err := g.cfg.Engine.Look(ctx, id)
	if err == nil && c.ExitCode != 0 {
		return serviceError(s, "release failed: %q exited with code %d%s", stack.CommandLine(s.Spec.Release), c.ExitCode, last.Phrase())
	}
	return err
}
