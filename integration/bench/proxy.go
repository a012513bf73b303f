package main

import (
	"context"
	"fmt"
	"time"
)

var connections = []int{1, 64}

// warm checks a server's answers and opens its connections.
func (t *target) warm(ctx context.Context, host string) error {
	for _, size := range sizes {
		if err := t.expect(ctx, host, size.path, size.bytes); err != nil {
			return err
		}
	}
	_, err := t.load(ctx, host, sizes[0].path, 64, time.Second)
	return err
}

// The rows of a load are named loadName and one of these.
const (
	cpuRow      = ": CPU per request"
	requestsRow = ": requests"
)

func loadName(what, size string, conns int) string {
	return fmt.Sprintf("%s, %s, %d conn", what, size, conns)
}

// proxyTrials loads a front before a backend.
func (b *bench) proxyTrials(ctx context.Context, s *stand) error {
	folder, backend, err := b.startBackend(ctx)
	if err != nil {
		return err
	}
	s.later(backend.process.stop)
	front, err := b.startFront(ctx, folder, upstream{Name: "web", Host: proxiedHost, Addr: backend.addr})
	if err != nil {
		return err
	}
	s.later(front.process.stop)
	return b.loadTrials(ctx, s, "proxy", front, proxiedHost)
}

// staticTrials loads a front that serves a site.
func (b *bench) staticTrials(ctx context.Context, s *stand) error {
	folder, err := b.writeFolder()
	if err != nil {
		return err
	}
	front, err := b.startFront(ctx, folder)
	if err != nil {
		return err
	}
	s.later(front.process.stop)
	return b.loadTrials(ctx, s, "static", front, siteHost)
}

// loadTrials adds a trial for each number of connections and size of body.
func (b *bench) loadTrials(ctx context.Context, s *stand, what string, front *target, host string) error {
	if err := front.warm(ctx, host); err != nil {
		return err
	}
	for _, conns := range connections {
		for _, size := range sizes {
			name := loadName(what, size.label, conns)
			s.addTrial(func(ctx context.Context) ([]float64, error) {
				got, err := front.load(ctx, host, size.path, conns, b.round)
				return []float64{got.micros, got.rps}, err
			}, figure{what: name + cpuRow, unit: micros, most: mostSlower}, figure{what: name + requestsRow, unit: perSecond, more: true, most: mostSlower})
		}
	}
	return nil
}
