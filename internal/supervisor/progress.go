package supervisor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// progress is how far each service of a deploy is. The row has it as well, but not every
// change of it: a fast deploy must not wait for the disk at each step, nor wake whoever
// watches the stack. The methods of a nil progress, that of a generation which is not
// being deployed, do nothing.
type progress struct {
	changed chan struct{} // has a value if now may have changed

	mu       sync.Mutex
	services []string                  // in the manifest's order
	at       map[string]stack.Progress // of the services that something is being done with
	now      stack.Progress            // of the deploy
	over     bool                      // whether now stays as it is
}

func newProgress(services []stack.Service) *progress {
	p := &progress{
		changed: make(chan struct{}, 1),
		at:      map[string]stack.Progress{},
		now:     stack.Progress{Phase: stack.PhaseQueued},
	}
	for i := range services {
		p.services = append(p.services, services[i].Spec.Name)
	}
	return p
}

// enter notes that a phase of a service begins.
func (p *progress) enter(service string, phase stack.Phase) {
	if p != nil {
		p.set(service, stack.Progress{Phase: phase, Service: service})
	}
}

// explain notes why a service is not healthy yet, "" if that is not known.
func (p *progress) explain(service, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.at[service]; ok && at.Phase == stack.PhaseHealth {
		at.Problem = problem
		p.at[service] = at
		p.choose()
	}
}

// goesOn reports whether there is a deploy whose progress still changes.
func (p *progress) goesOn() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.over
}

// leave notes that nothing more is done with a service for now. If it failed, the
// progress stays as it is: what follows is done to end the deploy.
func (p *progress) leave(service string, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if failed && !p.over {
		p.now, p.over = p.at[service], true
	}
	delete(p.at, service)
	p.choose()
}

// end makes the progress stay as it is.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// current returns how far the deploy is.
func (p *progress) current() stack.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *progress) set(service string, at stack.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[service] = at
	p.choose()
}

// choose makes the progress of the deploy that of one of its services. The lock is held.
func (p *progress) choose() {
	if p.over {
		return
	}
	if len(p.at) > 0 {
		p.now = p.at[slices.MinFunc(p.services, p.compare)]
	} else {
		p.now.Problem = "" // the service is healthy
	}
	offer(p.changed, struct{}{})
}

// compare orders services by what the deploy waits for: first one with a problem, then
// one that is less far than others, then one that is in a queue, and last those with
// which nothing is being done.
func (p *progress) compare(a, b string) int { return p.rank(a) - p.rank(b) }

func (p *progress) rank(service string) int {
	at, ok := p.at[service]
	switch {
	case !ok:
		return len(stack.Phases) + 1
	case at.Problem != "":
		return 0
	case at.Phase == stack.PhaseQueued:
		return len(stack.Phases)
	}
	return slices.Index(stack.Phases, at.Phase)
}

// progressRest is how long a change of the progress lasts, at least, that is written to
// the row by itself.
const progressRest = 250 * time.Millisecond

var errSameProgress = errors.New("the row has this progress already")

// recordProgress keeps the progress in the row up to date until ctx ends.
func (d *deployment) recordProgress(ctx context.Context) {
	g := d.gen
	for {
		select {
		case <-g.progress.changed:
		case <-ctx.Done():
			return
		}
		if !pause.For(ctx, progressRest) {
			return
		}
		_, err := g.runner.change(ctx, func(st *stack.Stack) ([]stack.Event, error) {
			before := st.LastDeploy.Progress
			err := st.Progressed(g.made.Attempt, g.progress.current())
			if err == nil && st.LastDeploy.Progress == before {
				err = errSameProgress
			}
			return nil, err
		})
		if err != nil && stack.KindOf(err) == 0 && !errors.Is(err, errSameProgress) {
			offer(g.progress.changed, struct{}{}) // the database does not work now
		}
	}
}
