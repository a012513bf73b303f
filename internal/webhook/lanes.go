package webhook

import (
	"container/list"
	"slices"
	"sync"
)

// bounds limit lanes.
type bounds struct {
	all   int // deliveries under way at the same time
	spare int // of those, the ones that only a lane with none under way may use
	lane  int // under way in one lane
}

// lanes holds the deliveries that wait or are under way, in one lane for each stack. A
// receiver that hangs delays only its own lane: the others run in parallel, and take
// turns if there are more than may be under way. The last places are for lanes that
// have nothing under way, so that a few dozen lanes full of hanging receivers leave
// room for the rest.
type lanes struct {
	bounds bounds
	run    func(job)

	mu      sync.Mutex
	by      map[string]*lane // those with a job, by stack id
	first   list.List        // lanes that wait with nothing under way, in turn
	further list.List        // lanes that wait and may have more under way, in turn
	running int
	closed  bool
	group   sync.WaitGroup
}

// lane is the jobs of one stack.
type lane struct {
	waiting []job
	running int
	queue   *list.List // that it stands in; nil for none
	place   *list.Element
}

// newLanes returns lanes that run each job on its own goroutine.
func newLanes(b bounds, run func(job)) *lanes {
	return &lanes{bounds: b, run: run, by: map[string]*lane{}}
}

// addJob puts a job at the end or the front of its lane. Once the lanes are closed it
// does nothing.
func (l *lanes) addJob(j job, front bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	at := l.by[j.stack]
	if at == nil {
		at = &lane{}
		l.by[j.stack] = at
	}
	if front {
		at.waiting = slices.Insert(at.waiting, 0, j)
	} else {
		at.waiting = append(at.waiting, j)
	}
	l.line(at)
	l.startJobs()
}

// close returns the waiting jobs, which do not run any more, when none is under way.
func (l *lanes) close() (waiting []job) {
	l.mu.Lock()
	l.closed = true
	for _, at := range l.by {
		waiting = append(waiting, at.waiting...)
	}
	l.by = map[string]*lane{}
	l.first.Init()
	l.further.Init()
	l.mu.Unlock()
	l.group.Wait()
	return waiting
}

// line moves a lane to its current place in line.
func (l *lanes) line(at *lane) {
	var want *list.List
	switch {
	case len(at.waiting) == 0 || at.running >= l.bounds.lane:
	case at.running == 0:
		want = &l.first
	default:
		want = &l.further
	}
	if at.queue == want {
		return
	}
	if at.queue != nil {
		at.queue.Remove(at.place)
	}
	if at.queue = want; want != nil {
		at.place = want.PushBack(at)
	}
}

// startJobs runs the jobs that may run.
func (l *lanes) startJobs() {
	for {
		at := l.next()
		if at == nil {
			return
		}
		j := at.waiting[0]
		at.waiting[0] = job{}
		at.waiting = at.waiting[1:]
		l.running++
		at.running++
		at.queue.Remove(at.place)
		at.queue = nil
		l.line(at)
		l.group.Go(func() {
			l.run(j)
			l.done(j.stack, at)
		})
	}
}

// next returns the lane whose turn it is; nil if none may run.
func (l *lanes) next() *lane {
	var front *list.Element
	if l.running < l.bounds.all {
		front = l.first.Front()
	}
	if front == nil && l.running < l.bounds.all-l.bounds.spare {
		front = l.further.Front()
	}
	if front == nil {
		return nil
	}
	return front.Value.(*lane)
}

func (l *lanes) done(stack string, at *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	at.running--
	if l.closed {
		return
	}
	if len(at.waiting) == 0 && at.running == 0 {
		delete(l.by, stack)
	}
	l.line(at)
	l.startJobs()
}
