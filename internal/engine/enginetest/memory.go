// Package enginetest helps to test drivers and their callers. It has the contract suite,
// which every driver passes, and an engine in memory, whose containers are functions.
// Nothing outside tests imports it.
package enginetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/engine"
)

// Program is what a container in memory runs. It returns the exit code, which does not
// count if the process was killed. It must return soon after Process.Killed is closed.
type Program func(p *Process) (code int)

// Process is what a Program sees of its container.
type Process struct {
	Args       []string
	Env        []string        // KEY=value
	Terminated <-chan struct{} // closed by SIGTERM
	Killed     <-chan struct{} // closed by SIGKILL

	engine    *Engine
	container *container
}

// Print writes a line to the container's log.
func (p *Process) Print(line string) {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	p.container.log = append(p.container.log, logLine{time.Now(), line})
	p.engine.changed()
}

// Listen makes the process accept connections on a port and pass its health check.
func (p *Process) Listen(port int) {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	p.container.ports = append(p.container.ports, port)
	p.engine.changed()
}

// Dial connects to an address, as name:port: to the container on the process's network
// that has the name and listens on the port. The result reports whether the connection
// still works; it is nil if nothing listens there.
func (p *Process) Dial(addr string) (works func() bool) {
	name, port, _ := strings.Cut(addr, ":")
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	for _, c := range p.engine.containers {
		if c.ip == "" || !p.container.isOn(c.spec.Network) || !slices.Contains(c.aliases, name) {
			continue
		}
		if slices.ContainsFunc(c.ports, func(open int) bool { return strconv.Itoa(open) == port }) {
			ip := c.ip
			return func() bool {
				p.engine.mu.Lock()
				defer p.engine.mu.Unlock()
				return c.ip == ip
			}
		}
	}
	return nil
}

// Write puts a file into a folder, which may be that of a volume.
func (p *Process) Write(folder, name, content string) {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	files, name := p.engine.locate(p.container, path.Join(folder, name))
	files[name] = content
	if v := p.engine.volumes[p.container.spec.Volumes[folder]]; v != nil {
		v.changes++
		v.changedAt = time.Now()
	}
}

// Read returns a file of a folder, which may be that of a volume; "" for none.
func (p *Process) Read(folder, name string) string {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	files, name := p.engine.locate(p.container, path.Join(folder, name))
	return files[name]
}

// Engine is a container engine in memory. An engine that is made within a synctest bubble
// has the bubble's clock, so that tests need not wait.
type Engine struct {
	mu         sync.Mutex
	programs   map[string]Program // by the last word of a command
	containers map[string]*container
	images     map[string]*image // by reference
	volumes    map[string]*volume
	networks   map[string]*network
	turns      map[string]chan struct{} // by the name of what is made
	free       int64                    // bytes on its disk
	last       int                      // number of the last object or address
	away       bool                     // it accepts no connection
	change     chan struct{}            // closed when anything changes
	streams    []*stream
	before     map[string]func(object string) error
	after      map[string]func(object string) error
	running    sync.WaitGroup
}

type container struct {
	id      string
	spec    engine.Spec
	owner   string // installation
	aliases []string
	ip      string
	running bool
	paused  bool
	code    int
	failure string // why the last start failed
	ports   []int
	log     []logLine
	files   map[string]string // by path, of the image or copied in
	term    func()
	kill    func()
	killed  chan struct{}
}

// isOn reports whether the container is on a network.
func (c *container) isOn(network string) bool {
	return network == c.spec.Network || c.spec.Shared && network == c.spec.Key.Shared().Network()
}

type logLine struct {
	at   time.Time
	text string
}

type image struct {
	id    string
	owner string
	key   engine.Key
	user  int
	files map[string]string // by path
}

type volume struct {
	owner string
	key   engine.Key
	files map[string]string // by path within it

	changes   int // by programs
	changedAt time.Time
}

type network struct {
	owner string
	key   engine.Key
}

type stream struct {
	ctx    context.Context
	owner  string
	ends   chan engine.End
	queue  []engine.End
	broken bool
}

// New returns an engine with the given images. It runs the program that has the name of
// the last word of a container's command. Without one, a process ends at once with code 0.
func New(programs map[string]Program, images ...string) *Engine {
	e := &Engine{
		programs: programs, containers: map[string]*container{}, images: map[string]*image{},
		volumes: map[string]*volume{}, networks: map[string]*network{}, turns: map[string]chan struct{}{}, free: disk.Endless,
		change: make(chan struct{}), before: map[string]func(string) error{}, after: map[string]func(string) error{},
	}
	for _, ref := range images {
		e.images[ref] = &image{id: e.number("sha256:"), files: map[string]string{}}
	}
	return e
}

// Before makes the engine call do before each request of a method of a Driver, with the
// name or id that the request is about. If do returns an error, that is the engine's
// answer; otherwise the request goes on. A nil do ends this.
func (e *Engine) Before(method string, do func(object string) error) { e.hook(e.before, method, do) }

// After is Before for the moment when the engine has done what it was asked. With
// engine.ErrUnreachable the answer is lost.
func (e *Engine) After(method string, do func(object string) error) { e.hook(e.after, method, do) }

func (e *Engine) hook(hooks map[string]func(string) error, method string, do func(string) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if do == nil {
		delete(hooks, method)
		return
	}
	hooks[method] = do
}

// Leave makes the engine go away, with the processes of all containers.
func (e *Engine) Leave() {
	e.Disconnect()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.containers {
		e.endProcess(c, 137)
	}
}

// Disconnect makes the engine go away, while the processes of all containers go on.
func (e *Engine) Disconnect() {
	e.Hang()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.streams {
		s.broken = true
	}
	e.changed()
}

// Hang makes the engine take no connection. Its processes and streams go on.
func (e *Engine) Hang() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away = true
	e.changed()
}

// Return makes an engine that went away answer again. It starts nothing.
func (e *Engine) Return() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away = false
	e.changed()
}

// Fill leaves so many bytes free on the engine's disk, which else never fills up.
func (e *Engine) Fill(free int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free = free
}

// Kill ends the process of a container, by name, as a crash with the exit code does.
func (e *Engine) Kill(name string, code int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.find(name); c != nil {
		e.endProcess(c, code)
	}
}

// Close ends the processes of all containers and returns when none runs.
func (e *Engine) Close() {
	e.mu.Lock()
	for _, c := range e.containers {
		e.endProcess(c, 137)
	}
	e.mu.Unlock()
	e.running.Wait()
}

// Await waits until a condition holds for the names of the containers that run. It
// returns false when ctx ends before that.
func (e *Engine) Await(ctx context.Context, holds func(running []string) bool) bool {
	for {
		e.mu.Lock()
		var running []string
		for _, c := range e.containers {
			if c.running {
				running = append(running, c.spec.Name)
			}
		}
		change := e.change
		e.mu.Unlock()
		slices.Sort(running)
		if holds(running) {
			return true
		}
		select {
		case <-change:
		case <-ctx.Done():
			return false
		}
	}
}

// Volume returns a copy of the files in a volume; nil when there is none.
func (e *Engine) Volume(name string) map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v := e.volumes[name]; v != nil {
		return maps.Clone(v.files)
	}
	return nil
}

// Connects reports whether something accepts connections at an address, as ip:port.
func (e *Engine) Connects(addr string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return false
	}
	ip := at.Addr().String()
	for _, c := range e.containers {
		if c.running && c.ip == ip {
			return slices.Contains(c.ports, int(at.Port()))
		}
	}
	return false
}

// Changed returns a channel that is closed when anything in the engine changes.
func (e *Engine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.change
}

// changed wakes everyone who waits for a change. The lock is held.
func (e *Engine) changed() {
	close(e.change)
	e.change = make(chan struct{})
}

func (e *Engine) number(prefix string) string {
	e.last++
	return prefix + strconv.Itoa(e.last)
}

// find returns a container by id or name. The lock is held.
func (e *Engine) find(id string) *container {
	if c := e.containers[id]; c != nil {
		return c
	}
	for _, c := range e.containers {
		if c.spec.Name == id {
			return c
		}
	}
	return nil
}

// locate returns the files that a path in a container leads to, and the path among them.
// The lock is held.
func (e *Engine) locate(c *container, file string) (files map[string]string, name string) {
	for folder, volume := range c.spec.Volumes {
		if name, ok := strings.CutPrefix(file, folder+"/"); ok {
			return e.volumes[volume].files, name
		}
	}
	return c.files, file
}

// mount makes the volumes of a container that are missing, and fills empty ones with the
// container's files in their place. The lock is held.
func (e *Engine) mount(c *container) {
	for folder, name := range c.spec.Volumes {
		v := e.volumes[name]
		if v == nil {
			v = newVolume(c.owner, listed(c.spec.Key), map[string]string{})
			e.volumes[name] = v
		}
		if len(v.files) > 0 {
			continue
		}
		for file, content := range c.files {
			if inside, ok := strings.CutPrefix(file, folder+"/"); ok {
				v.files[inside] = content
			}
		}
	}
}

// newVolume returns a volume with files.
func newVolume(owner string, key engine.Key, files map[string]string) *volume {
	return &volume{owner: owner, key: key, files: files, changedAt: time.Now()}
}

// Paused returns the names of the containers that are paused, sorted.
func (e *Engine) Paused() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []string
	for _, c := range e.containers {
		if c.paused {
			names = append(names, c.spec.Name)
		}
	}
	slices.Sort(names)
	return names
}

// missing returns the names of those volumes that do not exist. The lock is held.
func (e *Engine) missing(volumes map[string]string) []string {
	return slices.DeleteFunc(slices.Collect(maps.Values(volumes)), func(name string) bool { return e.volumes[name] != nil })
}

// isHeld reports whether a container has a volume of a name. The lock is held.
func (e *Engine) isHeld(name string) bool {
	for _, c := range e.containers {
		for _, volume := range c.spec.Volumes {
			if volume == name {
				return true
			}
		}
	}
	return false
}

// isUsed reports whether a container was made from an image. The lock is held.
func (e *Engine) isUsed(ref string) bool {
	for _, c := range e.containers {
		if c.spec.Image == ref {
			return true
		}
	}
	return false
}

// dropData removes the data volume of a service, with what a Snapshot or a Restore that
// broke off has left. The lock is held.
func (e *Engine) dropData(key engine.Key) error {
	for _, name := range []string{key.SnapshotCopy(), key.RestoreCopy()} {
		if c := e.find(name); c != nil {
			e.endProcess(c, 137)
			delete(e.containers, c.id)
		}
	}
	e.changed()
	if e.isHeld(key.Data()) {
		return fmt.Errorf("volume %s is in use: %w", key.Data(), engine.ErrHost)
	}
	delete(e.volumes, key.Data())
	return nil
}

// turn calls do while nobody else makes a container, or restores a volume, of a name.
func (e *Engine) turn(ctx context.Context, name string, do func() error) error {
	e.mu.Lock()
	turn := e.turns[name]
	if turn == nil {
		turn = make(chan struct{}, 1)
		e.turns[name] = turn
	}
	e.mu.Unlock()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
		return do()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endProcess records that the process of a container has ended. The lock is held.
func (e *Engine) endProcess(c *container, code int) {
	if !c.running {
		return
	}
	c.running, c.paused, c.code, c.ip, c.ports = false, false, code, "", nil
	c.kill()
	for _, s := range e.streams {
		if s.owner == c.owner && !s.broken {
			s.queue = append(s.queue, engine.End{ID: c.id, Key: c.spec.Key})
		}
	}
	e.changed()
}

// launch runs the program of a container. The lock is held.
func (e *Engine) launch(c *container) {
	terminated, killed := make(chan struct{}), make(chan struct{})
	c.running, c.code, c.failure, c.killed = true, 0, "", killed
	c.term, c.kill = sync.OnceFunc(func() { close(terminated) }), sync.OnceFunc(func() { close(killed) })
	e.join(c)
	p := &Process{Args: c.spec.Cmd, Env: c.spec.Env, Terminated: terminated, Killed: killed, engine: e, container: c}
	program := e.program(c.spec.Cmd)
	e.changed()
	e.running.Go(func() {
		code := program(p)
		e.mu.Lock()
		defer e.mu.Unlock()
		if c.killed == killed { // it was not started again since
			e.endProcess(c, code)
		}
	})
}

// join gives a container an address on its network, unless it has one. The lock is held.
func (e *Engine) join(c *container) {
	if c.spec.Network != "" && c.ip == "" {
		e.last++
		c.ip = netip.AddrFrom4([4]byte{10, 0, byte(e.last >> 8), byte(e.last)}).String()
	}
}

// program returns what a command runs.
func (e *Engine) program(cmd []string) Program {
	code := 0
	if program := e.programs[lastOf(cmd)]; program != nil {
		return program
	} else if len(cmd) > 0 && path.IsAbs(cmd[0]) {
		code = noSuchCommand
	}
	return func(*Process) int { return code }
}

// noSuchCommand is the exit code when there is no such program.
const noSuchCommand = 127

func lastOf(cmd []string) string {
	if len(cmd) == 0 {
		return ""
	}
	return cmd[len(cmd)-1]
}

// Driver returns the driver of an installation.
func (e *Engine) Driver(opts Options) *Driver {
	opts.Subnets = cmp.Or(opts.Subnets, 256)
	return &Driver{engine: e, opts: opts}
}

var (
	errNoStart   = errors.New("it cannot be started")
	errNoPromote = errors.New("it cannot be named while it runs")
)

func notFound(what, name string) error {
	return fmt.Errorf("%s %s: %w", what, name, engine.ErrNotFound)
}
