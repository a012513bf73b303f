package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	hundred      = 100  // live stacks
	adoptionGoal = 3000 // milliseconds from the start of the server to all answers
	idleGoal     = 2    // percent of a core

	adoptions = 3
	idleAfter = 10 * time.Second // what the start has begun is over by then
	idleFor   = time.Minute
	atOnce    = 8 // stacks being made, URLs being asked

	comparedIdle = 15 * time.Second // in each round of a comparison

	adoptionRow = "100 live stacks: start of the server to 100 answers"
	idleRow     = "100 live stacks: CPU of the server while idle"
)

// many are the settings of a server that gets a hundred stacks at once.
var many = []string{"BERTH_MAX_BUILDS=8"}

// measureHundred measures the cost of a hundred live stacks: how soon all of them
// answer after a restart of the server, what the server uses when idle, and what it uses for
// the metrics when they are busy.
func (b *bench) measureHundred(ctx context.Context) error {
	return b.withBerth(ctx, many, func(ctx context.Context, server *berth) error {
		stacks, err := server.createMany(ctx, b.tools)
		if err != nil {
			return err
		}
		var adopted []float64
		for range adoptions {
			took, err := b.adoption(ctx, server, stacks)
			if err != nil {
				return err
			}
			adopted = append(adopted, inMillis(took))
		}
		b.table.worst(adoptionRow, millis, adopted, adoptionGoal)
		idle, err := server.idle(ctx, idleFor)
		if err != nil {
			return err
		}
		b.table.worst(idleRow, percent, []float64{idle}, idleGoal)
		return b.measureMetrics(ctx, server, stacks)
	})
}

// hundredTrials restarts a server of a hundred stacks, and leaves it idle.
func (b *bench) hundredTrials(ctx context.Context, s *stand) error {
	server, err := s.openBerth(ctx, b, many)
	if err != nil {
		return err
	}
	stacks, err := server.createMany(ctx, b.tools)
	if err != nil {
		return err
	}
	s.time(adoptionRow, func(ctx context.Context) (time.Duration, error) { return b.adoption(ctx, server, stacks) })
	s.one(figure{what: idleRow, unit: percent}, func(ctx context.Context) (float64, error) {
		return server.idle(ctx, comparedIdle)
	})
	return nil
}

// createMany creates a hundred stacks of the smallest program.
func (s *berth) createMany(ctx context.Context, tools string) ([]deployed, error) {
	progress("making %d stacks", hundred)
	program, err := answerArchive(tools)
	if err != nil {
		return nil, err
	}
	stacks := make([]deployed, hundred)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range stacks {
		group.Go(func() (err error) {
			stacks[i], _, err = s.create(ctx, program)
			return err
		})
	}
	return stacks, group.Wait()
}

// adoption restarts the server and returns the time from the start of its process until
// every stack has answered.
func (b *bench) adoption(ctx context.Context, server *berth, stacks []deployed) (time.Duration, error) {
	server.target.process.stop()
	ctx, cancel := context.WithTimeout(ctx, deployTime)
	defer cancel()
	start := time.Now()
	if err := b.launch(ctx, server); err != nil {
		return 0, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, made := range stacks {
		group.Go(func() error {
			_, err := server.firstAnswer(ctx, made)
			return err
		})
	}
	err := group.Wait()
	return time.Since(start), err
}

// idle returns the processor time of the idle server over a time, in percent of a core.
func (s *berth) idle(ctx context.Context, length time.Duration) (float64, error) {
	if err := pause(ctx, time.Until(s.started.Add(idleAfter))); err != nil {
		return 0, err
	}
	before, err := s.target.process.cpu()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, length); err != nil {
		return 0, err
	}
	after, err := s.target.process.cpu()
	return 100 * (after - before).Seconds() / length.Seconds(), err
}
