package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/hostfault"
	"github.com/berth-host/berth/internal/stack"
)

// errHost marks an error as a fault of the host.
var errHost = errors.New("fault of the host")

// ofHost marks an error of work that does not depend on the stack's files. ofHost(nil)
// is nil.
func ofHost(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errHost, err)
}

// hostFaults are the errors of this machine and of its engine, which pass. Those of
// the database never get this far: see retryStore.
var hostFaults = []error{
	errHost, engine.ErrUnreachable, engine.ErrNoSpace, engine.ErrHost, context.DeadlineExceeded,
	fs.ErrPermission,  // the data directory has another owner
	builder.ErrNoBase, // until a registry or a mirror answers
}

// isOfHost reports whether an error is a fault of this host, which passes, rather than
// one of the stack's own files.
func isOfHost(err error) bool {
	if kind := stack.KindOf(err); kind != 0 {
		return kind == stack.Unavailable
	}
	return hostfault.Is(err) || slices.ContainsFunc(hostFaults, func(fault error) bool { return errors.Is(err, fault) })
}

// mayPass reports whether to try again: always, unless the error is known to be the
// stack's own fault.
func mayPass(err error) bool {
	kind := stack.KindOf(err)
	return kind == 0 || kind == stack.Unavailable
}

// maxRefusals is how many times in a row the engine may refuse to start a service
// again: it has no code for a broken image or volume.
const maxRefusals = 5

// refused records how an attempt to start a service again ended. It reports whether the
// engine refused too often although tryEngine, which asks it to run something else,
// succeeds.
func (g *generation) refused(ctx context.Context, s *stack.Service, err error, tryEngine func(context.Context) error) bool {
	if ctx.Err() != nil {
		return false
	}
	isRefusal := err != nil && mayPass(err) && !isOfHost(err)
	if g.countRefusal(s, isRefusal) < maxRefusals {
		return false
	}
	if err := tryEngine(ctx); err != nil {
		g.log.Warn("the engine runs no container of its base image either", "service", s.Spec.Name, "error", err)
		return false
	}
	g.countRefusal(s, false)
	return true
}

// countRefusal returns how many times in a row the engine has refused to start a
// service.
func (g *generation) countRefusal(s *stack.Service, isRefusal bool) int {
	g.runner.mu.Lock()
	defer g.runner.mu.Unlock()
	if isRefusal {
		g.runner.refusals[s.Image]++
	} else {
		delete(g.runner.refusals, s.Image)
	}
	return g.runner.refusals[s.Image]
}

// tryEngine runs a container that needs nothing of the stack's, to distinguish a fault
// of the engine or its machine from a broken image or broken data.
func (g *generation) tryEngine(ctx context.Context) error {
	base, err := g.runner.sup.helperImage(ctx, g.st)
	if err != nil {
		return err
	}
	key := engine.Key{Stack: g.runner.id}
	return g.cfg.Engine.Probe(ctx, engine.Spec{
		Name:   key.Probe(),
		Key:    key,
		Image:  base,
		User:   "0:0",
		Cmd:    []string{"true"},
		Memory: g.cfg.Memory,
		Pids:   g.cfg.Pids,
	})
}
