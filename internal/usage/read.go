package usage

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// History is what was measured of a stack in a window, and what happened in it.
type History struct {
	Step  time.Duration
	Times []int64 // when each step began, in Unix seconds
	// Services has for each step what is known of a service.
	Services map[string][]Moment
	Deploys  []Deploy
}

// Moment is what is known of a service in one step.
type Moment struct {
	Point             *Point // nil if nothing was measured
	Crashes, Restarts int
}

// Deploy is a generation that went live.
type Deploy struct {
	At         time.Time
	Generation int
}

// Read returns the history of a stack in a window that ends with the last whole step. It has
// the services that are named, and all others that were measured.
func (r *Recorder) Read(ctx context.Context, id string, named []string, w Window) (History, error) {
	h := newHistory(w, time.Now())
	err := r.file.use(func(db *sql.DB) error { return h.addPoints(ctx, db, id, named, w.Step) })
	if isDamaged(err) {
		r.file.fail(err)
	}
	if err == nil && len(h.Times) > 0 {
		err = h.addEvents(ctx, id, r.cfg.Events)
	}
	if err != nil {
		return History{}, fmt.Errorf("read the metrics of stack %s: %w", id, err)
	}
	return h, nil
}

// newHistory returns the history of a window in which nothing was measured.
func newHistory(w Window, now time.Time) History {
	h := History{Step: w.Step.Length, Services: map[string][]Moment{}}
	to := now.Truncate(w.Step.Length).Unix()
	for at := to - int64(w.Since/w.Step.Length)*w.Step.seconds(); at < to; at += w.Step.seconds() {
		h.Times = append(h.Times, at)
	}
	return h
}

// addPoints adds the points of the services that are named or were measured.
func (h *History) addPoints(ctx context.Context, db *sql.DB, id string, named []string, step Step) error {
	from := h.Times[0]
	to := from + int64(len(h.Times))*step.seconds()
	measured, err := services(ctx, db, id, step, from, to)
	if err != nil {
		return err
	}
	for _, name := range append(measured, named...) {
		if h.Services[name] != nil {
			continue
		}
		points, err := readPoints(ctx, db, series{id, name}, step, from, to)
		if err != nil {
			return err
		}
		moments := make([]Moment, len(h.Times))
		for _, p := range points {
			moments[h.step(p.At)].Point = p
		}
		h.Services[name] = moments
	}
	return nil
}

// step returns the step that has a time in Unix seconds, or a number that no step has.
func (h *History) step(at int64) int { return int((at - h.Times[0]) / int64(h.Step/time.Second)) }

// addEvents adds the deploys, and the crashes and restarts of the services.
func (h *History) addEvents(ctx context.Context, id string, read eventReader) error {
	events, err := read(ctx, id, time.Unix(h.Times[0], 0), stack.EventLive, stack.EventCrashed, stack.EventRestarted)
	if err != nil {
		return err
	}
	for _, e := range events {
		if i := h.step(e.CreatedAt.Unix()); i < len(h.Times) {
			h.addEvent(e, i)
		}
	}
	return nil
}

func (h *History) addEvent(e stack.Event, step int) {
	if e.Type == stack.EventLive {
		generation, _ := e.Data["generation"].(float64) // as JSON has it
		h.Deploys = append(h.Deploys, Deploy{e.CreatedAt, int(generation)})
		return
	}
	name, _ := e.Data["service"].(string)
	moments := h.Services[name]
	switch {
	case moments == nil: // of a service that is gone
	case e.Type == stack.EventCrashed:
		moments[step].Crashes++
	default:
		moments[step].Restarts++
	}
}

// Size returns how large the data directory of a service was when it was last added up, false
// if it was not since this server started.
func (r *Recorder) Size(id, service string) (Size, bool) {
	return r.sizer.last(series{id, service})
}
