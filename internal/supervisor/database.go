package supervisor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// A database outlives the generations that use it. Its container is on the network that the
// generations share and has a name without a number, so that the next generation can take it
// over as it runs: it gets another handle, and nothing else happens to it. Only one container
// at a time may have its data.

// processKey returns the key of the container of a service's process.
func processKey(id string, s *stack.Spec, generation int) engine.Key {
	key := engine.Key{Stack: id, Service: s.Name, Generation: generation}
	if s.Database() != nil {
		return key.WithoutGeneration()
	}
	return key
}

// processName returns the name of the container of a service's process.
func processName(id string, s *stack.Service, generation int) string {
	return processKey(id, &s.Spec, generation).Process(s.Replaced)
}

func (g *generation) processKey(s *stack.Service) engine.Key {
	return processKey(g.runner.id, &s.Spec, g.made.Number)
}

func (g *generation) processName(s *stack.Service) string {
	return processName(g.runner.id, s, g.made.Number)
}

// databasesOf returns the services of a generation that are databases.
func databasesOf(g *stack.Generation) (all []*stack.Service) {
	for i := range g.Services { // by index: a build writes to its service meanwhile
		if s := &g.Services[i]; s.Spec.Database() != nil {
			all = append(all, s)
		}
	}
	return all
}

// hasDatabases reports whether services of a generation are databases.
func hasDatabases(g *stack.Generation) bool { return len(databasesOf(g)) > 0 }

// isDatabase reports whether the process is that of a database.
func (p *process) isDatabase() bool { return p.service.Spec.Database() != nil }

// endInTurn does something that ends what it is given: databases after all that may use them.
func endInTurn[T any](items []T, isDatabase func(T) bool, end func(T) error) error {
	users := slices.DeleteFunc(slices.Clone(items), isDatabase)
	databases := slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !isDatabase(item) })
	return errors.Join(sideBySide(users, end), sideBySide(databases, end))
}

// prepareDatabase sets what the container of a database has in place of a program's: its
// image is always the newest of its version. Other containers that may have its data end.
func (g *generation) prepareDatabase(ctx context.Context, s *stack.Service, spec *engine.Spec) error {
	var err error
	spec.Image, err = g.cfg.Builder.EnsureBase(ctx, s.Spec.Runtime, io.Discard)
	if err != nil {
		return err
	}
	spec.Network, spec.Dir, spec.StopSignal = g.key("").Shared().Network(), "", s.Spec.Database().Signal
	others, err := g.cfg.Engine.Containers(ctx, engine.Key{Stack: g.runner.id, Service: s.Spec.Name})
	others = slices.DeleteFunc(others, func(c engine.Container) bool { return !c.Running || c.Name == g.processName(s) })
	return errors.Join(err, sideBySide(others, func(c engine.Container) error { return g.cfg.Engine.Stop(ctx, c.ID) }))
}

// How a database is asked whether it is ready: the pause grows up to readyPauseMax. One that
// says that it is starting, as after a crash with much to recover, gets startingFactor times
// as long as others.
const (
	readyPause     = 200 * time.Millisecond
	readyPauseMax  = time.Second
	startingFactor = 10
)

// waitReady returns once a database answers in its protocol. If it does not in time, or
// exits, the error says why.
func (p *process) waitReady(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, startingFactor*p.cfg.HealthTimeout)
	defer cancel()
	go p.onEnd(limited, cancel)
	last, heard := "", time.Now() // when it last said that it is starting
	for wait := readyPause; limited.Err() == nil && time.Since(heard) < p.cfg.HealthTimeout; wait = min(2*wait, readyPauseMax) {
		code, said := p.askReady(limited)
		switch code {
		case 0:
			return nil
		case 1:
			heard = time.Now()
		}
		last = cmp.Or(said, last)
		if p.gen.progress.goesOn() {
			p.gen.progress.explain(p.service.Spec.Name, last)
		}
		pause.For(limited, wait)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := p.cfg.Engine.Look(ctx, p.id)
	switch {
	case err != nil:
		return err
	case !c.Running:
		return p.endedError(ctx, c, "before it was ready")
	}
	return serviceError(p.service, "%s was not ready within %s: %s%s", p.service.Spec.Database().Title, p.cfg.HealthTimeout, cmp.Or(last, "it did not answer"), p.lastLines())
}

// askReady runs the command that shows whether a database is ready, and returns its exit
// code and what it printed; -1 if it did not run.
func (p *process) askReady(ctx context.Context) (code int, said string) {
	var out bytes.Buffer
	code, err := p.cfg.Engine.Exec(ctx, p.id, engine.Cmd{Args: []string{p.service.Spec.Database().Ready}}, &out, &out)
	if err != nil {
		return -1, ""
	}
	return code, stack.OneLine(out.String())
}

// renew starts a new process of a database in place of this one, from the newest image of
// its version.
func (p *process) renew(ctx context.Context) error {
	if err := p.halt(ctx); err != nil {
		return err
	}
	return p.remake(ctx, (*stack.Stack).RestartedOnRequest)
}

// Outdated returns the databases of a stack of this node that the next restart gives a newer
// image of their version.
func (s *Supervisor) Outdated(ctx context.Context, id string) (services []string) {
	r := s.lookup(id)
	if r == nil {
		return nil
	}
	// By the loop, so that a process whose start is in the row is the one that is looked at.
	running, _ := ask(ctx, r, func(*loop) []*process { return r.servedDatabases() })
	for _, p := range running {
		if p.imageName() != s.cfg.Builder.Base(p.service.Spec.Runtime) {
			services = append(services, p.service.Spec.Name)
		}
	}
	return services
}

// servedDatabases returns the processes of the databases that the stack serves.
func (r *runner) servedDatabases() (all []*process) {
	g := r.serving()
	if g == nil {
		return nil
	}
	for i := range g.made.Services {
		if s := &g.made.Services[i].Spec; s.Database() != nil {
			if p := r.servedProcess(s.Name); p != nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// imageName returns the image of the process's container.
func (p *process) imageName() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.image
}

// isKeptBy reports whether the process of a database can go on as that of a service of the
// next generation.
func isKeptBy(s, next *stack.Spec) bool {
	return s.Database() != nil && s.Runtime == next.Runtime && s.StopTimeout == next.StopTimeout
}

// keepDatabases decides which databases of the old generation go on in the next one, and
// names the container of each other one, since that of before may have to come back.
func (d *deployment) keepDatabases() {
	for i := range d.gen.made.Services {
		next := &d.gen.made.Services[i]
		old := d.gen.st.Service(next.Spec.Name)
		if next.Spec.Database() == nil || old == nil || old.Spec.Database() == nil {
			continue
		}
		next.Replaced = old.Replaced
		switch {
		case !d.oldServes():
		case isKeptBy(&old.Spec, &next.Spec):
			next.Image, next.Fingerprint = old.Image, old.Fingerprint
			d.kept = append(d.kept, next)
		default:
			next.Replaced++
		}
	}
}

// prepareData chooses the data volume of a database that the deploy starts. A database without
// data begins on a volume of its own: one that is there and empty is a program's, which goes on
// with it if the deploy fails. Data that a program has made since the deploy was accepted is an
// Unprocessable error.
func (d *deployment) prepareData(ctx context.Context, s *stack.Service) error {
	r, wants, had := d.gen.runner, s.Spec.Runtime.String(), d.gen.st.DatabaseOf(s.Spec.Name)
	has, err := r.sup.hasData(ctx, d.gen.st, &s.Spec)
	switch {
	case err != nil:
		return err
	case has && had != wants:
		return stack.NewError(stack.Unprocessable, dataFault(&s.Spec, wants, had))
	case has:
		return nil
	}
	key := d.gen.data(s.Spec.Name)
	there, err := d.gen.cfg.Engine.Volumes(ctx, key.WithoutGeneration())
	if err != nil {
		return err
	}
	if hasVolume(there, key) {
		key.Volume++
		d.gen.setVolume(s.Spec.Name, key.Volume)
	}
	begun := engine.Volume{Name: key.Data(), Key: key}
	d.mu.Lock()
	d.newData = append(d.newData, begun)
	d.mu.Unlock()
	if hasVolume(there, key) { // an earlier attempt left it
		return d.gen.cfg.Engine.Discard(ctx, engine.Objects{Volumes: []engine.Volume{begun}})
	}
	return nil
}

// useNewData makes the data that the deploy has begun that of its databases.
func (d *deployment) useNewData(st *stack.Stack) {
	for _, v := range d.newData {
		if v.Key.Volume != st.DataVolumes[v.Key.Service] {
			st.UseData(v.Key.Service, v.Key.Volume, 0)
		}
	}
}

// removeNewData removes the data that only a failed deploy has used: a service of that name
// could be no other database, nor a program, for its sake.
func (d *deployment) removeNewData(ctx context.Context) {
	d.gen.runner.sup.finishOnEngine(ctx, d.gen.log, "data of the databases of a failed deploy not removed", func() error {
		return d.gen.cfg.Engine.Discard(context.WithoutCancel(ctx), engine.Objects{Volumes: d.newData})
	})
}

// isKept reports whether a database goes on as it is.
func (d *deployment) isKept(s *stack.Service) bool { return slices.Contains(d.kept, s) }

// awaitKept returns once a database that goes on is running: it may be coming back from a
// crash. If the old generation has fallen, the database is started anew.
func (d *deployment) awaitKept(ctx context.Context, s *stack.Service) error {
	if d.oldServes() {
		return d.gen.awaitRunning(ctx, s.Spec.Name)
	}
	if d.gen.process(s.Spec.Name) != nil {
		return nil
	}
	if err := d.gen.runner.awaitFallen(ctx); err != nil {
		return err
	}
	return d.gen.bringUp(ctx, s, false)
}

// awaitAllKept is awaitKept for all databases that go on.
func (d *deployment) awaitAllKept(ctx context.Context) error {
	return sideBySide(d.kept, func(s *stack.Service) error { return d.awaitKept(ctx, s) })
}

// errFell is why a switch is tried again.
var errFell = errors.New("the served generation fell, and its databases with it")

// keepsAll reports whether every database that goes on is still there for the generation. It
// is for the loop.
func (d *deployment) keepsAll(l *loop) bool {
	return l.runner.serving() == d.old || !slices.ContainsFunc(d.kept, func(s *stack.Service) bool { return d.gen.process(s.Spec.Name) == nil })
}

// takeKept makes the processes of the databases that go on those of the generation, which is
// served by now.
func (d *deployment) takeKept() {
	for _, s := range d.kept {
		if d.gen.process(s.Spec.Name) != nil {
			continue
		}
		if p := d.old.unwatch(s.Spec.Name); p != nil {
			d.gen.takeProcess(p, s)
			d.old.dropProcess(p)
		}
	}
	d.gen.before.Store(nil)
}

// takeProcess makes a process of another generation that of a service of this one.
func (g *generation) takeProcess(p *process, s *stack.Service) {
	next := g.newProcess(s, p.id, p.aliases...)
	if err := next.attach(engine.Container{Image: p.imageName()}, p.unfollow(), p.absence.Load()); err != nil {
		next.log.Error("log of a database not followed", "error", err)
	}
	g.setProcess(next)
	next.poke() // it may have ended meanwhile
}

// dropProcess forgets a process that another generation has.
func (g *generation) dropProcess(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.processes, p.service.Spec.Name)
}

// awaitRunning returns once a service of the served generation is running.
func (g *generation) awaitRunning(ctx context.Context, service string) error {
	woken, stop := g.cfg.Store.Watch(g.runner.id)
	defer stop()
	limited, cancel := context.WithTimeout(ctx, g.cfg.HealthTimeout)
	defer cancel()
	for {
		st, err := g.runner.get(limited)
		if err == nil {
			if s := st.Service(service); s == nil || s.Status != stack.Restarting {
				return nil
			}
			select {
			case <-woken:
				continue
			case <-limited.Done():
			}
		}
		if ctx.Err() != nil || limited.Err() == nil {
			return cmp.Or(ctx.Err(), err)
		}
		return stack.NewError(stack.Unprocessable, fmt.Sprintf("service %s: it is restarting and was not running again within %s; read its log", service, g.cfg.HealthTimeout))
	}
}

// awaitDatabases returns once all databases that the process uses are running.
func (p *process) awaitDatabases(ctx context.Context) error {
	for i := range p.gen.made.Services {
		s := &p.gen.made.Services[i].Spec
		if s.Database() != nil && slices.Contains(p.service.Spec.DependsOn, s.Name) {
			if err := p.gen.awaitRunning(ctx, s.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkDatabases returns an Unprocessable error if a service of a deploy could not go on with
// the data that it has: another database, or another version, has made it, or a program.
func (s *Supervisor) checkDatabases(ctx context.Context, st *stack.Stack, services []stack.Service) error {
	var faults []string
	for i := range services {
		spec := &services[i].Spec
		wants, had := "", st.DatabaseOf(spec.Name)
		if spec.Database() != nil {
			wants = spec.Runtime.String()
		}
		if wants == had || spec.IsStatic() {
			continue
		}
		has, err := s.hasData(ctx, st, spec)
		if err != nil {
			return err
		}
		if has {
			faults = append(faults, dataFault(spec, wants, had))
		}
	}
	if faults == nil {
		return nil
	}
	return stack.NewError(stack.Unprocessable, strings.Join(faults, "\n"))
}

// hasData reports whether a service has any data: in its folder, or apart from it.
func (s *Supervisor) hasData(ctx context.Context, st *stack.Stack, spec *stack.Spec) (bool, error) {
	key := dataKey(st, spec.Name)
	volumes, err := s.cfg.Engine.Volumes(ctx, key)
	if err != nil {
		return false, err
	}
	if hasVolume(volumes, key) {
		image, err := s.cfg.Builder.EnsureBase(ctx, spec.Runtime, io.Discard)
		if err != nil {
			return false, err
		}
		if has, err := s.cfg.Engine.HasData(ctx, key, "", image); has || err != nil {
			return has, err
		}
	}
	return s.isKeptApart(ctx, key)
}

// dataFault says why a service cannot go on with the data that it has, and what to do.
func dataFault(spec *stack.Spec, wants, had string) string {
	const move = "dump the data from the old service, add the new one under another name beside it, and load the dump there; leave the old one out once all is well"
	switch {
	case had == "":
		return fmt.Sprintf("service %s: its data was not made by %s; give the database another name, and carry over by a program what it needs of the old data", spec.Name, wants)
	case wants == "":
		return fmt.Sprintf("service %s: its data was made by %s, which %s cannot use; give the new service another name", spec.Name, had, spec.Runtime)
	}
	return fmt.Sprintf("service %s: its data was made by %s, which %s cannot use: %s", spec.Name, had, wants, move)
}
