package site

import (
	"container/list"
	"sync"
)

const (
	perSite  = 16 << 20
	allSites = 128 << 20

	// overhead is what a body costs besides its bytes.
	overhead = 512
)

// bodies is the memory of all sites of the process.
var bodies = &memory{max: allSites}

// memory limits the bodies that sites hold. Bodies are found through their blobs
// without a lock; the lock is for adding and removing. Room is made from the oldest on,
// but a body used since it was last looked at gets another turn.
type memory struct {
	mu   sync.Mutex
	max  int64
	used int64
	all  list.List // of *holding, oldest first
}

// share is the part of a memory that belongs to one site.
type share struct {
	memory *memory
	max    int64
	used   int64
	own    list.List // of *holding, oldest first
	closed bool
}

// holding is one body in memory.
type holding struct {
	share *share
	blob  *blob
	body  *body
	cost  int64
	inAll *list.Element
	inOwn *list.Element
}

// share returns a new part of m that holds at most max bytes.
func (m *memory) share(max int64) *share { return &share{memory: m, max: max} }

// keep holds a body for the next request if it fits: a body that would push out a
// quarter of the others is not worth it.
func (s *share) keep(b *blob, loaded *body) {
	cost := int64(len(loaded.bytes)) + overhead
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.closed || cost > s.max/4 || cost > m.max/4 {
		return
	}
	h := &holding{share: s, blob: b, body: loaded, cost: cost}
	h.inAll, h.inOwn = m.all.PushBack(h), s.own.PushBack(h)
	s.used += cost
	m.used += cost
	b.body.Store(loaded)
	for s.used > s.max {
		oldest(&s.own).drop()
	}
	for m.used > m.max {
		oldest(&m.all).drop()
	}
}

// oldest returns the first body of l that was not used since it was last passed over.
func oldest(l *list.List) *holding {
	for {
		front := l.Front()
		h := front.Value.(*holding)
		if !h.body.used.Swap(false) {
			return h
		}
		l.MoveToBack(front)
	}
}

// drop frees the body's room.
func (h *holding) drop() {
	m := h.share.memory
	m.all.Remove(h.inAll)
	h.share.own.Remove(h.inOwn)
	h.share.used -= h.cost
	m.used -= h.cost
	h.blob.body.CompareAndSwap(h.body, nil)
}

// close drops all bodies of the site and keeps it from holding more.
func (s *share) close() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.closed = true
	for s.own.Len() > 0 {
		s.own.Front().Value.(*holding).drop()
	}
}
