package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/docker/docker/api/types/image"
)

// comparisonLimit limits a whole comparison.
const comparisonLimit = 2 * time.Hour

// comparison measures two commits: an old one, and the work tree as it is. Both are
// built in the same way and measured alternately on the same machine, round by round,
// and every second round begins with the other one. While one is measured, the servers
// of the other are idle. Each has its own data and its own range of networks.
type comparison struct {
	rounds int
	round  time.Duration // length of one load
	dir    string        // of this run, removed at the end
	sides  [2]side       // the old one first
	rows   []*contrast
}

// side is one of the commits.
type side struct {
	name  string
	bench *bench
}

// compareSections compares the named sections and prints the results. The error says
// what could not be measured, and how many rows are worse than they may be.
func (c *comparison) compareSections(ctx context.Context, names []string, base string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, comparisonLimit)
	defer cancel()
	begun := time.Now()
	if c.dir, err = os.MkdirTemp("", "berth-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir)
	if err := c.prepare(ctx, base); err != nil {
		return err
	}
	hand, err := newByHand(ctx)
	if err != nil {
		return err
	}
	defer hand.engine.Close()
	added, err := c.makeBases(ctx, hand)
	for _, ref := range added {
		defer hand.engine.ImageRemove(context.WithoutCancel(ctx), ref, image.RemoveOptions{})
	}
	if err != nil {
		return err
	}
	var failures []error
	for _, s := range sections {
		if !slices.Contains(names, s.name) || s.arrange == nil || ctx.Err() != nil {
			continue
		}
		if err := c.section(ctx, s); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	c.rows = slices.DeleteFunc(c.rows, func(row *contrast) bool { return len(row.values[0]) == 0 && !row.failed() })
	fmt.Printf("%s, %d rounds (%d of proxy and static) in %s\n\n", describe(ctx, ""), c.rounds, renewals*c.rounds, time.Since(begun).Round(time.Second))
	printContrasts(os.Stdout, c.sides[0].name, c.sides[1].name, c.rows)
	return errors.Join(append(failures, c.judge())...)
}

// prepare installs what is needed and builds both commits.
func (c *comparison) prepare(ctx context.Context, base string) error {
	source := filepath.Join(c.dir, "source")
	old, err := checkout(ctx, ".", base, source)
	if err != nil {
		return err
	}
	now, err := treeName(ctx, ".")
	if err != nil {
		return err
	}
	if err := installTools(ctx); err != nil {
		return err
	}
	tools := filepath.Join(c.dir, "tools")
	if err := goBuild(ctx, ".", tools, helping...); err != nil {
		return err
	}
	for i, from := range []struct{ name, source, dir, pool string }{
		{old, source, "old", "10.213.0.0/17"}, {now, ".", "new", "10.213.128.0/17"},
	} {
		progress("building %s", from.name)
		dir := filepath.Join(c.dir, from.dir)
		b := &bench{dir: dir, bin: filepath.Join(dir, "bin"), tools: tools, pool: from.pool, round: c.round}
		if err := b.buildMeasured(ctx, from.source); err != nil {
			return err
		}
		c.sides[i] = side{from.name, b}
	}
	return nil
}

// buildMeasured builds the programs to measure from the module in source. An old commit
// may lack all but the server: what the others measure cannot be compared then.
func (b *bench) buildMeasured(ctx context.Context, source string) error {
	for _, program := range measured {
		err := goBuild(ctx, source, b.bin, program)
		if err != nil && program == serverProgram {
			return err
		}
		if err != nil {
			progress("%v", err)
		}
	}
	if err := buildLook(ctx, source, b.bin); err != nil {
		progress("%v", err)
	}
	return nil
}

// makeBases makes the base images that each commit needs, and returns those of the old
// one that were not there before.
func (c *comparison) makeBases(ctx context.Context, hand *byHand) (added []string, err error) {
	for _, runtime := range []string{runtimeRef, goRef} {
		if _, err := c.sides[1].bench.makeBase(ctx, runtime); err != nil {
			return added, err
		}
		before, err := hand.engine.ImageList(ctx, image.ListOptions{})
		if err != nil {
			return added, err
		}
		ref, err := c.sides[0].bench.makeBase(ctx, runtime)
		if err != nil {
			return added, err
		}
		if !slices.ContainsFunc(before, func(s image.Summary) bool { return slices.Contains(s.RepoTags, ref) }) {
			added = append(added, ref)
		}
	}
	return added, nil
}

// renewals is how many times as many rounds as others a section has whose servers are
// started anew in each: two processes of one program can differ by a quarter.
const renewals = 4

// section measures the rows of a section.
func (c *comparison) section(ctx context.Context, s section) error {
	stands := [2]*stand{{}, {}}
	release := func() {
		for _, each := range stands {
			each.close()
		}
	}
	defer release()
	rounds := c.rounds
	if s.renewed {
		rounds *= renewals
	}
	for round := range rounds {
		progress("%s, round %d of %d", s.name, round+1, rounds)
		if round == 0 || s.renewed {
			release()
			stands = c.arrange(ctx, s)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if over, err := c.faults(stands); over || err != nil {
			return err
		}
		for i := range stands[0].trials {
			if err := c.turn(ctx, round, stands, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// arrange prepares a section for both commits.
func (c *comparison) arrange(ctx context.Context, s section) (stands [2]*stand) {
	for i, side := range c.sides {
		stands[i] = &stand{}
		stands[i].fault = s.arrange(side.bench, ctx, stands[i])
	}
	return stands
}

// faults records the rows of a section for which a commit could not be prepared, and
// reports whether there is one. It fails if the rows cannot be determined.
func (c *comparison) faults(stands [2]*stand) (over bool, err error) {
	if stands[0].fault != nil && stands[1].fault != nil {
		return true, fmt.Errorf("neither commit can: %w; %w", stands[0].fault, stands[1].fault)
	}
	for i, each := range stands {
		if each.fault == nil {
			continue
		}
		var rows []*contrast
		for _, trial := range stands[1-i].trials {
			rows = append(rows, c.rowsOf(trial.figures)...)
		}
		c.fail(rows, i, each.fault)
		return true, nil
	}
	return false, nil
}

// fail records that one of the commits cannot do some rows.
func (c *comparison) fail(rows []*contrast, which int, fault error) {
	progress("%s cannot: %v", c.sides[which].name, fault)
	for _, row := range rows {
		row.faults[which] = fault
	}
}

// turn measures a trial of both commits in one round, the old one first in every second
// round, so that a machine that becomes slower slows both.
func (c *comparison) turn(ctx context.Context, round int, stands [2]*stand, i int) error {
	rows := c.rowsOf(stands[0].trials[i].figures)
	if rows[0].failed() {
		return nil
	}
	var values [2][]float64
	for _, which := range []int{round % 2, 1 - round%2} {
		var err error
		values[which], err = stands[which].measure(ctx, i)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			c.fail(rows, which, err)
			return nil
		}
	}
	for n, row := range rows {
		for which := range row.values {
			row.values[which] = append(row.values[which], values[which][n])
		}
	}
	return nil
}

// rowsOf returns the rows of some figures, which are new in the first round.
func (c *comparison) rowsOf(figures []figure) []*contrast {
	rows := make([]*contrast, len(figures))
	for n, f := range figures {
		i := slices.IndexFunc(c.rows, func(row *contrast) bool { return row.figure.what == f.what })
		if i < 0 {
			i = len(c.rows)
			c.rows = append(c.rows, &contrast{figure: f})
		}
		rows[n] = c.rows[i]
	}
	return rows
}

// judge returns an error if rows are worse than they may be.
func (c *comparison) judge() error {
	bad := 0
	for _, row := range c.rows {
		if !row.good() {
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d rows are worse than at %s", bad, len(c.rows), c.sides[0].name)
}
