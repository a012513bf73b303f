package proxy

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/berth-host/berth/internal/stack"
)

// Service is the service that one host leads to.
type Service struct {
	Name   string  // shown on pages
	Target *Target // nil: it is not running at the moment (502)
}

// Entry describes where the hosts of one stack lead. It must not change after Set; a
// new state needs a new Entry.
type Entry struct {
	Status    stack.Status
	Restoring bool   // a stack that is building comes back without a build
	Name      string // the stack's name, shown on pages
	// Hosts maps hosts to the stack's services. A host is a full name in lower case,
	// without a port or a final dot. A host belongs to one stack only.
	Hosts map[string]Service
	// Wildcard is a host whose first label begins with "*-", or "". Hosts with the name
	// of a service in place of the "*" that are not in Hosts belong to the stack too,
	// but it does not have such a service, or no longer (404).
	Wildcard  string
	ClaimURL  string // page where an expired stack is claimed
	Unclaimed bool   // answers ask search engines not to list them; a stack that is claimed stays so
}

// without yields the table's keys of e, its hosts and its wildcard, that are not keys of
// other.
func (e *Entry) without(other *Entry) iter.Seq[string] {
	return func(yield func(string) bool) {
		if e.Wildcard != "" && e.Wildcard != other.Wildcard && !yield(e.Wildcard) {
			return
		}
		for host := range e.Hosts {
			if _, both := other.Hosts[host]; !both && !yield(host) {
				return
			}
		}
	}
}

// place is where a host leads.
type place struct {
	entry   *Entry // nil: no stack has the host
	service Service
	known   bool // a service has the host; otherwise only the wildcard covers it
}

// record holds a stack's current entry. A change of routes replaces the entry, for all
// hosts in one step; the table changes only when hosts come or go.
type record struct{ entry atomic.Pointer[Entry] }

// Routes is the table of public hosts. Its zero value is empty and ready.
type Routes struct {
	mu     sync.Mutex         // held by writers
	stacks map[string]*record // by the ids that writers give
	table  sync.Map           // *record by each host and wildcard
}

// Set replaces everything that the hosts of a stack lead to, in one step. It returns
// the targets of the previous entry that are not in the new one. The caller should
// drain them, then stop what they lead to.
func (t *Routes) Set(id string, e Entry) []*Target {
	e.Hosts = maps.Clone(e.Hosts)
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.stacks[id]
	if r == nil {
		r = &record{}
		r.entry.Store(&Entry{Unclaimed: true})
		if t.stacks == nil {
			t.stacks = map[string]*record{}
		}
		t.stacks[id] = r
	}
	// The writer may not have heard of the claim yet.
	e.Unclaimed = e.Unclaimed && r.entry.Load().Unclaimed
	return t.replace(r, &e)
}

// MarkClaimed records that a stack has an owner; its hosts lead where they did.
func (t *Routes) MarkClaimed(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.stacks[id]; r != nil {
		e := *r.entry.Load()
		e.Unclaimed = false
		r.entry.Store(&e)
	}
}

// Withdraw removes a target whose service no longer has a process from the hosts that
// lead to it (502), and reports whether there were any.
func (t *Routes) Withdraw(id string, target *Target) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.stacks[id]
	if r == nil || target == nil {
		return false
	}
	e := *r.entry.Load()
	e.Hosts = maps.Clone(e.Hosts)
	withdrawn := false
	for host, service := range e.Hosts {
		if service.Target == target {
			e.Hosts[host] = Service{Name: service.Name}
			withdrawn = true
		}
	}
	r.entry.Store(&e)
	return withdrawn
}

// Remove makes the hosts of a stack unknown (404) and returns its targets.
func (t *Routes) Remove(id string) []*Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.stacks[id]
	if r == nil {
		return nil
	}
	delete(t.stacks, id)
	return t.replace(r, &Entry{})
}

// replace gives a record its next entry and returns the targets that are only in the
// previous one. The caller holds mu.
func (t *Routes) replace(r *record, e *Entry) []*Target {
	old := r.entry.Load()
	for host := range e.without(old) { // before the entry is there, so that nobody sees half of it
		t.table.Store(host, r)
	}
	r.entry.Store(e)
	for host := range old.without(e) {
		t.table.CompareAndDelete(host, r)
	}
	return dropped(old, e)
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

// Serve answers a request for a host, written as in Entry.Hosts.
func (t *Routes) Serve(w http.ResponseWriter, r *http.Request, host string) {
	var last *Target
	for {
		p := t.find(host)
		target, pg := choose(p)
		if target == nil {
			writePage(w, r, pg)
			return
		}
		if target.acquire() {
			target.serve(w, r, tenant{host: host, noindex: p.entry.Unclaimed})
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
	r, ok := t.table.Load(key)
	if !ok {
		return place{}
	}
	e := r.(*record).entry.Load()
	service, known := e.Hosts[host]
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
		all = append(all, dropped(r.entry.Load(), &Entry{})...)
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
