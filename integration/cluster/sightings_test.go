package cluster

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// sightings are the processes of a stack's service that have answered requests.
type sightings struct {
	mu  sync.Mutex
	all []sighting
}

type sighting struct {
	process    string // with where its container is
	begun, got time.Time
	through    string
}

func (s sighting) String() string {
	return fmt.Sprintf("process %s through %s from %s to %s", s.process, s.through, s.begun.Format(time.StampMilli), s.got.Format(time.StampMilli))
}

// look asks which process answers through a node.
func (s *sightings) look(t *testing.T, h *Host, st *Stack) Reply {
	t.Helper()
	begun := time.Now()
	r := h.get(t, st.url("web", "/process"))
	if r.status == http.StatusOK {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, sighting{r.body, begun, time.Now(), h.node.Name})
	}
	return r
}

// check returns an error if two processes have served the stack: one has answered a request
// that began after a later one had answered, or it ran on a node that did not own the stack
// any more when the request began.
func (s *sightings) check(st *Stack, o *owners) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, seen := map[string]sighting{}, []string{}
	for _, one := range s.all {
		if node := o.node(one.process); !o.mayServe(st.ID, node, one.begun, one.got) {
			return fmt.Errorf("%s, on %q, which was not the owner: %+v", one, node, o.of(st.ID))
		}
		for _, later := range seen {
			if earlier, ok := first[one.process]; ok && earlier.got.Before(first[later].got) && one.begun.After(first[later].got) {
				return fmt.Errorf("%s, after another had answered: %s", one, first[later])
			}
		}
		if _, ok := first[one.process]; !ok {
			first[one.process] = one
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
