package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/peer"
)

// A server that waits for its database serves nothing, but containers of the one before may
// run. If the node is cut off, others may take some of these stacks. What it has to know then is
// in a file that is written before each renewal of the lease.

// takeable is what the file says.
type takeable struct {
	renewed  time.Time         // when the last lease was asked for
	stacks   []string          // that others may take
	managers map[string]string // host:port of the nodes that were managers, by id
}

// managerWord begins the lines of managers in the file.
const managerWord = "manager"

// note writes the file.
func (t takeable) note(dir datadir.Dir) error {
	lines := append([]string{t.renewed.Format(time.RFC3339Nano)}, t.stacks...)
	for _, id := range slices.Sorted(maps.Keys(t.managers)) {
		lines = append(lines, managerWord+" "+id+" "+t.managers[id])
	}
	temp := dir.Takeable() + ".new"
	if err := os.WriteFile(temp, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, dir.Takeable())
}

// readTakeable reads the file.
func readTakeable(dir datadir.Dir) (t takeable, err error) {
	text, err := os.ReadFile(dir.Takeable())
	if err != nil {
		return t, err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	t.managers = map[string]string{}
	for _, line := range lines[1:] {
		if words := strings.Fields(line); len(words) == 3 && words[0] == managerWord {
			t.managers[words[1]] = words[2]
		} else {
			t.stacks = append(t.stacks, line)
		}
	}
	t.renewed, err = time.Parse(time.RFC3339Nano, lines[0])
	return t, err
}

// noteTakeable writes the file for the next server of this node.
func (s *Server) noteTakeable(stacks []string, renewed time.Time) error {
	t := takeable{renewed, stacks, map[string]string{}}
	for _, n := range s.cluster.Nodes() {
		if n.Manager && n.ID != s.cluster.Self() && n.Address != "" {
			t.managers[n.ID] = n.Address
		}
	}
	return t.note(s.dir())
}

// remembered is the nodes of a cluster, as far as the file names them.
type remembered struct {
	self     string
	managers map[string]string
}

// Self implements peer.Nodes, as do the others.
func (r remembered) Self() string { return r.self }

func (r remembered) Member(node string) bool { return r.managers[node] != "" }

func (r remembered) Name(node string) string { return node }

func (r remembered) Manager() bool { return false }

func (r remembered) Address(node string) (string, peer.State) { return r.managers[node], peer.Away }

// cutOff is a node whose server waits for its database.
type cutOff struct {
	driver  engine.Driver
	manager func(context.Context) bool // reports whether this node is in contact with a manager
	grace   time.Duration
	within  time.Duration // that programs get to end
	takes   func(stack string) bool
	log     *slog.Logger

	mu   sync.Mutex
	last time.Time // when it last was not cut off for sure
}

// watchCutOff stops what others may take once the node has had neither its lease nor contact with
// a manager for BERTH_NODE_GRACE. The caller calls stop when the database answers.
func (s *Server) watchCutOff(ctx context.Context) (stop func()) {
	c, err := s.newCutOff()
	if c == nil || err != nil {
		if err != nil {
			s.log.Warn("if this node is cut off, stacks that others take may run here until the database answers", "error", err)
		}
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx) })
	return func() {
		cancel()
		watching.Wait()
	}
}

// newCutOff returns nil outside of clusters.
func (s *Server) newCutOff() (*cutOff, error) {
	if !s.cfg.InCluster() {
		return nil, nil
	}
	installation, err := os.ReadFile(s.dir().Instance())
	if err != nil {
		return nil, err
	}
	noted, err := readTakeable(s.dir())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir().Takeable(), err)
	}
	var pool *peer.Pool // once there is one
	return &cutOff{
		driver: docker.NewDriver(s.engine, s.engineInfo, s.cfg.driverOptions(strings.TrimSpace(string(installation)))),
		manager: func(ctx context.Context) bool {
			asks := []func(context.Context) bool{func(ctx context.Context) bool {
				_, err := s.engine.SwarmNodes(ctx)
				return err == nil
			}}
			if pool == nil {
				var err error
				if pool, err = s.managersOf(ctx, noted); err != nil {
					s.log.Warn("the managers are not asked whether this node is cut off", "error", err)
					return isTrue(ctx, asks)
				}
			}
			for id := range noted.managers {
				asks = append(asks, func(ctx context.Context) bool {
					pong, err := pool.Ping(ctx, id)
					return err == nil && pong.Node == id && pong.Manager
				})
			}
			return isTrue(ctx, asks)
		},
		grace: s.cfg.NodeGrace, within: s.cfg.isolatedStop(), last: noted.renewed,
		takes: func(stack string) bool { // with snapshots they may take nearly all
			return s.cfg.NodeLost == lostRestore || slices.Contains(noted.stacks, stack)
		},
		log: s.log,
	}, nil
}

// managersOf returns the way to the managers that the file names. A contact with one counts for
// both sides.
func (s *Server) managersOf(ctx context.Context, noted takeable) (*peer.Pool, error) {
	swarm, err := s.engine.Swarm(ctx)
	if err != nil {
		return nil, err
	}
	cert, key, authority := s.cfg.peerFiles(s.engineInfo.RootDir)
	certs, err := cluster.OpenCertificates(cert, key, authority, swarm.Node)
	if err != nil {
		return nil, err
	}
	return peer.NewPool(peer.PoolConfig{
		Nodes: remembered{swarm.Node, noted.managers}, Certificates: certs, Protocol: peer.Protocol, Silence: peerSilence, Log: s.log,
	}), nil
}

// isTrue asks all at the same time, and reports whether one says yes.
func isTrue(ctx context.Context, asks []func(context.Context) bool) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said := make(chan bool, len(asks))
	for _, ask := range asks {
		go func() { said <- ask(ctx) }()
	}
	for range asks {
		if <-said {
			return true
		}
	}
	return false
}

// watch stops what others may take when it is time, and ends then, or with ctx. Who is asked
// meanwhile does not delay it: others count the time, too.
func (c *cutOff) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asking.Go(func() { c.keepAsking(ctx) })
	for pause.For(ctx, databaseRetry) {
		if c.since() < c.grace {
			continue
		}
		err := c.stopAll(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			c.log.Warn("stacks that others may take not stopped; trying again", "error", err)
		}
	}
}

// contactAnswer is how long a manager may take to answer.
const contactAnswer = 2 * time.Second

// keepAsking asks again and again whether this node is cut off.
func (c *cutOff) keepAsking(ctx context.Context) {
	for pause.For(ctx, databaseRetry) {
		begun := time.Now()
		limited, cancel := context.WithTimeout(ctx, contactAnswer)
		if c.manager(limited) {
			c.mu.Lock()
			c.last = begun
			c.mu.Unlock()
		}
		cancel()
	}
}

// since returns for how long this node may have been cut off. The clock may have been set back.
func (c *cutOff) since() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.last).Abs()
}

// stopAll stops the containers of stacks that others may take.
func (c *cutOff) stopAll(ctx context.Context) error {
	there, err := c.driver.Containers(ctx, engine.Key{})
	if err != nil {
		return err
	}
	there = slices.DeleteFunc(there, func(found engine.Container) bool { return found.Key.Stack == "" || !c.takes(found.Key.Stack) })
	errs := make([]error, len(there))
	var stopping sync.WaitGroup
	for i, found := range there {
		stopping.Go(func() {
			c.log.Warn("container stopped: this node is cut off, and another may take its stack", "stack", found.Key.Stack, "container", found.Name)
			limited, cancel := context.WithTimeout(ctx, c.within)
			defer cancel()
			if err := c.driver.Stop(limited, found.ID); err != nil {
				c.log.Warn("container of an isolated node not stopped in time; killing it", "container", found.Name, "error", err)
			}
			errs[i] = c.driver.Remove(ctx, found.ID)
		})
	}
	stopping.Wait()
	return errors.Join(errs...)
}
