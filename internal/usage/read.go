package usage

import (
	"context"
	"database/sql"
	"errors"
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
	// Sizes are the last known sizes of the services' data directories. They may be older
	// than the window. A service of which none is known is missing.
	Sizes    map[string]Size
	Events   []Event // that are worth a mark on the time axis, oldest first
	Ceilings Ceilings
}

// Ceilings are what a service may use; 0 for no limit.
type Ceilings struct {
	Cores  float64
	Memory int64 // bytes
}

// Moment is what is known of a service in one step.
type Moment struct {
	Point             *Point // nil if nothing was measured
	Crashes, Restarts int
}

// Event is a deploy (stack.live), a crash or a restart of a service, or a move of the stack to
// this node (stack.restored), before which its metrics are on another node. A stack is also
// restored when it is claimed after its time.
type Event struct {
	At         time.Time
	Type       stack.EventType
	Service    string // "" if it concerns the whole stack
	Generation int    // that went live; 0 for other events
}

var marked = []stack.EventType{stack.EventLive, stack.EventRestored, stack.EventCrashed, stack.EventRestarted}

// Read returns the history of a stack in a window that ends with the last whole step. It has
// the services that are named, and all others that were measured.
func (r *Recorder) Read(ctx context.Context, id string, named []string, w Window) (History, error) {
	h := newHistory(w, time.Now())
	h.Ceilings = r.cfg.Ceilings
	err := r.file.use(func(db *sql.DB) error {
		return errors.Join(h.addPoints(ctx, db, id, named, w.Step), r.addSizes(ctx, db, id, &h))
	})
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
	h := History{Step: w.Step.Length, Services: map[string][]Moment{}, Sizes: map[string]Size{}}
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

// addSizes adds the last known size of each service's data.
func (r *Recorder) addSizes(ctx context.Context, db *sql.DB, id string, h *History) error {
	for name := range h.Services {
		size, known := r.cfg.Size(id, name)
		if !known { // since this server started
			var err error
			if size, known, err = lastSize(ctx, db, series{id, name}); err != nil {
				return err
			}
		}
		if known {
			h.Sizes[name] = size
		}
	}
	return nil
}

// addEvents adds the events, and counts the crashes and restarts of the services.
func (h *History) addEvents(ctx context.Context, id string, read eventReader) error {
	events, err := read(ctx, id, time.Unix(h.Times[0], 0), marked...)
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
	name, _ := e.Data["service"].(string)
	generation, _ := e.Data["generation"].(float64) // as JSON has it
	if e.Type != stack.EventLive {
		generation = 0
	}
	h.Events = append(h.Events, Event{e.CreatedAt, e.Type, name, int(generation)})
	moments := h.Services[name]
	switch {
	case moments == nil: // of the stack, or of a service that is gone
	case e.Type == stack.EventCrashed:
		moments[step].Crashes++
	case e.Type == stack.EventRestarted:
		moments[step].Restarts++
	}
}
