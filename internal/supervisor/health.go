package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/health"
	"github.com/berth-host/berth/internal/stack"
)

// waitHealthy returns once the process passes its health check. If it does not pass in
// time, or exits, the error says why (docs/manifest.md, "Health checks").
func (p *process) waitHealthy(ctx context.Context) error {
	if p.isDatabase() {
		return p.waitReady(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, p.cfg.HealthTimeout)
	defer cancel()
	// A process that ends loses its address, and dialling it would hang.
	go p.onEnd(limited, cancel)
	failure := p.cfg.Health(limited, health.Request{
		Addr:    p.addr(),
		Host:    p.cfg.URLs.Host(p.gen.st, p.service.Spec.Name),
		Scheme:  p.cfg.URLs.Base.Scheme,
		Path:    p.service.Spec.Health,
		Failing: p.tellProblem(limited),
	})
	if failure == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := p.cfg.Engine.Look(ctx, p.id)
	if err != nil {
		return err
	}
	if !c.Running {
		return p.endedError(ctx, c, fmt.Sprintf("before it answered on port %d", p.gen.made.ListenPort(&p.service.Spec)))
	}
	return p.unhealthy(ctx, failure)
}

// How a problem is told while a health check goes on. What a program listens on is looked
// at every diagnoseEvery; one that listens on nothing may just be starting, and is given
// quietLooks looks, so that it is told within 3 s, progressRest included.
const (
	diagnoseEvery = 800 * time.Millisecond
	quietLooks    = 3
)

// tellProblem makes the progress of a deploy say why the process does not pass its health
// check yet, until ctx ends. It returns what the check is to call with what it finds.
func (p *process) tellProblem(ctx context.Context) (failing func(health.Failure)) {
	if !p.gen.progress.goesOn() {
		return nil
	}
	found := make(chan health.Failure, 1)
	p.gen.runner.work.Go(func() {
		var last health.Failure
		tick := time.NewTicker(diagnoseEvery)
		defer tick.Stop()
		for looks := 0; ; {
			select {
			case last = <-found:
				if last.Last == "" {
					continue // it may answer any moment
				}
			case <-tick.C:
				looks++
			case <-ctx.Done():
				return
			}
			problem := p.problem(ctx, last, looks)
			if ctx.Err() == nil {
				p.gen.progress.explain(p.service.Spec.Name, problem)
			}
		}
	})
	return func(f health.Failure) {
		select {
		case <-found: // not taken yet
		default:
		}
		found <- f
	}
}

// problem says why a process does not pass its health check yet, after so many looks; ""
// if that cannot be told.
func (p *process) problem(ctx context.Context, last health.Failure, looks int) string {
	switch {
	case last.Host != nil:
		return ""
	case last.Last != "":
		return last.Last
	case last.Opened:
		return "it accepts connections on its port, and has not answered GET " + cmp.Or(p.service.Spec.Health, "/") + " yet"
	}
	sockets, err := p.cfg.Engine.Sockets(ctx, p.id)
	if err != nil || len(sockets) == 0 && looks < quietLooks {
		return ""
	}
	return p.listensOn(sockets)
}

// onEnd calls cancel when the process has ended, which it knows from the end of the
// log, unless ctx ends first.
func (p *process) onEnd(ctx context.Context, cancel func()) {
	select {
	case <-p.following().ended:
		cancel()
	case <-ctx.Done():
	}
}

// stillRuns returns the error of a process that was healthy and has ended since.
func (p *process) stillRuns(ctx context.Context) error {
	c, err := p.cfg.Engine.Look(ctx, p.id)
	if err != nil || c.Running {
		return err
	}
	return p.endedError(ctx, c, "after it was healthy, before the generation went live")
}

// endedError says how and when a process ended, and quotes its log.
func (p *process) endedError(ctx context.Context, c engine.Container, when string) error {
	select {
	case <-p.following().ended: // the log is complete
	case <-ctx.Done():
		return ctx.Err()
	}
	how := fmt.Sprintf("exited with code %d", c.ExitCode)
	switch {
	case c.OOMKilled:
		how = "ran out of memory and was killed"
	case c.Error != "":
		how = "could not be started (" + c.Error + ")"
	}
	return serviceError(p.service, "%q %s %s%s%s", stack.CommandLine(p.service.Spec.Start), how, when, p.lastLines(), p.lockHint())
}

// unhealthy returns the error of a process that runs but did not pass in time.
func (p *process) unhealthy(ctx context.Context, failure *health.Failure) error {
	if failure.Host != nil {
		return fmt.Errorf("check the health of %s: %w", p.service.Spec.Name, failure.Host)
	}
	why := failure.Last
	if !failure.Opened {
		why = p.listening(ctx)
	}
	return serviceError(p.service, "not healthy within %s: %s; its command is %q%s%s",
		p.cfg.HealthTimeout, why, stack.CommandLine(p.service.Spec.Start), p.lastLines(), p.lockHint())
}

// lockHint returns advice if the log mentions a lock, since two generations may have
// shared one $DATA_DIR.
func (p *process) lockHint() string {
	text := strings.ToLower(p.lastLines())
	for _, sign := range []string{"database is locked", "resource temporarily unavailable", "could not lock", "lock file", "already locked", "already in use by another"} {
		if strings.Contains(text, sign) {
			return "\nthe log mentions a lock: if another generation holds $DATA_DIR, set strategy: recreate"
		}
	}
	return ""
}

// listening says what the process listens on instead of its port.
func (p *process) listening(ctx context.Context) string {
	sockets, err := p.cfg.Engine.Sockets(ctx, p.id)
	if err != nil {
		return p.mustListen("does not accept connections")
	}
	return p.listensOn(sockets)
}

// listensOn says what the process listens on, as addresses.
func (p *process) listensOn(sockets []string) string {
	return p.mustListen("listens on " + cmp.Or(strings.Join(sockets, ", "), "no port"))
}

func (p *process) mustListen(does string) string {
	return fmt.Sprintf("%s %s; it must listen on 0.0.0.0:$PORT (%d)", p.service.Spec.Name, does, p.gen.made.ListenPort(&p.service.Spec))
}
