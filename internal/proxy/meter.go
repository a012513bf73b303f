package proxy

import (
	"cmp"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/histogram"
)

// meter counts the requests for one service, from one generation to the next.
type meter struct {
	answers  [classes]atomic.Uint64 // by the first digit of the status; 0 for none
	in, out  atomic.Uint64          // bytes of bodies
	firstFor histogram.Counter      // time to the answer's head
}

const classes = 6

// Counts is what was counted for a service in some time.
type Counts struct {
	// Answers are the requests by the first digit of their status: 1 for a change of
	// protocols, 0 for a caller who left before the answer.
	Answers [classes]uint64
	In, Out uint64              // bytes of bodies, or through changed protocols: from callers and to them
	First   histogram.Histogram // from the request's head to the answer's
}

// take returns what was counted since the last call.
func (m *meter) take() *Counts {
	c := &Counts{In: m.in.Swap(0), Out: m.out.Swap(0), First: m.firstFor.Take()}
	for i := range m.answers {
		c.Answers[i] = m.answers[i].Swap(0)
	}
	return c
}

// counted reports whether there is anything in it.
func (c *Counts) counted() bool { return c.Answers != [classes]uint64{} || c.In != 0 || c.Out != 0 }

// Take returns what was counted since the last call, by the ids of stacks and the names of
// services: for each service that has a host of this node, and each other one that has been
// asked since.
func (t *Routes) Take() map[string]map[string]*Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]map[string]*Counts, len(t.meters))
	for id, meters := range t.meters {
		hosted := t.hosted(id)
		taken := make(map[string]*Counts, len(meters))
		for name, m := range meters {
			if c := m.take(); hosted[name] || c.counted() {
				taken[name] = c
			}
			if !hosted[name] {
				delete(meters, name)
			}
		}
		if len(meters) == 0 {
			delete(t.meters, id)
		}
		if len(taken) > 0 {
			all[id] = taken
		}
	}
	return all
}

// hosted returns the services of a stack that have a host of this node. The caller holds mu.
func (t *Routes) hosted(id string) map[string]bool {
	hosted := map[string]bool{}
	if r := t.stacks[id]; r != nil && r.local != nil {
		for _, service := range r.local.Hosts {
			hosted[service.Name] = true
		}
	}
	return hosted
}

// meter returns the meter of a service. The caller holds mu.
func (t *Routes) meter(id, service string) *meter {
	if t.meters[id] == nil {
		if t.meters == nil {
			t.meters = map[string]map[string]*meter{}
		}
		t.meters[id] = map[string]*meter{}
	}
	m := t.meters[id][service]
	if m == nil {
		m = &meter{}
		t.meters[id][service] = m
	}
	return m
}

// tally counts one request for a meter: it is the writer of the answer. All methods but those
// of http.ResponseWriter may be called on nil.
type tally struct {
	http.ResponseWriter
	meter    *meter
	began    time.Time
	answered bool
}

var tallies = sync.Pool{New: func() any { return new(tally) }}

// unknown counts the requests for services that no entry has. Nobody reads it.
var unknown meter

// newTally returns the tally of a request that began at a time; end takes it back.
func newTally(w http.ResponseWriter, began time.Time) *tally {
	t := tallies.Get().(*tally)
	*t = tally{ResponseWriter: w, meter: &unknown, began: began}
	return t
}

// forService makes the request count for a service.
func (t *tally) forService(s Service) { t.meter = cmp.Or(s.meter, &unknown) }

// end counts a request that had no answer. The tally must not be used any more.
func (t *tally) end() {
	if !t.answered {
		t.meter.answers[0].Add(1)
	}
	*t = tally{}
	tallies.Put(t)
}

// answer counts the request, the first time.
func (t *tally) answer(status int) {
	if t == nil || t.answered {
		return
	}
	t.answered = true
	t.meter.answers[min(status/100, classes-1)].Add(1)
	t.meter.firstFor.Add(time.Since(t.began))
}

// received returns the counter of the bytes from the caller, or one that nobody reads.
func (t *tally) received() *atomic.Uint64 {
	if t == nil {
		return new(atomic.Uint64)
	}
	return &t.meter.in
}

// sent is received for the bytes to the caller.
func (t *tally) sent() *atomic.Uint64 {
	if t == nil {
		return new(atomic.Uint64)
	}
	return &t.meter.out
}

// WriteHeader passes the status on; interim answers do not count.
func (t *tally) WriteHeader(status int) {
	if status >= http.StatusOK {
		t.answer(status)
	}
	t.ResponseWriter.WriteHeader(status)
}

// Write passes p on.
func (t *tally) Write(p []byte) (int, error) {
	t.answer(http.StatusOK)
	n, err := t.ResponseWriter.Write(p)
	t.meter.out.Add(uint64(n))
	return n, err
}

// ReadFrom lets the writer inside take the bytes of r itself, if it can.
func (t *tally) ReadFrom(r io.Reader) (int64, error) {
	t.answer(http.StatusOK)
	n, err := io.Copy(t.ResponseWriter, r)
	t.meter.out.Add(uint64(n))
	return n, err
}

// Flush passes on what is buffered.
func (t *tally) Flush() {
	if f, ok := t.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap returns the writer inside, for http.ResponseController.
func (t *tally) Unwrap() http.ResponseWriter { return t.ResponseWriter }
