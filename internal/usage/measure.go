package usage

import (
	"context"
	"errors"
	"time"

	"github.com/berth-host/berth/internal/engine"
)

// gauge reads what a container uses.
type gauge struct {
	read  func() (engine.Usage, error) // nil if it cannot be read
	again time.Time                    // when to ask the engine again, if it cannot
	cpu   time.Duration                // used by the container until at
	at    time.Time                    // zero before the first reading
}

const (
	// measureWait is how long the engine may take to name the new containers of one step.
	measureWait = 5 * time.Second
	// hiddenFor is how long a container is left alone that the machine does not show.
	hiddenFor = 10 * time.Minute
)

// measure returns a point for each service, with what it served and used since the last call.
func (r *Recorder) measure(now time.Time) map[series]*Point {
	points := map[series]*Point{}
	for id, services := range r.cfg.Traffic() {
		for name, counts := range services {
			points[series{id, name}] = &Point{Traffic: *counts}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), measureWait) // also while the server stops
	defer cancel()
	gauges, sized := map[string]*gauge{}, map[series]time.Time{}
	for _, process := range r.cfg.Processes() {
		p := points[process.series()]
		if p == nil {
			p = &Point{}
			points[process.series()] = p
		}
		gauges[process.Container] = r.addUsage(ctx, p, process.Container, now)
		if size, ok := r.cfg.Size(process.Key.Stack, process.Key.Service); ok {
			if size.At.After(r.sized[process.series()]) {
				p.Data = &size.Bytes
			}
			sized[process.series()] = size.At
		}
	}
	r.gauges, r.sized = gauges, sized
	return points
}

// addUsage adds what a container uses to a point, and returns its gauge.
func (r *Recorder) addUsage(ctx context.Context, p *Point, container string, now time.Time) *gauge {
	g := r.gauges[container]
	if g == nil {
		g = &gauge{}
	}
	u, ok := g.usage(ctx, r.cfg.Measure, container, now)
	if !ok {
		return g
	}
	p.Memory = &u.Memory
	if !g.at.IsZero() && now.After(g.at) {
		if p.Over += now.Sub(g.at); u.CPU < g.cpu { // it was started again
			g.cpu = 0
		}
		p.CPU += u.CPU - g.cpu
	}
	g.cpu, g.at = u.CPU, now
	return g
}

// usage reads what the container uses, and finds it anew if that fails once.
func (g *gauge) usage(ctx context.Context, measure measurer, container string, now time.Time) (engine.Usage, bool) {
	if g.read != nil {
		if u, err := g.read(); err == nil {
			return u, true
		}
		g.read = nil
	}
	if now.Before(g.again) {
		return engine.Usage{}, false
	}
	read, err := measure(ctx, container)
	if err != nil {
		if errors.Is(err, engine.ErrHidden) {
			g.again = now.Add(hiddenFor)
		}
		return engine.Usage{}, false
	}
	u, err := read()
	if err == nil {
		g.read = read
	}
	return u, err == nil
}
