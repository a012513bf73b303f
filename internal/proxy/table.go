package proxy

import (
	"hash/maphash"
	"sync/atomic"
)

// table finds records by hosts. A look-up takes no lock and touches two places in memory, however
// many hosts there are; writers take turns. The zero value is empty and ready.
type table struct {
	slots atomic.Pointer[[]slot] // of a power of two, at most half of them taken; nil while empty
	taken int
}

// slot has a row, or ends the search for one.
type slot = atomic.Pointer[row]

// row is a host of the table. Once it is in a slot it stays there, and without a record it counts
// as absent, until the slots are replaced.
type row struct {
	hash   uint64
	host   string
	record atomic.Pointer[record]
}

// fewest is how many slots a table has at first.
const fewest = 64

var seed = maphash.MakeSeed()

// load returns the record of a host, nil for none.
func (t *table) load(host string) *record {
	if slots := t.slots.Load(); slots != nil {
		if found := search(*slots, maphash.String(seed, host), host).Load(); found != nil {
			return found.record.Load()
		}
	}
	return nil
}

// search returns the slot that has a host, or that it belongs in.
func search(slots []slot, hash uint64, host string) *slot {
	for at := hash; ; at++ {
		s := &slots[at&uint64(len(slots)-1)]
		if found := s.Load(); found == nil || found.hash == hash && found.host == host {
			return s
		}
	}
}

// store sets the record of a host.
func (t *table) store(host string, r *record) {
	t.makeRoom()
	hash := maphash.String(seed, host)
	s := search(*t.slots.Load(), hash, host)
	if found := s.Load(); found != nil {
		found.record.Store(r)
		return
	}
	added := &row{hash: hash, host: host}
	added.record.Store(r)
	s.Store(added)
	t.taken++
}

// remove removes a host if it has a record.
func (t *table) remove(host string, r *record) {
	if found := search(*t.slots.Load(), maphash.String(seed, host), host).Load(); found != nil {
		found.record.CompareAndSwap(r, nil)
	}
}

// makeRoom makes room for another row, without those that have no record.
func (t *table) makeRoom() {
	var old []slot
	if slots := t.slots.Load(); slots != nil {
		old = *slots
	}
	if 2*(t.taken+1) <= len(old) {
		return
	}
	var rows []*row
	for i := range old {
		if found := old[i].Load(); found != nil && found.record.Load() != nil {
			rows = append(rows, found)
		}
	}
	size := fewest
	for size < 4*(len(rows)+1) {
		size *= 2
	}
	slots := make([]slot, size)
	for _, kept := range rows {
		search(slots, kept.hash, kept.host).Store(kept)
	}
	t.taken = len(rows)
	t.slots.Store(&slots)
}
