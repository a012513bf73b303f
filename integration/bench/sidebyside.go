package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	createdAtOnce = 6
	createdStacks = 12
	createRounds  = 3
)

// aSecond is the unit of what takes about a second.
const aSecond unit = "%.2f/s"

// measureCreates compares creates on three nodes side by side with creates on one of them.
func (b *bench) measureCreates(ctx context.Context) error {
	return b.withThree(ctx, nil, func(ctx context.Context, c *three) error {
		program, err := answerArchive(b.tools)
		if err != nil {
			return err
		}
		var all, one []float64
		kinds := []struct {
			on   []*labServer
			rate *[]float64
		}{{c.servers, &all}, {c.servers[1:2], &one}}
		for round := range createRounds {
			for i := range kinds {
				k := kinds[(i+round)%2]
				rate, err := c.createRate(ctx, program, k.on)
				if err != nil {
					return err
				}
				*k.rate = append(*k.rate, rate)
			}
		}
		b.table.compare(fmt.Sprintf("creates of a program, %d at once, nodes that share these cores: three nodes", createdAtOnce), aSecond, all, "one node", one, 0)
		return nil
	})
}

// createRate creates stacks on some nodes, deletes them, and returns how many were live a
// second.
func (c *three) createRate(ctx context.Context, program []byte, on []*labServer) (float64, error) {
	if err := c.placeOn(ctx, on...); err != nil {
		return 0, err
	}
	stacks := make([]deployed, createdStacks)
	begun := time.Now()
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(createdAtOnce)
	for i := range stacks {
		group.Go(func() (err error) {
			stacks[i], _, err = on[i%len(on)].berth.create(within, program)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	rate := createdStacks / time.Since(begun).Seconds()
	for _, made := range stacks {
		if err := on[0].berth.removeStack(ctx, made); err != nil {
			return 0, err
		}
	}
	return rate, nil
}
