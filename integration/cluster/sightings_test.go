package cluster

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// sightings are the processes of a service that have answered requests.
type sightings struct {
	mu  sync.Mutex
	all []sighting
}

type sighting struct {
	process    string
	begun, got time.Time
	through    string
}

// look asks which process answers through a node.
func (s *sightings) look(t *testing.T, h *Host, st *Stack) {
	t.Helper()
	begun := time.Now()
	r := h.get(t, st.url("web", "/process"))
	if r.status != http.StatusOK {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, sighting{r.body, begun, time.Now(), h.node.Name})
}

// check returns an error if a process has answered a request that began after a later one
// had answered: two of them served.
func (s *sightings) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, seen := map[string]time.Time{}, []string{}
	for _, one := range s.all {
		for _, later := range seen {
			if at, ok := first[one.process]; ok && at.Before(first[later]) && one.begun.After(first[later]) {
				return fmt.Errorf("process %s answers through %s at %s, after %s did so at %s",
					one.process, one.through, one.got.Format(time.StampMilli), later, first[later].Format(time.StampMilli))
			}
		}
		if _, ok := first[one.process]; !ok {
			first[one.process] = one.got
			seen = append(seen, one.process)
		}
	}
	return nil
}

func (s *sightings) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
