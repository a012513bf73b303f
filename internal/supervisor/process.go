package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/build"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// process is the container of one service of one generation.
type process struct {
	*runner
	st      *stack.Stack
	service *stack.Service
	id      string
	ip      string

	stopFollowing context.CancelFunc
	followed      chan struct{} // closed when the log has been read to its end
	last          *recent
}

// containerName is the name of a service's container in a generation.
func containerName(st *stack.Stack, service string, generation int) string {
	return "berth-" + st.Hex() + "-" + service + "-g" + strconv.Itoa(generation)
}

// dataVolume is the name of the volume behind a service's $DATA_DIR.
func dataVolume(st *stack.Stack, service string) string {
	return "berth-" + st.Hex() + "-" + service + "-data"
}

// run starts a service's process, in place of what an earlier attempt left.
func (g *generation) run(ctx context.Context, s *stack.Service) (*process, error) {
	spec := g.containerSpec(s, g.number)
	spec.Name = containerName(g.st, s.Name, g.number)
	spec.Cmd = []string{"sh", "-c", s.Start}
	spec.Aliases = []string{s.Name}
	id, err := g.create(ctx, spec)
	if err != nil {
		return nil, err
	}
	p := g.process(g.st, s, id)
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.remove(context.WithoutCancel(ctx), 0))
	}
	return p, nil
}

// containerSpec is what every container of a service's generation has in
// common, whatever it runs.
func (g *generation) containerSpec(s *stack.Service, generation int) docker.ContainerSpec {
	labels := g.labels(g.st, s.Name)
	labels[build.LabelGeneration] = strconv.Itoa(generation)
	uid := strconv.Itoa(g.st.UID())
	return docker.ContainerSpec{
		Image:       s.Image,
		User:        uid + ":" + uid,
		Dir:         path.Join(build.AppDir, s.Root),
		Hostname:    s.Name,
		Env:         build.EnvList(g.processEnv(s)),
		Labels:      labels,
		Network:     build.NetworkName(g.st),
		Volumes:     map[string]string{build.DataDir: dataVolume(g.st, s.Name)},
		Memory:      g.Memory,
		NanoCPUs:    g.NanoCPUs,
		Pids:        g.Pids,
		Runtime:     g.Runtime,
		LogMax:      max(engineLog, 4*g.LogMax),
		StopTimeout: s.StopTimeout,
	}
}

// engineLog is how much of a log the engine keeps, in bytes, at the least: a
// burst that outruns the reader must fit, and the engine's form of a short line
// is several times as long as the line.
const engineLog = 64 << 20

// create makes a container with its data volume, in place of one of the same
// name that an earlier attempt left.
func (g *generation) create(ctx context.Context, spec docker.ContainerSpec) (string, error) {
	ctx = context.WithoutCancel(ctx) // what the engine was asked for is known by its id, or not there
	for _, volume := range spec.Volumes {
		labels := maps.Clone(spec.Labels)
		delete(labels, build.LabelGeneration)
		if err := g.Engine.EnsureVolume(ctx, volume, labels); err != nil {
			return "", err
		}
	}
	id, err := g.Engine.Create(ctx, spec)
	if !errors.Is(err, docker.ErrConflict) {
		return id, err
	}
	if err := g.Engine.Remove(ctx, spec.Name); err != nil {
		return "", err
	}
	return g.Engine.Create(ctx, spec)
}

// process is the handle of a service's container.
func (r *runner) process(st *stack.Stack, s *stack.Service, id string) *process {
	return &process{runner: r, st: st, service: s, id: id, last: &recent{}}
}

// start starts the container and follows its log.
func (p *process) start(ctx context.Context) error {
	if err := p.Engine.Start(ctx, p.id); err != nil {
		return err
	}
	c, err := p.Engine.Inspect(ctx, p.id)
	if err != nil {
		return err
	}
	p.ip = c.IP
	return p.follow(time.Time{})
}

// adopt takes over a container that runs already: its process stays untouched
// and its log goes on after the last line that was written down.
func (p *process) adopt(c docker.Container) error {
	p.ip = c.IP
	return p.follow(c.StartedAt)
}

// target is where the proxy sends this service's requests.
func (p *process) target() *proxy.Target {
	return proxy.NewUpstream(p.addr(), proxy.Options{ConnectTimeout: p.ConnectTimeout, HeaderTimeout: p.HeaderTimeout})
}

func (p *process) addr() string {
	return net.JoinHostPort(p.ip, strconv.Itoa(port(&p.service.Spec)))
}

// follow copies the container's log into the service's, from the line after
// the last one there, until the process ends.
func (p *process) follow(started time.Time) error {
	log, last, err := logfile.Open(p.logPath(p.st, p.service.Name, "run"), p.LogMax)
	if err != nil {
		return err
	}
	if started.IsZero() {
		last = time.Time{} // a new container: none of its lines is written down
	}
	ctx, cancel := context.WithCancel(p.ctx)
	p.stopFollowing, p.followed = cancel, make(chan struct{})
	p.jobs.Add(1)
	go func() {
		defer p.jobs.Done()
		defer close(p.followed)
		defer cancel()
		defer log.Close()
		p.copyLog(ctx, log, last)
	}()
	return nil
}

func (p *process) copyLog(ctx context.Context, log *logfile.File, since time.Time) {
	for {
		err := p.Engine.Follow(ctx, p.id, since, func(at time.Time, line []byte, _ bool) {
			since = at
			p.last.add(line)
			if err := log.Line(at, line); err != nil {
				p.Log.Error("log line not written", "stack", p.st.ID, "service", p.service.Name, "error", err)
			}
		})
		if err == nil || ctx.Err() != nil || errors.Is(err, docker.ErrNotFound) {
			return
		}
		p.Log.Warn("log not followed; trying again", "stack", p.st.ID, "service", p.service.Name, "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}

// release stops following the log; the process goes on.
func (p *process) release() {
	if p.stopFollowing != nil {
		p.stopFollowing()
		<-p.followed
	}
}

// remove takes the container away after its log has been read. The process has
// grace to end by itself; without any it is killed.
func (p *process) remove(ctx context.Context, grace time.Duration) error {
	end := func() error { return p.Engine.Stop(ctx, p.id, grace) }
	if grace == 0 {
		end = func() error { return p.Engine.Kill(ctx, p.id) }
	}
	if err := end(); err != nil {
		return err
	}
	if p.followed != nil {
		<-p.followed
	}
	return p.Engine.Remove(ctx, p.id)
}

// runRelease runs the service's release command once, in a container of its own
// with the service's data; its output goes to the build log.
func (g *generation) runRelease(ctx context.Context, s *stack.Service) error {
	spec := g.containerSpec(s, g.number)
	spec.Name = containerName(g.st, s.Name, g.number) + "-release"
	spec.Cmd = []string{"sh", "-c", s.Release}
	log, _, err := logfile.Open(g.logPath(g.st, s.Name, "build"), g.LogMax)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "== release %s gen %d\n$ %s\n", s.Name, g.number, s.Release)
	id, err := g.create(ctx, spec)
	if err != nil {
		return err
	}
	defer g.Engine.Remove(context.WithoutCancel(ctx), id) //nolint:errcheck // the sweep takes what stays
	if err := g.Engine.Start(ctx, id); err != nil {
		return err
	}
	var last recent
	limited, cancel := context.WithTimeout(ctx, g.Builder.Timeout)
	defer cancel()
	err = g.Engine.Follow(limited, id, time.Time{}, func(_ time.Time, line []byte, _ bool) {
		last.add(line)
		fmt.Fprintf(log, "%s\n", line)
	})
	if limited.Err() != nil && ctx.Err() == nil {
		return serviceError(s, "release ran longer than %s and was killed: %s%s", g.Builder.Timeout, s.Release, &last)
	}
	if err != nil {
		return err
	}
	c, err := g.Engine.Inspect(ctx, id)
	if err == nil && c.ExitCode != 0 {
		return serviceError(s, "release failed: %q exited with code %d%s", s.Release, c.ExitCode, &last)
	}
	return err
}

// serviceError is a failure that the stack's owner can do something about.
func serviceError(s *stack.Service, format string, args ...any) error {
	return stack.NewError(stack.Unprocessable, "service "+s.Name+": "+fmt.Sprintf(format, args...))
}

// recent keeps the last lines of a log for an error.
type recent struct {
	mu    sync.Mutex
	lines []string
}

const recentLines = 40

func (r *recent) add(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, strings.ToValidUTF8(string(line), "\uFFFD"))
	if len(r.lines) > 2*recentLines {
		r.lines = append(r.lines[:0], r.lines[len(r.lines)-recentLines:]...)
	}
}

// String is the end of the log below a line of its own.
func (r *recent) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) == 0 {
		return "; it wrote nothing to its log"
	}
	return "; the end of its log:\n" + strings.Join(r.lines[max(0, len(r.lines)-recentLines):], "\n")
}
