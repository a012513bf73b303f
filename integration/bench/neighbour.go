package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/integration/hog"
)

const (
	// neighbourGoal is in milliseconds: twice a latency of 10 ms, below which only the
	// time slices of the kernel's scheduler would be measured.
	neighbourGoal = 20
	// neighbourWindow is how long requests are sent to the neighbour for one
	// percentile.
	neighbourWindow = time.Second
)

// measureNeighbour compares the latency of a stack while it is alone and while another
// one uses up a resource, under the limits that are recommended for a public
// installation.
func (b *bench) measureNeighbour(ctx context.Context) error {
	return b.withBerth(ctx, hog.Ceilings, func(ctx context.Context, server *berth) error {
		neighbour, busyOne, err := b.neighbours(ctx, server)
		if err != nil {
			return err
		}
		for _, e := range hog.Exhaustions {
			var calm, busy []float64
			for range b.rounds {
				p99, err := server.p99(ctx, neighbour)
				if err != nil {
					return err
				}
				calm = append(calm, p99)
				if p99, err = server.beside(ctx, neighbour, busyOne, e); err != nil {
					return err
				}
				busy = append(busy, p99)
			}
			b.table.limit(neighbourRow(e), tenths, busy, "calm", calm, neighbourGoal)
		}
		return nil
	})
}

func neighbourRow(e hog.Exhaustion) string {
	return "neighbour of a stack that uses up " + e.What + ": p99"
}

// neighbourTrials measures the latency of a stack while another one uses up a resource.
func (b *bench) neighbourTrials(ctx context.Context, s *stand) error {
	server, err := s.openBerth(ctx, b, hog.Ceilings)
	if err != nil {
		return err
	}
	neighbour, busyOne, err := b.neighbours(ctx, server)
	if err != nil {
		return err
	}
	for _, e := range hog.Exhaustions {
		s.one(figure{what: neighbourRow(e), unit: tenths}, func(ctx context.Context) (float64, error) {
			return server.beside(ctx, neighbour, busyOne, e)
		})
	}
	return nil
}

// neighbours creates the measured stack and its neighbour.
func (b *bench) neighbours(ctx context.Context, server *berth) (neighbour, busyOne deployed, err error) {
	probe, err := os.ReadFile(filepath.Join(b.tools, "probe"))
	if err != nil {
		return neighbour, busyOne, err
	}
	probing, err := archive(map[string]string{"stack.yaml": hog.Manifest, "probe": string(probe)})
	if err != nil {
		return neighbour, busyOne, err
	}
	if neighbour, _, err = server.createProgram(ctx); err != nil {
		return neighbour, busyOne, err
	}
	busyOne, _, err = server.create(ctx, probing)
	return neighbour, busyOne, err
}

// beside returns p99 while the other stack uses up a resource.
func (s *berth) beside(ctx context.Context, neighbour, busyOne deployed, e hog.Exhaustion) (p99 float64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.target.addr+e.Path(), nil)
	if err != nil {
		return 0, err
	}
	r.Host = busyOne.host()
	answer, err := direct.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var both errgroup.Group
	both.Go(func() error { return e.Check(answer.Body) })
	both.Go(func() (err error) {
		p99, err = s.p99(ctx, neighbour)
		return err
	})
	return p99, both.Wait()
}

// p99 returns the 99th percentile of the stack's latencies over a window, in
// milliseconds.
func (s *berth) p99(ctx context.Context, made deployed) (float64, error) {
	var all []float64
	for until := time.Now().Add(neighbourWindow); time.Now().Before(until); {
		begun := time.Now()
		status, _, err := get(ctx, "http://"+s.target.addr+"/", made.host())
		if err != nil || status != http.StatusOK {
			return 0, fmt.Errorf("the neighbour answers %d, %v", status, err)
		}
		all = append(all, inMillis(time.Since(begun)))
		if err := pause(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
	slices.Sort(all)
	return all[len(all)*99/100], nil
}
