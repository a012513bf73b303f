package supervisor

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// memstore is a Store in memory: it does what package store does, without the
// transactions of a database, which take longer than all else in a test.
type memstore struct {
	mu      sync.Mutex
	last    int64
	stacks  map[string][]byte // by id, as JSON, so that nobody shares one
	deleted map[string]bool
	events  map[string][]stack.Event
	woken   map[chan struct{}]string // the stack that each watches
}

func newMemstore() *memstore {
	return &memstore{stacks: map[string][]byte{}, deleted: map[string]bool{}, events: map[string][]stack.Event{}, woken: map[chan struct{}]string{}}
}

func (m *memstore) load(id string) (*stack.Stack, error) {
	row, ok := m.stacks[id]
	if !ok {
		return nil, stack.NewNoStack(id)
	}
	st := new(stack.Stack)
	return st, json.Unmarshal(row, st)
}

func (m *memstore) save(st *stack.Stack, events []stack.Event) error {
	row, err := json.Marshal(st)
	if err != nil {
		return err
	}
	m.stacks[st.ID] = row
	if st.Status == stack.Deleted {
		delete(m.stacks, st.ID)
		m.deleted[st.ID] = true
	}
	for i := range events {
		m.last++
		events[i].ID, events[i].StackID, events[i].CreatedAt = m.last, st.ID, time.Now()
	}
	m.events[st.ID] = append(m.events[st.ID], events...)
	for woken, id := range m.woken {
		if id == st.ID {
			select {
			case woken <- struct{}{}:
			default: // it stands for this one, too
			}
		}
	}
	return nil
}

func (m *memstore) All(ctx context.Context) ([]*stack.Stack, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*stack.Stack
	for _, id := range slices.Sorted(maps.Keys(m.stacks)) {
		st, err := m.load(id)
		if err != nil {
			return nil, err
		}
		all = append(all, st)
	}
	return all, ctx.Err()
}

func (m *memstore) Get(ctx context.Context, id string) (*stack.Stack, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return m.load(id)
}

func (m *memstore) Create(ctx context.Context, st *stack.Stack, events []stack.Event, _ ...store.Option) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	m.last++
	st.Seq = m.last
	return m.save(st, events)
}

func (m *memstore) Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), _ ...store.Option) (*stack.Stack, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st, err := m.load(id)
	if err != nil {
		return nil, err
	}
	events, err := fn(st)
	if err != nil {
		return nil, err
	}
	return st, m.save(st, events)
}

func (m *memstore) Deleted(_ context.Context, id string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deleted[id], nil
}

func (m *memstore) Reserve(_ context.Context, last int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = max(m.last, last)
	return nil
}

func (m *memstore) Watch(id string) (woken <-chan struct{}, stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ch := make(chan struct{}, 1)
	m.woken[ch] = id
	return ch, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.woken, ch)
	}
}

func (m *memstore) FollowOthers(ctx context.Context) { <-ctx.Done() }

// Events are those of a stack, oldest first.
func (m *memstore) Events(id string) []stack.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events[id])
}
