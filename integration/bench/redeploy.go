package main

import (
	"context"
	"fmt"
	"time"
)

// The goals of a redeploy, in milliseconds, from the issue that asks for it.
const (
	switchGoal   = 250
	redeployGoal = 1000
)

const (
	switchRow   = "switch: first healthy answer to first public one"
	redeployRow = "redeploy of an unchanged stack: POST to live"
)

// measureRedeploys deploys an unchanged program again and again.
func (b *bench) measureRedeploys(ctx context.Context) error {
	return b.withBerth(ctx, nil, func(ctx context.Context, server *berth) error {
		made, program, err := server.createProgram(ctx)
		if err != nil {
			return err
		}
		var took, switched []float64
		for n := range b.deploys {
			redeploy, change, err := server.redeploy(ctx, made, program, n+2)
			if err != nil {
				return err
			}
			took, switched = append(took, inMillis(redeploy)), append(switched, inMillis(change))
		}
		b.table.worst(switchRow, millis, switched, switchGoal)
		b.table.worst(redeployRow, millis, took, redeployGoal)
		return nil
	})
}

// redeployTrials deploys an unchanged program once more.
func (b *bench) redeployTrials(ctx context.Context, s *stand) error {
	server, err := s.openBerth(ctx, b, nil)
	if err != nil {
		return err
	}
	made, program, err := server.createProgram(ctx)
	if err != nil {
		return err
	}
	generation := made.Generation
	s.addTrial(func(ctx context.Context) ([]float64, error) {
		generation++
		took, switched, err := server.redeploy(ctx, made, program, generation)
		return []float64{inMillis(switched), inMillis(took)}, err
	}, figure{what: switchRow, unit: millis}, figure{what: redeployRow, unit: millis})
	return nil
}

// redeploy uploads a program again. It returns the time until the generation was live,
// and the time from when the generation was healthy until the public URL answered with
// it.
func (s *berth) redeploy(ctx context.Context, made deployed, program []byte, generation int) (took, switched time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, deployTime)
	defer cancel()
	change := make(chan func() (time.Duration, error), 1)
	go func() {
		switched, err := s.awaitGeneration(ctx, made, generation)
		change <- func() (time.Duration, error) { return switched, err }
	}()
	start := time.Now()
	var now deployed
	if _, err := s.sendArchive(ctx, "/v0/stacks/"+made.ID+"/deploy?wait=true", made.Token, program, &now); err != nil {
		return 0, 0, err
	}
	took = time.Since(start)
	if now.Generation != generation {
		return 0, 0, fmt.Errorf("generation %d is served, not %d: %s", now.Generation, generation, now.DeployError)
	}
	if switched, err = (<-change)(); err != nil {
		return 0, 0, err
	}
	return took, switched, pause(ctx, time.Second) // while the old generation goes
}

// awaitGeneration requests the public URL until the generation answers, and returns the
// time since the generation's very first answer, which was to the health check.
func (s *berth) awaitGeneration(ctx context.Context, made deployed, generation int) (time.Duration, error) {
	for {
		text, err := s.ask(ctx, made, "/")
		if err != nil {
			return 0, err
		}
		at := time.Now()
		var number int
		var first int64
		if _, err := fmt.Sscan(text, &number, &first); err != nil {
			return 0, fmt.Errorf("the program answers %q: %w", text, err)
		}
		if number == generation {
			return at.Sub(time.UnixMilli(first)), nil
		}
		if err := pause(ctx, pollEvery); err != nil {
			return 0, err
		}
	}
}
