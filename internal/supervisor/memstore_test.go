package supervisor

import (
	"cmp"
	"context"
	"errors"
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
	mu       sync.Mutex
	last     int64
	stacks   map[string]*stack.Stack // by id; nobody else has them
	deleted  map[string]bool
	events   map[string][]stack.Event
	changes  []change
	commands []stack.Command
	told     []string                    // to owners, about the disk
	remains  map[[2]string]store.Remains // by stack and node
	woken    map[chan struct{}]string    // the stack that each watches

	// fault is asked at each read, and at each change with its events: an error is what
	// the database answers. Nil is one that works.
	fault func(id string, events []stack.Event) error
	// committed is called after each change, with its events, before whoever made it
	// goes on. It may be nil.
	committed func(id string, events []stack.Event)
	// unanswered is what requests are answered whose changes have taken effect; nil for that.
	unanswered error
	// slow makes a change that is not answered unseen until the next change of the row.
	slow   bool
	unseen map[string]*stack.Stack // the rows before, by id
	// aborts makes changes that are answered store.ErrInDoubt take no effect.
	aborts bool
	// noReserve is what Reserve answers; nil for one that works.
	noReserve error
}

// change is what one transaction did to a stack.
type change struct {
	from, to stack.Status // from is "" for a new stack
	builds   bool         // a generation was being built before
	events   []stack.EventType
}

func newMemstore() *memstore {
	return &memstore{stacks: map[string]*stack.Stack{}, deleted: map[string]bool{}, events: map[string][]stack.Event{}, remains: map[[2]string]store.Remains{}, unseen: map[string]*stack.Stack{}, woken: map[chan struct{}]string{}}
}

// breaks makes the database work no more where fault returns an error; nil mends it.
func (m *memstore) breaks(fault func(id string, events []stack.Event) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = fault
}

// after sets what happens between a change of a row and what follows from it.
func (m *memstore) after(committed func(id string, events []stack.Event)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.committed = committed
}

// commitsSlowly is answers for a database that takes its time to commit what it does not answer.
func (m *memstore) commitsSlowly(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unanswered, m.slow = err, true
}

// answers makes whoever changes something get an error although it has taken effect; nil ends
// that.
func (m *memstore) answers(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unanswered = err
}

// clone copies a stack, and of it all that is ever changed in place.
func clone(st *stack.Stack) *stack.Stack {
	own := *st
	own.Generation.Services, own.Secrets = slices.Clone(st.Generation.Services), maps.Clone(st.Secrets)
	return &own
}

// SetDisk implements Store.
func (m *memstore) SetDisk(_ context.Context, id string, d stack.Disk, told string, options ...store.Option) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	row, err := m.load(id)
	if err == nil {
		err = store.CheckOwner(row, options...)
	}
	if err != nil {
		return err
	}
	m.stacks[id].Disk = d
	if told != "" {
		m.told = append(m.told, told)
	}
	return nil
}

// load returns a copy of a row. The lock is held.
func (m *memstore) load(id string) (*stack.Stack, error) {
	if m.fault != nil {
		if err := m.fault(id, nil); err != nil {
			return nil, err
		}
	}
	if row := m.stacks[id]; row != nil {
		return clone(row), nil
	}
	return nil, stack.NewNoStack(id)
}

// save keeps a stack and records events, and wakes who watches it. The lock is held.
func (m *memstore) save(st *stack.Stack, events []stack.Event) error {
	if m.fault != nil {
		if err := m.fault(st.ID, events); err != nil {
			return err
		}
	}
	m.note(st, events)
	if row := m.stacks[st.ID]; row != nil && m.slow && m.unanswered != nil {
		m.unseen[st.ID] = row
	}
	m.stacks[st.ID] = clone(st)
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

// note notes how a stack changes. The lock is held.
func (m *memstore) note(st *stack.Stack, events []stack.Event) {
	c := change{to: st.Status}
	if row := m.stacks[st.ID]; row != nil {
		c.from, c.builds = row.Status, row.Deploying != 0
	}
	for _, e := range events {
		c.events = append(c.events, e.Type)
	}
	if c.from != c.to || len(events) > 0 {
		m.changes = append(m.changes, c)
	}
}

func (m *memstore) All(ctx context.Context) ([]*stack.Stack, error) {
	return m.list(ctx, func(*stack.Stack) bool { return true })
}

func (m *memstore) Kept(ctx context.Context, node string) ([]*stack.Stack, error) {
	all, err := m.list(ctx, func(st *stack.Stack) bool { return st.Node == node })
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, row := range m.unseen {
		if row.Node == node {
			all = append(all, clone(row))
		}
	}
	return all, err
}

func (m *memstore) list(ctx context.Context, which func(*stack.Stack) bool) ([]*stack.Stack, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*stack.Stack, 0, len(m.stacks))
	for id := range m.stacks {
		st, err := m.load(id)
		if err != nil {
			return nil, err
		}
		if which(st) {
			all = append(all, st)
		}
	}
	slices.SortFunc(all, func(a, b *stack.Stack) int { return int(a.Seq - b.Seq) })
	return all, ctx.Err()
}

func (m *memstore) Get(ctx context.Context, id string) (*stack.Stack, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if row := m.unseen[id]; row != nil {
		return clone(row), nil
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
	return cmp.Or(m.save(st, events), m.unanswered)
}

func (m *memstore) Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error) {
	st, events, committed, err := m.update(ctx, id, fn, options)
	if err == nil && committed != nil {
		committed(id, events)
	}
	return st, err
}

func (m *memstore) update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options []store.Option) (*stack.Stack, []stack.Event, func(string, []stack.Event), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, nil, nil, err
	}
	delete(m.unseen, id)
	st, err := m.load(id)
	if err != nil {
		return nil, nil, nil, err
	}
	tries := store.TriesOf(options...)
	if tries != nil && tries.InDoubt == aborted && m.unanswered == nil {
		tries.InDoubt = ""
	}
	if tries != nil && tries.InDoubt != "" {
		err := m.unanswered
		if err == nil && !store.AllGo(options...) {
			err = store.CheckOwner(st, options...)
		}
		if err == nil {
			tries.InDoubt = ""
		}
		return st, nil, nil, err
	}
	if err := store.CheckOwner(st, options...); err != nil {
		return nil, nil, nil, err
	}
	row := m.stacks[id]
	events, err := fn(st)
	if err != nil {
		return nil, nil, nil, err
	}
	if store.AllGo(options...) && !m.remains[[2]string{id, st.Node}].Expected {
		return nil, nil, nil, store.ErrNotExpected
	}
	if m.aborts && tries != nil && m.fault != nil && m.fault(id, events) == nil && errors.Is(m.unanswered, store.ErrInDoubt) {
		tries.InDoubt = aborted
		return nil, nil, nil, m.unanswered
	}
	if err := m.save(st, events); err != nil {
		return nil, nil, nil, err
	}
	if row.Node != st.Node {
		delete(m.remains, [2]string{id, st.Node})
		m.remains[[2]string{id, row.Node}] = store.Remains{StackID: id, Node: row.Node, AllGo: store.AllGo(options...), Since: time.Now()}
	}
	if tries != nil && errors.Is(m.unanswered, store.ErrInDoubt) {
		tries.InDoubt = "it took effect"
	}
	return st, events, m.committed, m.unanswered
}

// aborted is the transaction of a change that takes no effect.
const aborted = "aborted"

func (m *memstore) Remains(_ context.Context, id, node string) (r store.Remains, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok = m.remains[[2]string{id, node}]
	return r, ok, nil
}

func (m *memstore) RemainsOn(_ context.Context, node string) (all []store.Remains, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.remains {
		if r.Node == node && m.stacks[r.StackID] != nil {
			all = append(all, r)
		}
	}
	return all, nil
}

func (m *memstore) Expect(_ context.Context, id, node string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.unseen, id) // it waits for the change that removes the row
	m.remains[[2]string{id, node}] = store.Remains{StackID: id, Node: node, AllGo: true, Expected: true, Since: time.Now()}
	return nil
}

func (m *memstore) Renounce(_ context.Context, id, node string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.remains[[2]string{id, node}]
	r.Expected = false
	m.remains[[2]string{id, node}] = r
	return nil
}

func (m *memstore) MarkRemains(_ context.Context, id, node string, data []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.remains[[2]string{id, node}]
	r.StackID, r.Node, r.Volumes, r.SeenAt = id, node, data, time.Now()
	m.remains[[2]string{id, node}] = r
	return nil
}

func (m *memstore) ForgetRemains(_ context.Context, id, node string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.remains, [2]string{id, node})
	return nil
}

func (m *memstore) Deleted(_ context.Context, id string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deleted[id], nil
}

func (m *memstore) Reserve(_ context.Context, last int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noReserve != nil {
		return m.noReserve
	}
	m.last = max(m.last, last)
	return nil
}

func (m *memstore) AddCommand(ctx context.Context, c stack.Command, options ...store.Option) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.stacks[c.StackID]; st != nil {
		if err := store.CheckOwner(st, options...); err != nil {
			return err
		}
	}
	m.commands = append(m.commands, c)
	return ctx.Err()
}

func (m *memstore) EndCommand(_ context.Context, c stack.Command) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands[slices.IndexFunc(m.commands, func(other stack.Command) bool { return other.ID == c.ID })] = c
	return nil
}

func (m *memstore) EndCommands(_ context.Context, node string, at time.Time, why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.commands {
		if c := &m.commands[i]; c.EndedAt.IsZero() && m.stacks[c.StackID] != nil && m.stacks[c.StackID].Node == node {
			c.EndedAt, c.Error = at, why
		}
	}
	return nil
}

// Commands are those of all stacks, oldest first.
func (m *memstore) Commands() []stack.Command {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.commands)
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

// Changes are those of all stacks.
func (m *memstore) Changes() []change {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.changes)
}
