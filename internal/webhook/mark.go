package webhook

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/store"
)

// gatherMark is how far the mark in the database may lag behind. What a killed server
// began to deliver in this time is delivered again.
const gatherMark = time.Second

// mark is the id up to which the first attempt of every event has begun. The database
// keeps it, so that the next dispatcher continues from there. It is always below any
// event whose first attempt has not begun.
type mark struct {
	store Store
	node  string
	log   *slog.Logger
	woken chan struct{}

	mu      sync.Mutex
	read    int64              // the last event that was looked at
	waiting map[int64]struct{} // events up to it whose first attempt has not begun

	writing sync.Mutex // held while the database's mark changes
	written int64      // the mark in the database
}

func newMark(s Store, node string, log *slog.Logger) *mark {
	return &mark{store: s, node: node, log: log, woken: make(chan struct{}, 1), waiting: map[int64]struct{}{}}
}

// load reads the mark that the previous dispatcher left. That of a new node is written, since
// events of its stacks will follow.
func (m *mark) load(ctx context.Context) (int64, error) {
	id, err := m.store.WebhookMark(ctx, m.node)
	if err == nil && m.node != "" {
		err = m.store.SetWebhookMark(ctx, m.node, id)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read, m.written = id, id
	return id, err
}

// lower records that events are to be delivered which may be below the mark, and returns once
// the mark in the database is below them.
func (m *mark) lower(ctx context.Context, refs []store.EventRef) error {
	m.mu.Lock()
	for _, ref := range refs {
		m.waiting[ref.ID] = struct{}{}
	}
	m.mu.Unlock()
	return m.write(ctx)
}

// await records that the events up to last were looked at, and which of them are to be
// delivered.
func (m *mark) await(refs []store.EventRef, last int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ref := range refs {
		m.waiting[ref.ID] = struct{}{}
	}
	m.read = last
	wake(m.woken)
}

// begun records that the first attempt of an event begins, or will never be made.
func (m *mark) begun(event int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, event)
	wake(m.woken)
}

// flush writes the mark to the database if it has changed.
func (m *mark) flush(ctx context.Context) {
	if err := m.write(ctx); err != nil {
		m.log.Error("the mark of the webhooks not written; a restart delivers events again", "error", err)
	}
}

func (m *mark) write(ctx context.Context) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	id := m.read
	for event := range m.waiting {
		id = min(id, event-1)
	}
	m.mu.Unlock()
	if id == m.written {
		return nil
	}
	err := m.store.SetWebhookMark(ctx, m.node, id)
	if err == nil {
		m.written = id
	}
	return err
}
