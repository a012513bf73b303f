// Package depot keeps in a registry what nodes need of each other: base images, and what a
// stack needs to begin on another node, sealed with the stack's own key. The supervisor says
// what that is; the depot forgets it once the stack is deleted.
//
// The depot keeps no list of open work. It compares the rows with the registry, so it makes up
// for what could not be done while one of them was away or the server was dead. Code in this
// package reads rows, and has the engine and the registry do the rest. It writes a row only
// to make the stack's data key, and to record that the registry may have something.
package depot

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/registry"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Store has the rows; package store implements it.
type Store interface {
	Get(ctx context.Context, id string) (*stack.Stack, error)
	Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error)
	Watch(id string) (woken <-chan struct{}, stop func())
	DeletedPushed(ctx context.Context) ([]string, error)
	DeletedElsewhere(ctx context.Context, since time.Time) ([]string, error)
	ForgetPushed(ctx context.Context, id string) error
	RememberPushed(ctx context.Context, id string) error
}

// Engine is what a Depot needs of an engine.Driver.
type Engine interface {
	Push(ctx context.Context, ref, remote string, login engine.Login) error
	Fetch(ctx context.Context, remote, ref string, login engine.Login) error
}

// Config configures a Depot.
type Config struct {
	Registry *registry.Registry
	Engine   Engine
	Store    Store
	Node     string // whose stacks have something kept
	Log      *slog.Logger
}

// Depot keeps what nodes need of each other.
type Depot struct {
	cfg     Config
	states  map[string]*state // by deleted stack, late push, or reference of a base image; of Run alone
	offered chan struct{}     // gets a value when there is another base image

	mu    sync.Mutex
	bases map[string]bool // that were offered
}

// state is how far something is.
type state struct {
	done  bool
	again time.Time     // when to try again after an error
	wait  time.Duration // after the next error
}

// New returns a Depot that has not begun; see Run.
func New(cfg Config) *Depot {
	return &Depot{cfg: cfg, states: map[string]*state{}, offered: make(chan struct{}, 1), bases: map[string]bool{}}
}

// Times of the loop.
const (
	settle    = 2 * time.Second // after a change, which is seldom alone
	firstWait = 5 * time.Second // after an error; it doubles
	lastWait  = 5 * time.Minute

	// A node that was cut off may end a push after another one has deleted the stack, and never
	// be back to say so.
	lateFor   = 6 * time.Hour // for how long to look for that
	lateEvery = lastWait
)

// Run forgets deleted stacks and pushes base images until ctx ends.
func (d *Depot) Run(ctx context.Context) {
	woken, stop := d.cfg.Store.Watch("")
	defer stop()
	for {
		timer := time.NewTimer(d.round(ctx))
		select {
		case <-timer.C:
		case <-d.offered:
		case <-woken:
			timer.Reset(settle)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// round does what is open, and returns how long it may be until the next round if nothing
// changes.
func (d *Depot) round(ctx context.Context) time.Duration {
	deleted, err := d.cfg.Store.DeletedPushed(ctx)
	if err != nil {
		d.cfg.Log.Warn("deleted stacks not read, so the registry keeps what it has of them; trying again", "error", err)
		return firstWait
	}
	late, err := d.cfg.Store.DeletedElsewhere(ctx, stack.Now().Add(-lateFor))
	if err != nil {
		d.cfg.Log.Warn("deleted stacks of other nodes not read, so the registry may keep what these push of them; trying again", "error", err)
		return firstWait
	}
	present := map[string]bool{}
	for _, id := range late {
		push := "late push of " + id
		present[push] = true
		d.attend(push, func() error { return d.forgetAll(ctx, id) })
		if s := d.states[push]; s.done {
			*s = state{again: time.Now().Add(lateEvery), wait: firstWait}
		}
	}
	for _, id := range deleted {
		present[id] = true
		d.attend(id, func() error { return d.forget(ctx, id) })
		if d.states[id].done {
			delete(d.states, id) // if it is there again, that is for something new
		}
	}
	for _, ref := range d.offers() {
		present[ref] = true
		d.attend(ref, func() error { return d.keepBase(ctx, ref) })
	}
	maps.DeleteFunc(d.states, func(id string, _ *state) bool { return !present[id] })
	return d.next()
}

// attend does what is open for a stack or a base image, unless that was done, or an error was
// too short ago.
func (d *Depot) attend(id string, do func() error) {
	s := d.states[id]
	if s == nil {
		s = &state{wait: firstWait}
		d.states[id] = s
	}
	if s.done || time.Now().Before(s.again) {
		return
	}
	err := do()
	if err == nil {
		*s = state{done: true, wait: firstWait}
		return
	}
	if s.wait == firstWait && !errors.Is(err, context.Canceled) {
		d.cfg.Log.Warn("registry not up to date; trying again until it is", "of", id, "error", err)
	}
	s.again = time.Now().Add(s.wait)
	s.wait = min(2*s.wait, lastWait)
}

// next returns how long it is until something is to be tried again.
func (d *Depot) next() time.Duration {
	wait := lastWait
	for _, s := range d.states {
		if left := time.Until(s.again); left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// forget removes everything of a deleted stack, and records that.
func (d *Depot) forget(ctx context.Context, id string) error {
	if err := d.forgetAll(ctx, id); err != nil {
		return err
	}
	if err := d.cfg.Store.ForgetPushed(ctx, id); err != nil {
		return err
	}
	// Once more, since another node may have called ForgetDeleted between the two.
	if err := d.forgetAll(ctx, id); err != nil {
		return errors.Join(err, d.cfg.Store.RememberPushed(ctx, id))
	}
	return nil
}

// forgetAll removes everything of a stack from the registry.
func (d *Depot) forgetAll(ctx context.Context, id string) error {
	return d.cfg.Registry.Forget(ctx, id, func(string) bool { return false })
}
