package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// process is the container of one service of one generation.
type process struct {
	gen     *generation
	cfg     *Config
	log     *slog.Logger
	service *stack.Service
	id      string
	aliases []string // names by which the other services find it

	wake chan struct{} // receives a value when the container may have ended

	absence atomic.Int64 // the engine's last one before the process was known to run

	endNoted atomic.Bool // the log says how the process ended

	layer func(step func() error) (int64, error) // adds up its layer; nil before the first time; see measurement

	mu       sync.Mutex
	watching context.CancelFunc
	watched  chan struct{} // closed when the process is no longer watched; nil before watch
	ip       string
	image    string // as engine.Container has it
	follower *follower
}

// startProcess starts a service's process in a container, in place of what an earlier
// attempt left. The aliases are the names by which the other services find it.
func (g *generation) startProcess(ctx context.Context, s *stack.Service, aliases ...string) (*process, error) {
	spec, err := g.containerSpec(ctx, s)
	if err != nil {
		return nil, err
	}
	spec.Name = g.processName(s)
	spec.Cmd = startCommand(s.Spec.Start)
	spec.Aliases = aliases
	absence, at := g.runner.sup.absences.Load(), time.Now()
	id, err := g.cfg.Engine.Run(ctx, spec)
	if id == "" {
		return nil, err
	}
	p := g.newProcess(s, id, aliases...)
	if err == nil {
		p.markStart(at)
		err = p.attachStarted(ctx, time.Time{}, absence)
	}
	if err != nil {
		return nil, errors.Join(err, p.endAndRemove(g.runner.ctx))
	}
	return p, nil
}

// containerSpec returns what all containers of a service in this generation have in
// common.
func (g *generation) containerSpec(ctx context.Context, s *stack.Service) (engine.Spec, error) {
	uid := strconv.Itoa(g.st.UID())
	spec := engine.Spec{
		Key:         g.processKey(s),
		Image:       s.Image,
		User:        uid + ":" + uid,
		Dir:         path.Join(builder.AppDir, s.Spec.Root),
		Hostname:    g.processKey(s).Hostname(),
		Env:         builder.EnvList(g.processEnv(s)),
		Network:     g.network,
		Shared:      g.made.UsesDatabase(&s.Spec),
		Await:       func(ctx context.Context) error { return ofHost(g.makeNetwork(ctx)) },
		Volumes:     map[string]string{stack.DataDir: g.data(s.Spec.Name).Data()},
		Memory:      g.cfg.Memory,
		NanoCPUs:    g.cfg.NanoCPUs,
		Pids:        g.cfg.Pids,
		LogMax:      max(engineLog, 4*g.cfg.LogMax),
		StopTimeout: s.Spec.StopTimeout,
	}
	if s.Spec.Database() != nil {
		return spec, g.prepareDatabase(ctx, s, &spec)
	}
	if !s.Copied {
		return spec, nil
	}
	var err error
	spec.Image, spec.Files, err = g.cfg.Builder.Begin(ctx, g.copyOf(s))
	return spec, err
}

// copyOf returns the source that is copied into each container of a service.
func (g *generation) copyOf(s *stack.Service) builder.Copy {
	layer := g.st.Layers[s.Spec.Name]
	if layer.Image != s.Image {
		layer = stack.Layer{Image: s.Image}
	}
	return builder.Copy{
		Dir: g.cfg.Dir.Source(g.st.ID, g.made.Source.Folder), Digest: g.made.Source.Digest, UID: g.st.UID(),
		Layer: layer, Installed: s.Installed, Listing: g.listing(s),
	}
}

// listing returns the folder of the listing of the source that the layer of a service has.
func (g *generation) listing(s *stack.Service) string {
	return g.cfg.Dir.Listing(g.st.ID, g.st.Layers[s.Spec.Name].Source.Digest)
}

// processEnv returns the environment of a service's process: what its runtime sets,
// then what the host and the manifest set.
func (g *generation) processEnv(s *stack.Service) map[string]string {
	env := builder.BaseEnv(s.Spec.Runtime, s.Spec.Root, false)
	maps.Copy(env, g.environment().Process(&s.Spec))
	return env
}

// environment returns the maker of the variables of the generation's services.
func (g *generation) environment() *stack.Environment {
	return &stack.Environment{Stack: g.st, Generation: &g.made, URLs: g.cfg.URLs}
}

// engineLog is how much of a log the engine keeps, in bytes, at least: a burst that
// outruns the reader must fit, and the engine writes a short line as several times its
// length.
const engineLog = 64 << 20

// newProcess returns the handle of a service's container, which has the aliases.
func (g *generation) newProcess(s *stack.Service, id string, aliases ...string) *process {
	return &process{gen: g, cfg: g.cfg, log: g.log.With("service", s.Spec.Name), service: s, id: id, aliases: aliases, wake: make(chan struct{}, 1)}
}

// attachStarted attaches to a container that was started after the absence of the
// engine with that number.
func (p *process) attachStarted(ctx context.Context, since time.Time, absence int64) error {
	c, err := p.cfg.Engine.Look(ctx, p.id)
	if err != nil {
		return err
	}
	return p.attach(c, since, absence)
}

// promote gives the process other names inside the stack.
func (p *process) promote(ctx context.Context, aliases ...string) error {
	err := p.cfg.Engine.Promote(ctx, p.id, aliases...)
	if err == nil {
		p.aliases = aliases
	}
	return err
}

// adopt takes over a container that already runs. Its process is not touched, and its
// log goes on after the last line written.
func (p *process) adopt(c engine.Container) error {
	_, last, err := p.gen.runner.runLog(p.service.Spec.Name)
	if err != nil && !isOfHost(err) {
		p.log.Error("log of a stack is broken", "error", err)
		return serviceError(p.service, "its log on this host is broken; upload the source again")
	}
	if err != nil {
		return err
	}
	return p.attach(c, last, p.gen.absence)
}

// attach records where the container is, its image, and the engine's last absence before it
// was known to run, and follows its log.
func (p *process) attach(c engine.Container, since time.Time, absence int64) error {
	f, err := p.follow(since)
	if err != nil {
		return err
	}
	p.absence.Store(absence)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ip, p.image, p.follower = c.IP, c.Image, f
	return nil
}

// restart starts the container again after it has ended and waits until it is healthy.
// The process has a name from then on, and its log goes on.
func (p *process) restart(ctx context.Context) error {
	since := p.unfollow()
	absence, at := p.gen.runner.sup.absences.Load(), time.Now()
	if err := p.cfg.Engine.Restart(ctx, p.id, p.aliases...); err != nil {
		return err
	}
	p.markStart(at)
	if err := p.attachStarted(ctx, since, absence); err != nil {
		return err
	}
	if err := p.waitHealthy(ctx); err != nil {
		return err
	}
	if len(p.aliases) == 0 {
		if err := p.promote(ctx, p.service.Spec.Name); err != nil {
			return err
		}
	}
	p.becomeTarget()
	return nil
}

// becomeTarget makes the process the target of its service's requests. A database has none.
func (p *process) becomeTarget() {
	if !p.isDatabase() {
		p.gen.setTarget(p.service.Spec.Name, p.newTarget())
	}
}

// newTarget returns a target for the proxy that leads to the process.
func (p *process) newTarget() *proxy.Target {
	return proxy.NewUpstream(p.addr(), proxy.Options{ConnectTimeout: p.cfg.ConnectTimeout, HeaderTimeout: p.cfg.HeaderTimeout, Log: p.cfg.Log})
}

// addr returns the process's address and port. The address is empty if the container
// ended before it was looked at.
func (p *process) addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return net.JoinHostPort(p.ip, strconv.Itoa(p.gen.made.ListenPort(&p.service.Spec)))
}

// endAndRemove ends the process, within the time that its manifest gives it unless ctx
// ends first, and removes the container once its log has been read.
func (p *process) endAndRemove(ctx context.Context) error {
	stopped := !p.hasEnded()
	if err := p.cfg.Engine.Stop(ctx, p.id); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	p.awaitLog(ctx)
	p.markEnd(ctx, stopped)
	return p.cfg.Engine.Remove(ctx, p.id)
}

// sideBySide does something with all items at once and joins the errors.
func sideBySide[T any](items []T, do func(T) error) error {
	errs := make([]error, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { errs[i] = do(item) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// serviceError returns an error that the stack's owner can do something about.
func serviceError(s *stack.Service, format string, args ...any) error {
	return stack.NewError(stack.Unprocessable, "service "+s.Spec.Name+": "+fmt.Sprintf(format, args...))
}
