package proxy

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/stack"
)

// place is where a host leads.
type place struct {
	entry   *Entry // nil: no stack has the host
	service Service
	known   bool // a service has the host; otherwise only the wildcard covers it
}

// record holds a stack's current entry. A change of routes replaces the entry, for all
// hosts in one step; the table changes only when hosts come or go.
type record struct {
	entry atomic.Pointer[Entry] // away, or else local

	local *Entry // of Set; nil for none
	away  *Entry // leads to another node, or waits for Set; nil for neither
}

// current returns the entry that counts, nil for none.
func (r *record) current() *Entry {
	if r.away != nil {
		return r.away
	}
	return r.local
}

// Routes is the table of public hosts. Its zero value is empty and ready.
type Routes struct {
	// Refresh is called, once for a request, when the entry of its host may be out of
	// date: there is none, or it leads to another node although a node sent the request
	// here. It returns when the entry is up to date, or false if it cannot be now. It is
	// nil on one machine.
	Refresh func(ctx context.Context, host string) bool
	// MayServe reports whether what runs here is this node's own for sure; nil on one
	// machine, where it always is.
	MayServe func() bool

	domains atomic.Pointer[map[string]string] // see SetDomains; nil for none

	mu     sync.Mutex                   // held by writers
	stacks map[string]*record           // by the ids that writers give
	meters map[string]map[string]*meter // by the ids, and by the names of services
	table  table                        // by each host and wildcard
}

// Set replaces everything that the hosts of a stack lead to, in one step. It returns
// the targets of the previous entry that are not in the new one. The caller should
// drain them, then stop what they lead to.
func (t *Routes) Set(id string, e Entry) []*Target {
	e.Hosts = maps.Clone(e.Hosts)
	t.mu.Lock()
	defer t.mu.Unlock()
	r, old := t.recordOf(id), &Entry{Unclaimed: true}
	if r.local != nil {
		old = r.local
	}
	// The writer may not have heard of the claim yet.
	e.Unclaimed = e.Unclaimed && old.Unclaimed
	for host, service := range e.Hosts {
		service.meter = t.meter(id, service.Name)
		e.Hosts[host] = service
	}
	e.arrange()
	if r.local = &e; r.away != nil && r.away.Hold {
		r.away = nil
	}
	t.settle(id, r)
	return dropped(old, &e)
}

// recordOf returns the record of a stack. The caller holds mu.
func (t *Routes) recordOf(id string) *record {
	r := t.stacks[id]
	if r == nil {
		r = &record{}
		r.entry.Store(&Entry{})
		if t.stacks == nil {
			t.stacks = map[string]*record{}
		}
		t.stacks[id] = r
	}
	return r
}

// settle serves the entry that counts. The caller holds mu.
func (t *Routes) settle(id string, r *record) {
	e := r.current()
	if e == nil {
		delete(t.stacks, id)
		e = &Entry{}
	}
	if e != r.entry.Load() {
		t.replace(r, e)
	}
}

// MarkClaimed records that a stack has an owner; its hosts lead where they did.
func (t *Routes) MarkClaimed(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.stacks[id]; r != nil && r.local != nil {
		e := *r.local
		e.Unclaimed = false
		r.local = &e
		t.settle(id, r)
	}
}

// Withdraw removes a target whose service no longer has a process from the hosts that
// lead to it (502), and reports whether there were any.
func (t *Routes) Withdraw(id string, target *Target) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.stacks[id]
	if r == nil || r.local == nil || target == nil {
		return false
	}
	e := *r.local
	e.Hosts = maps.Clone(e.Hosts)
	withdrawn := false
	for host, service := range e.Hosts {
		if service.Target == target {
			service.Target = nil
			e.Hosts[host] = service
			withdrawn = true
		}
	}
	e.arrange()
	r.local = &e
	t.settle(id, r)
	return withdrawn
}

// Remove makes the hosts of a stack unknown (404) and returns its targets.
func (t *Routes) Remove(id string) []*Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.stacks[id]
	if r == nil || r.local == nil {
		return nil
	}
	old := r.local
	r.local = nil
	t.settle(id, r)
	return dropped(old, &Entry{})
}

// replace gives a record its next entry. The caller holds mu.
func (t *Routes) replace(r *record, e *Entry) {
	old := r.entry.Load()
	if e.Hold {
		held := *e
		held.next = make(chan struct{})
		e = &held
	}
	for host := range e.without(old) { // before the entry is there, so that nobody sees half of it
		t.table.store(host, r)
	}
	r.entry.Store(e)
	for host := range old.without(e) {
		t.table.remove(host, r)
	}
	if old.next != nil {
		close(old.next)
	}
}

// Drain waits for the requests of every target, or for ctx, as Target.Drain does.
func (t *Routes) Drain(ctx context.Context) error {
	targets := t.targets()
	errs := make([]error, len(targets))
	var wg sync.WaitGroup
	for i, target := range targets {
		wg.Go(func() { errs[i] = target.Drain(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Has reports whether a host leads to a service; the host is written as in Entry.Hosts.
func (t *Routes) Has(host string) bool { return t.at(host, host).known }

// SetDomains makes hosts of owners lead where hosts of stacks do, and no others: each
// leads to the host that it maps to. The map must not change afterwards.
func (t *Routes) SetDomains(hosts map[string]string) { t.domains.Store(&hosts) }

// HasDomain reports whether a host is one that SetDomains was given.
func (t *Routes) HasDomain(host string) bool {
	_, has := t.domain(host)
	return has
}

// domain returns the host of a stack that an owner's host leads to.
func (t *Routes) domain(host string) (to string, has bool) {
	if hosts := t.domains.Load(); hosts != nil {
		to, has = (*hosts)[host]
	}
	return to, has
}

// Serve answers a request for a host, written as in Entry.Hosts, or for one of an owner.
func (t *Routes) Serve(w http.ResponseWriter, r *http.Request, host string) {
	began := time.Now()
	of := exchange.Tenant{Host: host}
	if to, has := t.domain(host); has {
		host, of.Domain = to, true
		w.Header()["X-Robots-Tag"] = nil // our own pages do not have it either
	}
	p, pg := t.findSettled(r, host)
	if pg.status != 0 {
		writePage(w, r, pg)
		return
	}
	if p.entry != nil && p.entry.Peer != nil {
		p.entry.Peer.Serve(w, r)
		return
	}
	if t.MayServe != nil && !t.MayServe() {
		writePage(w, r, isolatedPage)
		return
	}
	count := newTally(w, began)
	defer count.end()
	t.serveAt(p, count, r, host, of)
}

// serveAt answers a request for a host of a stack that leads to a place of this node.
func (t *Routes) serveAt(p place, w *tally, r *http.Request, host string, of exchange.Tenant) {
	var last *Target
	for ; ; p = t.find(host) {
		to, asked, prefix := p.follow(requestTarget(r))
		w.forService(to.service)
		target, pg := choose(to)
		if target == nil {
			writePage(w, r, pg)
			return
		}
		if target.acquire() {
			of.NoIndex, of.Prefix = p.entry.Unclaimed && !of.Domain, prefix
			if prefix != "" {
				r = withTarget(r, asked)
			}
			target.serve(w, r, of)
			return
		}
		if target == last {
			writePage(w, r, stoppingPage)
			return
		}
		last = target // it was drained after the read of the table: read again
	}
}

// find returns the place of a host.
func (t *Routes) find(host string) place {
	if p := t.at(host, host); p.known {
		return p
	}
	label, _, _ := strings.Cut(host, ".")
	dash := strings.LastIndexByte(label, '-')
	if dash < 1 {
		return place{}
	}
	p := t.at("*"+host[dash:], host)
	if !p.known {
		p.service.Name = label[:dash]
	}
	return p
}

// at returns the place of a host that a key of the table, the host itself or its
// wildcard, leads to.
func (t *Routes) at(key, host string) place {
	r := t.table.load(key)
	if r == nil {
		return place{}
	}
	e := r.entry.Load()
	service, known := e.serviceOf(host)
	if !known && key != e.Wildcard {
		return place{}
	}
	return place{e, service, known}
}

// choose returns the target of a place, or the page that says why it has none.
func choose(p place) (*Target, page) {
	if p.entry == nil {
		return nil, unknownPage
	}
	switch p.entry.Status {
	case stack.Building:
		return nil, buildingPage(p.entry)
	case stack.Failed:
		return nil, failedPage(p.entry)
	case stack.Expired:
		return nil, expiredPage(p.entry)
	case stack.Live:
		if !p.known {
			return nil, droppedPage(p.entry, p.service.Name)
		}
		if p.service.Closed != "" {
			return nil, closedPage(p.service)
		}
		if p.service.Target == nil {
			return nil, downPage(p.entry, p.service.Name)
		}
		return p.service.Target, page{}
	}
	return nil, unknownPage
}

// targets returns all targets, each one once.
func (t *Routes) targets() []*Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*Target
	for _, r := range t.stacks {
		if r.local != nil {
			all = append(all, dropped(r.local, &Entry{})...)
		}
	}
	return all
}

// dropped returns the targets of old that no host of e leads to.
func dropped(old, e *Entry) []*Target {
	kept := map[*Target]bool{nil: true}
	for _, service := range e.Hosts {
		kept[service.Target] = true
	}
	var gone []*Target
	for _, service := range old.Hosts {
		if !kept[service.Target] {
			kept[service.Target] = true
			gone = append(gone, service.Target)
		}
	}
	return gone
}
