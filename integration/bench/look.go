package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// The highest acceptable shares of a request's processor time for the look at its kept
// connection, and for counting it.
const (
	mostForLook  = 0.02
	mostForCount = 0.05
)

// The benchmarks of them, and the packages that have these.
const (
	lookBenchmark  = "BenchmarkLook"
	countBenchmark = "BenchmarkCount"
)

var benchmarkPackages = map[string]string{lookBenchmark: "./internal/exchange", countBenchmark: "./internal/proxy"}

// buildLook builds a program of each benchmark from the module in source into bin.
func buildLook(ctx context.Context, source, bin string) error {
	var errs []error
	for benchmark, pkg := range benchmarkPackages {
		errs = append(errs, quiet(ctx, nil, "go", "-C", source, "test", "-trimpath", "-c", "-o", filepath.Join(bin, benchmark), pkg))
	}
	return errors.Join(errs...)
}

// lookTrials measures the cost of the look, and of counting, alone.
func (b *bench) lookTrials(_ context.Context, s *stand) error {
	b.costTrial(s, "look at a kept connection: CPU", lookBenchmark)
	b.costTrial(s, "counting of a request: CPU", countBenchmark)
	return nil
}

func (b *bench) costTrial(s *stand, what, benchmark string) {
	s.one(figure{what: what, unit: nanos}, func(ctx context.Context) (float64, error) {
		micros, err := b.costOf(ctx, benchmark)
		return micros * 1000, err
	})
}

// measureLook compares, alternately, the cost of the proxy's look at a kept connection, and
// of counting a request for the metrics, with that of the whole request.
func (b *bench) measureLook(ctx context.Context) error {
	if err := buildLook(ctx, ".", b.bin); err != nil {
		return err
	}
	folder, backend, err := b.startBackend(ctx)
	if err != nil {
		return err
	}
	defer backend.process.stop()
	front, err := b.startFront(ctx, folder, upstream{Name: "web", Host: proxiedHost, Addr: backend.addr})
	if err != nil {
		return err
	}
	defer front.process.stop()
	return b.compareLook(ctx, front)
}

func (b *bench) compareLook(ctx context.Context, front *target) error {
	const conns = 64 // with more at once a request costs less
	small := sizes[0]
	if err := front.expect(ctx, proxiedHost, small.path, small.bytes); err != nil {
		return err
	}
	var looks, counts, requests []float64
	for range b.rounds {
		request, err := front.load(ctx, proxiedHost, small.path, conns, b.round)
		if err != nil {
			return err
		}
		look, err := b.costOf(ctx, lookBenchmark)
		if err != nil {
			return err
		}
		count, err := b.costOf(ctx, countBenchmark)
		if err != nil {
			return err
		}
		looks, counts, requests = append(looks, look), append(counts, count), append(requests, request.micros)
	}
	b.table.compare("look at a kept connection, 1 KB, 64 conn: CPU", micros, looks, "whole request", requests, mostForLook)
	b.table.compare("counting of a request, 1 KB, 64 conn: CPU", micros, counts, "whole request", requests, mostForCount)
	return nil
}

var processorTime = regexp.MustCompile(` ([\d.]+) cpu-ns/op`)

// costOf returns the processor time of what one of the proxy's own benchmarks does once, in
// microseconds.
func (b *bench) costOf(ctx context.Context, benchmark string) (float64, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(b.bin, benchmark), "-test.run", "^$", "-test.bench", "^"+benchmark+"$", "-test.benchtime", "300000x").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", benchmark, err, out)
	}
	m := processorTime.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s says nothing of its cost:\n%s", benchmark, out)
	}
	nanos, err := strconv.ParseFloat(string(m[1]), 64)
	return nanos / 1000, err
}
