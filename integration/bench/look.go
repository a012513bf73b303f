package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// mostForLook is the highest acceptable share of a request's processor time for the
// look at its kept connection.
const mostForLook = 0.02

// lookProgram has the proxy's own benchmarks.
const lookProgram = "proxy.test"

// buildLook builds lookProgram from the module in source into bin.
func buildLook(ctx context.Context, source, bin string) error {
	return quiet(ctx, nil, "go", "-C", source, "test", "-trimpath", "-c", "-o", filepath.Join(bin, lookProgram), "./internal/proxy")
}

// lookTrials measures the cost of the look alone.
func (b *bench) lookTrials(_ context.Context, s *stand) error {
	s.one(figure{what: "look at a kept connection: CPU", unit: nanos}, func(ctx context.Context) (float64, error) {
		micros, err := b.costOfLook(ctx)
		return micros * 1000, err
	})
	return nil
}

// measureLook compares, alternately, the cost of the proxy's look at a kept connection
// with that of the whole request.
func (b *bench) measureLook(ctx context.Context) error {
	folder, err := b.writeFolder()
	if err != nil {
		return err
	}
	if err := buildLook(ctx, ".", b.bin); err != nil {
		return err
	}
	backend, err := b.startNginx(ctx, "backend", "1", folder)
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
	var looks, requests []float64
	for range b.rounds {
		request, err := front.load(ctx, proxiedHost, small.path, conns, b.round)
		if err != nil {
			return err
		}
		look, err := b.costOfLook(ctx)
		if err != nil {
			return err
		}
		looks, requests = append(looks, look), append(requests, request.micros)
	}
	b.table.compare("look at a kept connection, 1 KB, 64 conn: CPU", micros, looks, "whole request", requests, mostForLook)
	return nil
}

var benchmarkLook = regexp.MustCompile(`BenchmarkLook.* ([\d.]+) cpu-ns/op`)

// costOfLook returns the processor time of one look in microseconds, which the proxy's
// own benchmark measures.
func (b *bench) costOfLook(ctx context.Context) (float64, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(b.bin, lookProgram), "-test.run", "^$", "-test.bench", "^BenchmarkLook$", "-test.benchtime", "300000x").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("benchmark of the look: %w\n%s", err, out)
	}
	m := benchmarkLook.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("the benchmark of the look says nothing of its cost:\n%s", out)
	}
	nanos, err := strconv.ParseFloat(string(m[1]), 64)
	return nanos / 1000, err
}
