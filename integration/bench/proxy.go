package main

import (
	"context"
	"fmt"
	"time"
)

// cpuGoals are the highest ratios of processor time per request, from the
// issue that asks for the proxy.
var cpuGoals = map[string]float64{"Caddy": 0.5, "ReverseProxy": 0.7}

var connections = []int{1, 64}

// measureProxy compares requests through Berth and through its peers, all in front of
// the same backend.
func (b *bench) measureProxy(ctx context.Context) error {
	folder, err := b.writeFolder()
	if err != nil {
		return err
	}
	backend, err := b.startNginx(ctx, "backend", "1", folder)
	if err != nil {
		return err
	}
	defer backend.process.stop()
	targets, stop, err := b.startFronts(ctx, folder, backend.addr)
	defer stop()
	if err != nil {
		return err
	}
	return b.measureLoads(ctx, "proxy", targets, proxiedHost)
}

// startFronts starts every proxy before the backend, Berth's first.
func (b *bench) startFronts(ctx context.Context, folder, backend string) (targets []*target, stop func(), err error) {
	stop = func() {
		for _, t := range targets {
			t.process.stop()
		}
	}
	web := upstream{Name: "web", Host: proxiedHost, Addr: backend}
	for _, start := range []func() (*target, error){
		func() (*target, error) { return b.startFront(ctx, folder, web) },
		func() (*target, error) { return b.startNginx(ctx, "nginx", "auto", folder, web) },
		func() (*target, error) { return b.startCaddy(ctx, backend) },
		func() (*target, error) { return b.startReverseProxy(ctx, backend) },
	} {
		t, err := start()
		if err != nil {
			return targets, stop, err
		}
		targets = append(targets, t)
	}
	return targets, stop, nil
}

// measureStatic compares a static site of Berth with the same folder in nginx.
func (b *bench) measureStatic(ctx context.Context) error {
	folder, err := b.writeFolder()
	if err != nil {
		return err
	}
	front, err := b.startFront(ctx, folder)
	if err != nil {
		return err
	}
	defer front.process.stop()
	nginx, err := b.startNginx(ctx, "nginx", "auto", folder)
	if err != nil {
		return err
	}
	defer nginx.process.stop()
	return b.measureLoads(ctx, "static", []*target{front, nginx}, siteHost)
}

// measureLoads adds a row for each number of connections and size of body. The first
// target is Berth.
func (b *bench) measureLoads(ctx context.Context, what string, targets []*target, host string) error {
	for _, t := range targets {
		if err := t.warm(ctx, host); err != nil {
			return err
		}
	}
	for _, conns := range connections {
		for _, size := range sizes {
			s, err := b.inTurns(ctx, targets, host, size.path, conns)
			if err != nil {
				return err
			}
			b.loadRows(loadName(what, size.label, conns), targets, s)
		}
	}
	return nil
}

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
	folder, err := b.writeFolder()
	if err != nil {
		return err
	}
	backend, err := b.startNginx(ctx, "backend", "1", folder)
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

func (b *bench) loadRows(what string, targets []*target, s series) {
	own := targets[0].name
	for _, t := range targets[1:] {
		b.table.compare(what+cpuRow, micros, s.micros[own], t.name, s.micros[t.name], cpuGoals[t.name])
	}
	for _, t := range targets[1:] {
		b.table.compare(what+requestsRow, perSecond, s.rps[own], t.name, s.rps[t.name], 0)
	}
}
