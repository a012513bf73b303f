package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// forwardGoal is the lowest ratio of requests through a node without the stack to those
// through its owner.
const forwardGoal = 0.6

const pageManifest = "name: page\nservices:\n  - name: web\n    runtime: " + runtimeRef + "\n    install: \"\"\n    build: \"\"\n    start: ./page\n"

// pageArchive returns a program that answers with 1 KB, already built.
func pageArchive(bin string) ([]byte, error) {
	program, err := os.ReadFile(filepath.Join(bin, "page"))
	if err != nil {
		return nil, err
	}
	return archive(map[string]string{"stack.yaml": pageManifest, "page": string(program)})
}

// measureForward compares requests through a node that does not have the stack with those
// through the node that has it.
func (b *bench) measureForward(ctx context.Context) error {
	return b.withThree(ctx, nil, func(ctx context.Context, c *three) error {
		program, err := pageArchive(b.tools)
		if err != nil {
			return err
		}
		owner, other := c.servers[1], c.servers[2]
		if err := c.placeOn(ctx, owner); err != nil {
			return err
		}
		made, _, err := owner.berth.create(ctx, program)
		if err != nil {
			return err
		}
		for _, conns := range connections {
			if err := b.forwardRow(ctx, owner.berth.target, other.berth.target, made, conns); err != nil {
				return err
			}
		}
		return nil
	})
}

// forwardRow loads both nodes in turns.
func (b *bench) forwardRow(ctx context.Context, owner, other *target, made deployed, conns int) error {
	var through, own []float64
	loads := []struct {
		on  *target
		rps *[]float64
	}{{other, &through}, {owner, &own}}
	for round := range b.rounds {
		for i := range loads {
			l := loads[(i+round)%2]
			count, took, err := wrk(ctx, l.on, made.host(), "/", conns, b.round)
			if err != nil {
				return err
			}
			*l.rps = append(*l.rps, count/took.Seconds())
		}
	}
	what := fmt.Sprintf("through a node without the stack, 1 KB, %d conn: requests", conns)
	if conns == 1 { // what the hop takes, not what a node can do
		b.table.compare(what, perSecond, through, "through its owner", own, 0)
		return nil
	}
	b.table.share(what, perSecond, through, "through its owner", own, forwardGoal)
	return nil
}
