package proxy

import (
	"context"
	"errors"
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
	Target *Target // nil: it has no process just now (502)
}

// Entry describes where the hosts of one stack lead. It must not change after Set; a
// new state needs a new Entry.
type Entry struct {
	Status stack.Status
	Name   string // the stack's name, shown on pages
	// Hosts maps hosts to the stack's services. A host is a full name in lower case,
	// without a port or a final dot. A host belongs to one stack only.
	Hosts map[string]Service
	// Wildcard is a host whose first label begins with "*-", or "". Hosts with the name
	// of a service in place of the "*" that are not in Hosts belong to the stack too,
	// but it has no such service, now or any more (404).
	Wildcard  string
	ClaimURL  string // page where an expired stack is claimed
	Unclaimed bool   // answers ask search engines not to list them; a stack that is claimed stays so
}

// place is the entry of the table for a host.
type place struct {
	entry   *Entry
	service Service
	known   bool // a service has the host; otherwise only the wildcard covers it
}

// Routes is the table of public hosts. Its zero value is empty and ready.
type Routes struct {
	mu     sync.Mutex        // held by writers
	stacks map[string]*Entry // by the ids that writers give
	table  atomic.Pointer[map[string]place]
}

// Set replaces everything that the hosts of a stack lead to, in one step. It returns
// the targets of the previous entry that are not in the new one. The caller should
// drain them, then stop what they lead to.
func (t *Routes) Set(id string, e Entry) []*Target {
	e.Hosts = maps.Clone(e.Hosts)
	return t.replace(id, &e)
}

// MarkClaimed records that a stack has an owner; its hosts lead where they did.
func (t *Routes) MarkClaimed(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.stacks[id]
	if old == nil {
		return
	}
	e := *old
	e.Unclaimed = false
	t.put(id, &e)
}

// Withdraw removes a target whose service no longer has a process from the hosts that
// lead to it (502), and reports whether there were any.
func (t *Routes) Withdraw(id string, target *Target) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.stacks[id]
	if old == nil || target == nil {
		return false
	}
	e := *old
	e.Hosts = maps.Clone(old.Hosts)
	for host, service := range e.Hosts {
		if service.Target == target {
			e.Hosts[host] = Service{Name: service.Name}
		}
	}
	t.put(id, &e)
	return len(dropped(old, &e)) > 0
}

// Remove makes the hosts of a stack unknown (404) and returns its targets.
func (t *Routes) Remove(id string) []*Target { return t.replace(id, nil) }

// Drain waits for the requests of every target, or for ctx, as Target.Drain does.
func (t *Routes) Drain(ctx context.Context) error {
	var targets []*Target
	for _, p := range t.places() {
		if p.service.Target != nil {
			targets = append(targets, p.service.Target)
		}
	}
	errs := make([]error, len(targets))
	var wg sync.WaitGroup
	for i, target := range targets {
		wg.Go(func() { errs[i] = target.Drain(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Has reports whether a host leads to a service; the host is written as in Entry.Hosts.
func (t *Routes) Has(host string) bool { return t.places()[host].known }

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
			serveFrom(target, w, r, tenant{host: host, noindex: p.entry.Unclaimed})
			return
		}
		if target == last {
			writePage(w, r, stoppingPage)
			return
		}
		last = target // it was drained after the read of the table: read again
	}
}

// serveFrom passes the request to a target that has been acquired.
func serveFrom(target *Target, w http.ResponseWriter, r *http.Request, of tenant) {
	defer target.release()
	if target.handler == nil {
		target.up.serve(w, r, of)
		return
	}
	if of.noindex {
		w.Header()["X-Robots-Tag"] = noindex
	}
	target.handler.ServeHTTP(w, r)
}

// noindex keeps unclaimed pages out of search engines. It is shared: header
// values are replaced, never written into.
var noindex = []string{"noindex"}

// find returns the place of a host; its entry is nil if no stack has the host.
func (t *Routes) find(host string) place {
	table := t.places()
	if p := table[host]; p.known {
		return p
	}
	label, _, _ := strings.Cut(host, ".")
	dash := strings.LastIndexByte(label, '-')
	if dash < 1 {
		return place{}
	}
	p := table["*"+host[dash:]]
	p.service.Name = label[:dash]
	return p
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

func (t *Routes) places() map[string]place {
	if m := t.table.Load(); m != nil {
		return *m
	}
	return nil
}

func (t *Routes) replace(id string, e *Entry) []*Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	return dropped(t.put(id, e), e)
}

// put stores an entry, nil for none, and returns the previous one. The caller holds mu.
func (t *Routes) put(id string, e *Entry) *Entry {
	if t.stacks == nil {
		t.stacks = map[string]*Entry{}
	}
	old := t.stacks[id]
	table := maps.Clone(t.places())
	if table == nil {
		table = map[string]place{}
	}
	if old != nil {
		delete(table, old.Wildcard)
		for host := range old.Hosts {
			delete(table, host)
		}
	}
	delete(t.stacks, id)
	if e != nil {
		// The writer may not have heard of the claim yet.
		e.Unclaimed = e.Unclaimed && (old == nil || old.Unclaimed)
		t.stacks[id] = e
		table[e.Wildcard] = place{entry: e}
		for host, service := range e.Hosts {
			table[host] = place{entry: e, service: service, known: true}
		}
	}
	t.table.Store(&table)
	return old
}

// dropped returns the targets of old that no host of e leads to.
func dropped(old, e *Entry) []*Target {
	if old == nil {
		return nil
	}
	kept := map[*Target]bool{nil: true}
	if e != nil {
		for _, service := range e.Hosts {
			kept[service.Target] = true
		}
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
