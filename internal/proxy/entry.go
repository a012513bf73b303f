package proxy

import (
	"iter"

	"github.com/berth-host/berth/internal/stack"
)

// Service is the service that one host leads to.
type Service struct {
	Name   string  // shown on pages
	Target *Target // nil: it is not running at the moment (502)
	Closed string  // a sentence that says why it answers nobody (404); "" for a service that does
	Paths  []Path  // what leads to other services of the stack instead

	meter *meter // counts its requests; Set adds it
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

	// Peer is the node that runs the stack, which decides about all else; nil: this one.
	Peer *Peer
	// Hold makes requests wait for the next entry of the stack, which is moving.
	Hold bool

	next chan struct{} // of an entry that holds: closed when there is another
	few  [fewHosts]hosted
	many bool // there are more hosts than few has room for, and it is empty
}

// hosted is a host with its service.
type hosted struct {
	host    string
	service Service
}

// fewHosts is how many hosts stand in the entry itself, which spares a look into the map: as
// many as a stack has services.
const fewHosts = 4

// arrange puts the hosts of the entry in their places.
func (e *Entry) arrange() {
	e.few, e.many = [fewHosts]hosted{}, len(e.Hosts) > fewHosts
	if e.many {
		return
	}
	i := 0
	for host, service := range e.Hosts {
		e.few[i] = hosted{host, service}
		i++
	}
}

// serviceOf returns the service of a host, which is not "".
func (e *Entry) serviceOf(host string) (_ Service, known bool) {
	if e.many {
		service, known := e.Hosts[host]
		return service, known
	}
	for i := range e.few {
		if e.few[i].host == host {
			return e.few[i].service, true
		}
	}
	return Service{}, false
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
