// Package depot keeps in a registry what a stack needs to begin on another node, and brings
// it from there: the images, sites and source of the generation that it serves, and the data
// of one that is expired. It works beside what serves, and nobody waits for it.
//
// There is no list of what is to be pushed: the row says what the registry should have, and
// the registry what it has. So what could not be pushed, because one of them was away or the
// server died, is pushed when they are compared again. Code in this package reads rows and
// files, and has the engine and the registry do the rest. It writes a row only to make the
// stack's data key, and to record that the registry may have something.
package depot

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/registry"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Store has the rows; package store implements it.
type Store interface {
	All(ctx context.Context) ([]*stack.Stack, error)
	Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error)
	Watch(id string) (woken <-chan struct{}, stop func())
	DeletedPushed(ctx context.Context) ([]string, error)
	ForgetPushed(ctx context.Context, id string) error
}

// Engine is what a Depot needs of an engine.Driver.
type Engine interface {
	HasImage(ctx context.Context, ref string) (bool, error)
	Push(ctx context.Context, ref, remote string, login engine.Login) error
	Fetch(ctx context.Context, remote, ref string, login engine.Login) error
	ReadData(ctx context.Context, key engine.Key, image string, w io.Writer) error
	FillData(ctx context.Context, key engine.Key, image, process string, data io.Reader) error
}

// Config configures a Depot.
type Config struct {
	Registry *registry.Registry
	Engine   Engine
	Store    Store
	Dir      datadir.Dir
	Node     string // whose stacks are pushed; "" on one machine
	Log      *slog.Logger
}

// Depot pushes what stacks of this node have, and brings what others had.
type Depot struct {
	cfg     Config
	states  map[string]*state // by stack, or reference of a base image; of Run alone
	offered chan struct{}     // gets a value when there is another base image

	mu    sync.Mutex
	bases map[string]bool // that were offered
}

// state is how far a stack is.
type state struct {
	pushed string        // the tags that the registry had when it was last compared
	again  time.Time     // when to try again after an error
	wait   time.Duration // after the next error
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
)

// Run pushes until ctx ends.
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

// round compares every stack whose row wants something else than before, and returns how
// long it may be until the next round if nothing changes.
func (d *Depot) round(ctx context.Context) time.Duration {
	stacks, err := d.cfg.Store.All(ctx)
	if err != nil {
		d.cfg.Log.Warn("stacks not read, so nothing is pushed to the registry; trying again", "error", err)
		return firstWait
	}
	present := map[string]bool{}
	for _, st := range stacks {
		if st.Node != d.cfg.Node {
			continue
		}
		present[st.ID] = true
		d.attend(st.ID, strings.Join(wanted(st), " "), func() error { return d.compare(ctx, st) })
	}
	deleted, err := d.cfg.Store.DeletedPushed(ctx)
	if err != nil {
		d.cfg.Log.Warn("deleted stacks not read; trying again", "error", err)
	}
	for _, id := range deleted {
		present[id] = true
		d.attend(id, "deleted", func() error { return d.forget(ctx, id) })
	}
	for _, ref := range d.offers() {
		present[ref] = true
		d.attend(ref, "kept", func() error { return d.keepBase(ctx, ref) })
	}
	maps.DeleteFunc(d.states, func(id string, _ *state) bool { return !present[id] })
	return d.next()
}

// attend does what brings the registry to what a stack wants, unless that was done, or an
// error was too short ago.
func (d *Depot) attend(id, want string, do func() error) {
	s := d.states[id]
	if s == nil {
		s = &state{pushed: "?", wait: firstWait}
		d.states[id] = s
	}
	if s.pushed == want || time.Now().Before(s.again) {
		return
	}
	err := do()
	if err == nil {
		*s = state{pushed: want, wait: firstWait}
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

// forget removes everything of a deleted stack.
func (d *Depot) forget(ctx context.Context, id string) error {
	err := d.cfg.Registry.Forget(ctx, id, func(string) bool { return false })
	if err != nil {
		return err
	}
	return d.cfg.Store.ForgetPushed(ctx, id)
}

// compare pushes what the registry lacks of a stack, and removes what it has too much.
func (d *Depot) compare(ctx context.Context, st *stack.Stack) error {
	want := wanted(st)
	if len(want) == 0 && !st.Pushed {
		return nil
	}
	has, err := d.cfg.Registry.Tags(ctx, st.ID)
	if err != nil {
		return err
	}
	var errs []error
	for _, item := range d.items(st) {
		if slices.Contains(has, item.tag) {
			continue
		}
		if st, err = d.begin(ctx, st); err != nil {
			return err
		}
		errs = append(errs, item.push(ctx, st))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return d.cfg.Registry.Forget(ctx, st.ID, func(tag string) bool {
		return slices.Contains(want, tag) || strings.HasPrefix(tag, liveTag) && st.Status != stack.Expired
	})
}

// errMoved means that a stack has another owner now.
var errMoved = errors.New("the stack has moved to another node")

// begin records that the registry may have something of a stack, before it has, and makes
// the data key.
func (d *Depot) begin(ctx context.Context, st *stack.Stack) (*stack.Stack, error) {
	if st.Pushed && len(st.DataKey) > 0 {
		return st, nil
	}
	return d.cfg.Store.Update(ctx, st.ID, func(k *stack.Stack) ([]stack.Event, error) {
		if k.Node != d.cfg.Node || k.Epoch != st.Epoch {
			return nil, errMoved
		}
		if k.Pushed = true; len(k.DataKey) == 0 {
			k.DataKey = registry.NewKey()
		}
		return nil, nil
	})
}
