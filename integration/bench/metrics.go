package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	metricsGoal = 1 // percent of a core
	metricsFor  = time.Minute
	// dataFiles is how many files one of the stacks has in its data directory, which take
	// longer to add up than the measurement.
	dataFiles = 100_000
	// busyEvery is the pause between two requests for the same stack.
	busyEvery = 100 * time.Millisecond

	metricsRow = "100 busy stacks: CPU of the server for the metrics"
)

// measureMetrics measures what the server uses to record the metrics of stacks that are all
// busy: the share of its code for them in a profile of the processor.
func (b *bench) measureMetrics(ctx context.Context, server *berth, stacks []deployed) error {
	if err := server.fillData(ctx, stacks[0]); err != nil {
		return err
	}
	busy, rest := context.WithCancel(ctx)
	load, loading := errgroup.WithContext(busy)
	for _, made := range stacks {
		load.Go(func() error { return server.keepBusy(loading, made) })
	}
	profile, err := b.profile(loading, server, metricsFor)
	rest()
	if fault := load.Wait(); fault != nil {
		return fault
	}
	if err != nil {
		return err
	}
	used, err := usedBy(ctx, profile, `berth/internal/usage\.|supervisor\.\(\*runner\)\.measure`)
	if err == nil {
		b.table.worst(metricsRow, percent, []float64{100 * used.Seconds() / metricsFor.Seconds()}, metricsGoal)
	}
	return err
}

// fillData makes the files in a stack's data directory.
func (s *berth) fillData(ctx context.Context, made deployed) error {
	command := map[string]string{"command": fmt.Sprintf("cd $DATA_DIR && seq %d | xargs touch", dataFiles)}
	var ended struct {
		ExitCode int    `json:"exit_code"`
		Output   string `json:"output"`
	}
	err := s.send(ctx, http.MethodPost, "/v0/stacks/"+made.ID+"/services/web/exec", made.Token, command, &ended)
	if err == nil && ended.ExitCode != 0 {
		err = fmt.Errorf("the files were not made: %s", ended.Output)
	}
	return err
}

// keepBusy sends requests for a stack until the context ends.
func (s *berth) keepBusy(ctx context.Context, made deployed) error {
	for {
		if err := pause(ctx, busyEvery); err != nil {
			return nil //nolint:nilerr // it has been busy for long enough
		}
		if _, err := s.ask(ctx, made, "/"); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// profile returns the file of a profile of the server's processor time.
func (b *bench) profile(ctx context.Context, s *berth, length time.Duration) (file string, err error) {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.admin, int(length.Seconds()))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := direct.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("profile of the server: status %d: %s", answer.StatusCode, body)
	}
	file = filepath.Join(b.dir, "cpu.pprof")
	return file, os.WriteFile(file, body, 0o600)
}

var accounted = regexp.MustCompile(`Showing nodes accounting for ([\d.]+(?:ns|us|µs|ms|s|mins?)?), `)

// usedBy returns the processor time in a profile of functions whose names match a pattern,
// with all that they call.
func usedBy(ctx context.Context, profile, functions string) (time.Duration, error) {
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-unit=s", "-nodecount=0", "-focus", functions, profile).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("read the profile: %w\n%s", err, out)
	}
	m := accounted.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("the profile says nothing of its time:\n%s", out)
	}
	return time.ParseDuration(string(m[1]))
}
