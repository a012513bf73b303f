package webhook

import "sync"

// ledger counts the pending deliveries: the ones under way and the
// ones that wait for their turn or for a retry.
type ledger struct {
	most, mostOfStack int

	mu    sync.Mutex
	by    map[string]*account // stacks with pending deliveries
	total int
}

// account counts the pending deliveries of one stack.
type account struct {
	pending int
	deleted bool // its last event is delivered, or given up
}

func newLedger(most, mostOfStack int) *ledger {
	return &ledger{most: most, mostOfStack: mostOfStack, by: map[string]*account{}}
}

// beginDelivery counts one more delivery of a stack, unless there are too many.
func (l *ledger) beginDelivery(stack string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.by[stack]
	if l.total >= l.most || a != nil && a.pending >= l.mostOfStack {
		return false
	}
	if a == nil {
		a = &account{}
		l.by[stack] = a
	}
	a.pending++
	l.total++
	return true
}

// endDelivery counts one delivery less; last means that it was that of the stack's last
// event. It reports whether a deleted stack has no pending deliveries any more.
func (l *ledger) endDelivery(stack string, last bool) (gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.by[stack]
	a.pending--
	l.total--
	a.deleted = a.deleted || last
	if a.pending > 0 {
		return false
	}
	delete(l.by, stack)
	return a.deleted
}
