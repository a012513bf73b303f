package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/health"
)

// waitHealthy returns once the process passes its health check. If it does not pass in
// time, or exits, the error says why (docs/manifest.md, "Health checks").
func (p *process) waitHealthy(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, p.cfg.HealthTimeout)
	defer cancel()
	// A process that ends loses its address, and dialling it would hang.
	go p.onEnd(limited, cancel)
	failure := p.cfg.Health(limited, health.Request{
		Addr:   p.addr(),
		Host:   p.cfg.URLs.Host(p.gen.st, p.service.Spec.Name),
		Scheme: p.cfg.URLs.Base.Scheme,
		Path:   p.service.Spec.Health,
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
		return p.endedError(ctx, c, fmt.Sprintf("before it answered on port %d", p.service.Spec.ListenPort()))
	}
	return p.unhealthy(ctx, failure)
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
	return serviceError(p.service, "%q %s %s%s%s", p.service.Spec.Start, how, when, p.lastLines(), p.lockHint())
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
	return serviceError(p.service, "not healthy within %s: %s%s%s", p.cfg.HealthTimeout, why, p.lastLines(), p.lockHint())
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
	does := "does not accept connections"
	if sockets, err := p.cfg.Engine.Sockets(ctx, p.id); err == nil {
		does = "listens on " + cmp.Or(strings.Join(sockets, ", "), "no port")
	}
	return fmt.Sprintf("%s %s; it must listen on 0.0.0.0:$PORT (%d)", p.service.Spec.Name, does, p.service.Spec.ListenPort())
}
