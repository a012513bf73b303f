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

// Entry is what the public URLs of one stack lead to. It is not changed after
// Set; a new state is a new Entry.
type Entry struct {
	Status stack.Status
	Name   string // the stack's name, shown on error pages
	// Targets are the stack's services by name. A service with a nil target
	// exists but has no process just now (502); one that is missing was
	// dropped or never existed (404).
	Targets   map[string]*Target
	ClaimURL  string // page where an expired stack is claimed
	Unclaimed bool   // answers ask search engines not to list them; a stack that is claimed stays so
}

// Routes is the table of public URLs. Its zero value is empty and ready.
type Routes struct {
	mu    sync.Mutex // held by writers
	table atomic.Pointer[map[string]*Entry]
}

// Set replaces all that the URLs of a stack lead to, in one step. stackHex is
// the id's 12 hex characters. It returns the targets that the previous entry
// had and the new one has not: drain them, then stop what they lead to.
func (t *Routes) Set(stackHex string, e Entry) []*Target {
	e.Targets = maps.Clone(e.Targets)
	return t.replace(stackHex, &e)
}

// Claimed notes that somebody owns a stack; what its URLs lead to stays.
func (t *Routes) Claimed(stackHex string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.entries()[stackHex]
	if old == nil {
		return
	}
	e := *old
	e.Unclaimed = false
	t.put(stackHex, &e)
}

// Withdraw ends what leads to a target, whose service has no process any more
// (502), and reports whether anything did.
func (t *Routes) Withdraw(stackHex string, target *Target) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.entries()[stackHex]
	if old == nil || target == nil {
		return false
	}
	e := *old
	e.Targets = maps.Clone(old.Targets)
	for service, other := range e.Targets {
		if other == target {
			e.Targets[service] = nil
		}
	}
	t.put(stackHex, &e)
	return len(dropped(old, &e)) > 0
}

// Remove makes the URLs of a stack unknown (404) and returns its targets.
func (t *Routes) Remove(stackHex string) []*Target { return t.replace(stackHex, nil) }

// Drain waits for the requests of every target, or for ctx, as Target.Drain does.
func (t *Routes) Drain(ctx context.Context) error {
	var targets []*Target
	for _, e := range t.entries() {
		for _, target := range e.Targets {
			if target != nil {
				targets = append(targets, target)
			}
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

// Has tells whether a host label is that of a service of a stack here.
func (t *Routes) Has(label string) bool {
	service, stackHex, ok := splitLabel(label)
	if e := t.entries()[stackHex]; ok && e != nil {
		_, known := e.Targets[service]
		return known
	}
	return false
}

// Serve answers a request for the host label of a service.
func (t *Routes) Serve(w http.ResponseWriter, r *http.Request, label string) {
	service, stackHex, ok := splitLabel(label)
	if !ok {
		writePage(w, r, unknownPage)
		return
	}
	var last *Target
	for {
		e := t.entries()[stackHex]
		target, pg := choose(e, service)
		if target == nil {
			writePage(w, r, pg)
			return
		}
		if target.acquire() {
			serveFrom(target, w, r, e)
			return
		}
		if target == last {
			writePage(w, r, stoppingPage)
			return
		}
		last = target // it was drained after the read of the table: read again
	}
}

// serveFrom hands the request to a target that has been acquired.
func serveFrom(target *Target, w http.ResponseWriter, r *http.Request, e *Entry) {
	defer target.release()
	if target.handler == nil {
		target.up.serve(w, r, tenant{host: hostName(r.Host), noindex: e.Unclaimed})
		return
	}
	if e.Unclaimed {
		w.Header()["X-Robots-Tag"] = noindex
	}
	target.handler.ServeHTTP(w, r)
}

// noindex keeps unclaimed pages out of search engines. It is shared: header
// values are replaced, never written into.
var noindex = []string{"noindex"}

// choose finds the target of a service, or the page that tells why there is none.
func choose(e *Entry, service string) (*Target, page) {
	if e == nil {
		return nil, unknownPage
	}
	switch e.Status {
	case stack.Building:
		return nil, buildingPage(e)
	case stack.Failed:
		return nil, failedPage(e)
	case stack.Expired:
		return nil, expiredPage(e)
	case stack.Live:
		target, known := e.Targets[service]
		if !known {
			return nil, droppedPage(e, service)
		}
		if target == nil {
			return nil, downPage(e, service)
		}
		return target, page{}
	}
	return nil, unknownPage
}

func (t *Routes) entries() map[string]*Entry {
	if m := t.table.Load(); m != nil {
		return *m
	}
	return nil
}

func (t *Routes) replace(stackHex string, e *Entry) []*Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	return dropped(t.put(stackHex, e), e)
}

// put stores an entry, nil for none, and returns the one before. The caller
// holds mu.
func (t *Routes) put(stackHex string, e *Entry) *Entry {
	next := maps.Clone(t.entries())
	if next == nil {
		next = map[string]*Entry{}
	}
	old := next[stackHex]
	if e == nil {
		delete(next, stackHex)
	} else {
		// The writer may not have heard of the claim yet.
		e.Unclaimed = e.Unclaimed && (old == nil || old.Unclaimed)
		next[stackHex] = e
	}
	t.table.Store(&next)
	return old
}

// dropped lists the targets of old that e does not have under any name.
func dropped(old, e *Entry) []*Target {
	if old == nil {
		return nil
	}
	kept := map[*Target]bool{nil: true}
	if e != nil {
		for _, target := range e.Targets {
			kept[target] = true
		}
	}
	var gone []*Target
	for _, target := range old.Targets {
		if !kept[target] {
			kept[target] = true
			gone = append(gone, target)
		}
	}
	return gone
}

// splitLabel cuts a lower-case host label into a service and a stack.
func splitLabel(label string) (service, stackHex string, ok bool) {
	const hexLen = 12
	at := len(label) - hexLen - 1
	if at < 1 || label[at] != '-' || strings.IndexByte(label, '.') >= 0 {
		return "", "", false
	}
	return label[:at], label[at+1:], true
}

// hostName is a Host header in lower case without its port.
func hostName(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
