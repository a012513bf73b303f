package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// crashGoal is in milliseconds, from the issue that asks for it.
const crashGoal = 500

const crashRow = "crash: end of the process to service.crashed"

// crashing are the settings of a server whose program may crash again and again.
var crashing = []string{"BERTH_BACKOFF=10ms", "BERTH_BACKOFF_MAX=10ms", "BERTH_CRASH_LIMIT=1000"}

// measureCrashes makes a program end again and again.
func (b *bench) measureCrashes(ctx context.Context) error {
	return b.withBerth(ctx, crashing, func(ctx context.Context, server *berth) error {
		made, _, err := server.createProgram(ctx)
		if err != nil {
			return err
		}
		var seen []float64
		for range b.deploys {
			took, err := server.crash(ctx, made)
			if err != nil {
				return err
			}
			seen = append(seen, inMillis(took))
		}
		b.table.worst(crashRow, millis, seen, crashGoal)
		return nil
	})
}

// crashTrials makes a program end once.
func (b *bench) crashTrials(ctx context.Context, s *stand) error {
	server, err := s.openBerth(ctx, b, crashing)
	if err != nil {
		return err
	}
	made, _, err := server.createProgram(ctx)
	if err != nil {
		return err
	}
	s.time(crashRow, func(ctx context.Context) (time.Duration, error) { return server.crash(ctx, made) })
	return nil
}

// crash ends the stack's process and returns how long it takes until the API shows the
// event. The process is back afterwards.
func (s *berth) crash(ctx context.Context, made deployed) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, deployTime)
	defer cancel()
	last, _, err := s.event(ctx, made, 0, "service.crashed")
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if status, _, err := get(ctx, "http://"+s.target.addr+"/exit", made.host()); err != nil || status != http.StatusBadGateway {
		return 0, fmt.Errorf("the program that ends answers with %d, %w", status, err)
	}
	if last, err = s.awaitEvent(ctx, made, last, "service.crashed"); err != nil {
		return 0, err
	}
	took := time.Since(start)
	_, err = s.awaitEvent(ctx, made, last, "service.restarted")
	return took, err
}

// awaitEvent waits for an event of a type with an id above after, and returns its id.
func (s *berth) awaitEvent(ctx context.Context, made deployed, after int64, name string) (int64, error) {
	for {
		if _, id, err := s.event(ctx, made, after, name); err != nil || id != 0 {
			return id, err
		}
		if err := pause(ctx, pollEvery); err != nil {
			return 0, fmt.Errorf("no %s: %w", name, err)
		}
	}
}

// event reads the events with ids above after. It returns the id of the last one, and
// that of the first one of a type, 0 if there is none.
func (s *berth) event(ctx context.Context, made deployed, after int64, name string) (last, found int64, err error) {
	var page struct {
		Events []struct {
			ID   int64  `json:"id"`
			Type string `json:"type"`
		} `json:"events"`
	}
	err = s.call(ctx, http.MethodGet, fmt.Sprintf("/v0/stacks/%s/events?after=%d", made.ID, after), made.Token, "", nil, &page)
	for _, e := range page.Events {
		if last = e.ID; e.Type == name && found == 0 {
			found = e.ID
		}
	}
	return last, found, err
}
