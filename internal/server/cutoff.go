package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

// A server that waits for its database serves nothing, but containers of the one before may
// run. If the node is cut off, others may take some of these stacks. Which ones, and when the
// node last had its lease, is in a file that is written before each renewal.

// noteTakeable writes the file; renewed is when the last lease was asked for.
func noteTakeable(dir datadir.Dir, stacks []string, renewed time.Time) error {
	temp := dir.Takeable() + ".new"
	text := strings.Join(append([]string{renewed.Format(time.RFC3339Nano)}, stacks...), "\n")
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, dir.Takeable())
}

// readTakeable reads the file.
func readTakeable(dir datadir.Dir) (stacks []string, renewed time.Time, err error) {
	text, err := os.ReadFile(dir.Takeable())
	if err != nil {
		return nil, renewed, err
	}
	lines := strings.Fields(string(text))
	if len(lines) == 0 {
		return nil, renewed, errors.New("the file is empty")
	}
	renewed, err = time.Parse(time.RFC3339Nano, lines[0])
	return lines[1:], renewed, err
}

// cutOff is a node whose server waits for its database.
type cutOff struct {
	driver  engine.Driver
	manager func(context.Context) bool // reports whether this node is a manager that Swarm answers
	grace   time.Duration
	within  time.Duration // that programs get to end
	last    time.Time     // when it last was not cut off for sure
	takes   func(stack string) bool
	log     *slog.Logger
}

// watchCutOff stops what others may take once the node has had neither its lease nor Swarm's
// answer for BERTH_NODE_GRACE. The caller calls stop when the database answers.
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
	stacks, renewed, err := readTakeable(s.dir())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir().Takeable(), err)
	}
	return &cutOff{
		driver: docker.NewDriver(s.engine, s.engineInfo, s.cfg.driverOptions(strings.TrimSpace(string(installation)))),
		manager: func(ctx context.Context) bool {
			_, err := s.engine.SwarmNodes(ctx)
			return err == nil
		},
		grace: s.cfg.NodeGrace, within: s.cfg.isolatedStop(), last: renewed,
		takes: func(stack string) bool { // with snapshots they may take nearly all
			return s.cfg.NodeLost == lostRestore || slices.Contains(stacks, stack)
		},
		log: s.log,
	}, nil
}

// watch stops what others may take when it is time, and ends then, or with ctx.
func (c *cutOff) watch(ctx context.Context) {
	for pause.For(ctx, databaseRetry) {
		limited, cancel := context.WithTimeout(ctx, engineAnswer)
		if c.manager(limited) {
			c.last = time.Now()
		}
		cancel()
		if time.Since(c.last).Abs() < c.grace { // the clock may have been set back since
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
