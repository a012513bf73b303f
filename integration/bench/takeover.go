package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	takenStacks  = 100
	takeoverGoal = 15_000 // milliseconds from when the node is lost
	takeoverTime = 5 * time.Minute
	stateEvery   = 200 * time.Millisecond
)

// measureTakeover kills a node with static sites, and measures how long after it is lost all
// of them answer through another node.
func (b *bench) measureTakeover(ctx context.Context) error {
	// What is measured begins after the grace, which is 60 s by default.
	return b.withThree(ctx, map[string]string{"BERTH_NODE_GRACE": "20s"}, func(ctx context.Context, c *three) error {
		doomed, through := c.servers[1], c.servers[2]
		if err := c.placeOn(ctx, doomed); err != nil {
			return err
		}
		sites, err := c.createSites(ctx, doomed)
		if err != nil {
			return err
		}
		if err := c.placeOn(ctx, c.servers...); err != nil {
			return err
		}
		took, err := c.takeover(ctx, doomed, through, sites)
		if err != nil {
			return err
		}
		b.table.worst(fmt.Sprintf("%d static sites of a lost node: loss to %d answers", takenStacks, takenStacks), millis, []float64{inMillis(took)}, takeoverGoal)
		return nil
	})
}

// createSites creates the sites through a server, and waits until the registry has them.
func (c *three) createSites(ctx context.Context, on *labServer) ([]deployed, error) {
	progress("making %d static sites", takenStacks)
	site, err := siteArchive()
	if err != nil {
		return nil, err
	}
	sites := make([]deployed, takenStacks)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range sites {
		group.Go(func() (err error) {
			if sites[i], _, err = on.berth.create(ctx, site); err != nil {
				return err
			}
			return c.awaitPushed(ctx, sites[i], 1)
		})
	}
	return sites, group.Wait()
}

// takeover kills a node and returns the time from when it is lost until all sites answer
// through another.
func (c *three) takeover(ctx context.Context, doomed, through *labServer, sites []deployed) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, takeoverTime)
	defer cancel()
	progress("killing %s", doomed.node.Name)
	if err := doomed.node.Machine.Kill(ctx); err != nil {
		return 0, err
	}
	for {
		state, err := c.state(ctx, through, doomed)
		if err != nil {
			return 0, err
		}
		if state == "lost" {
			break
		}
		if err := pause(ctx, stateEvery); err != nil {
			return 0, errors.New("the node that was killed is not lost")
		}
	}
	lost := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, made := range sites {
		group.Go(func() error {
			_, err := poll(ctx, "http://"+through.berth.target.addr+"/", made.host())
			return err
		})
	}
	err := group.Wait()
	return time.Since(lost), err
}
