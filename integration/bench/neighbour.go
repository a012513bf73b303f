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
)

const (
	hogManifest = "name: hog\nservices:\n  - name: web\n    runtime: " + runtimeRef + "\n    install: \"\"\n    build: chmod +x probe\n    start: ./probe serve\n"

	// neighbourGoal is in milliseconds: twice a latency of 10 ms, below which the
	// slices of the kernel's scheduler are measured and nothing else.
	neighbourGoal = 20
	// neighbourWindow is how long the neighbour is asked for one percentile.
	neighbourWindow = time.Second
)

// hogged is what the hog uses up, and how much of it at least; see the program
// integration/probe.
var hogged = []struct {
	what  string
	least int
}{{"processes", 200}, {"memory", 1}, {"descriptors", 1000}, {"inotify", 100}, {"disk", 64}, {"log", 1}}

// measureNeighbour compares the latency of a stack while it is calm and while
// another one uses something up, under the ceilings that a public installation is
// told to set.
func (b *bench) measureNeighbour(ctx context.Context) error {
	settings := []string{"BERTH_SERVICE_PIDS=256", "BERTH_SERVICE_MEMORY=512MiB", "BERTH_SERVICE_CPUS=0.5"}
	return b.withBerth(ctx, settings, func(ctx context.Context, server *berth, _ *byHand) error {
		neighbour, hog, err := b.neighbours(ctx, server)
		if err != nil {
			return err
		}
		for _, h := range hogged {
			var calm, busy []float64
			for range b.rounds {
				p99, err := server.p99(ctx, neighbour)
				if err != nil {
					return err
				}
				calm = append(calm, p99)
				path := fmt.Sprintf("/exhaust?what=%s&for=%s&least=%d", h.what, neighbourWindow, h.least)
				if p99, err = server.beside(ctx, neighbour, hog, path); err != nil {
					return err
				}
				busy = append(busy, p99)
			}
			b.table.limit("neighbour of a stack that uses up "+h.what+": p99", tenths, busy, "calm", calm, neighbourGoal)
		}
		return nil
	})
}

// neighbours makes the stack that is measured and the one beside it.
func (b *bench) neighbours(ctx context.Context, server *berth) (neighbour, hog deployed, err error) {
	program, err := programArchive()
	if err != nil {
		return neighbour, hog, err
	}
	probe, err := os.ReadFile(filepath.Join(b.bin, "probe"))
	if err != nil {
		return neighbour, hog, err
	}
	probing, err := archive(map[string]string{"stack.yaml": hogManifest, "probe": string(probe)})
	if err != nil {
		return neighbour, hog, err
	}
	if neighbour, _, err = server.create(ctx, program); err != nil {
		return neighbour, hog, err
	}
	hog, _, err = server.create(ctx, probing)
	return neighbour, hog, err
}

// beside is p99 while the hog is busy with what the path says.
func (s *berth) beside(ctx context.Context, neighbour, hog deployed, path string) (p99 float64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		return 0, err
	}
	r.Host = hog.host()
	answer, err := direct.Do(r) // it answers once it has begun, and ends its answer when it is over
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var both errgroup.Group
	both.Go(func() error {
		var got int
		var end string
		if _, err := fmt.Fscan(answer.Body, &got, &end); err != nil || end == "nothing" {
			return fmt.Errorf("%s: status %d, the hog got %d until %q: %v", path, answer.StatusCode, got, end, err)
		}
		return nil
	})
	both.Go(func() (err error) {
		p99, err = s.p99(ctx, neighbour)
		return err
	})
	return p99, both.Wait()
}

// p99 is the 99th percentile of the stack's latencies over a window, in
// milliseconds.
func (s *berth) p99(ctx context.Context, made deployed) (float64, error) {
	var all []float64
	for until := time.Now().Add(neighbourWindow); time.Now().Before(until); {
		begun := time.Now()
		status, _, err := get(ctx, "http://"+s.addr+"/", made.host())
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
