package docker

import (
	"context"
	"math"
	"sync"

	"golang.org/x/sync/semaphore"
)

// namedLocks are locks by name. Many may share a lock, or one has it alone. Waiting for
// one stops when the context ends.
type namedLocks struct {
	mu    sync.Mutex
	locks map[string]*namedLock // held or waited for
}

type namedLock struct {
	holders *semaphore.Weighted
	users   int
}

// everyone is the weight of a holder that has a lock alone.
const everyone = math.MaxInt64

// share calls do while it holds a lock together with others.
func (n *namedLocks) share(ctx context.Context, name string, do func() error) error {
	return n.hold(ctx, name, 1, do)
}

// alone calls do while it holds a lock without others.
func (n *namedLocks) alone(ctx context.Context, name string, do func() error) error {
	return n.hold(ctx, name, everyone, do)
}

func (n *namedLocks) hold(ctx context.Context, name string, weight int64, do func() error) error {
	l := n.use(name)
	defer n.leave(name, l)
	if !l.holders.TryAcquire(weight) { // even when ctx has ended: no waiting is needed
		if err := l.holders.Acquire(ctx, weight); err != nil {
			return err
		}
	}
	defer l.holders.Release(weight)
	return do()
}

func (n *namedLocks) use(name string) *namedLock {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.locks[name]
	if l == nil {
		if n.locks == nil {
			n.locks = map[string]*namedLock{}
		}
		l = &namedLock{holders: semaphore.NewWeighted(everyone)}
		n.locks[name] = l
	}
	l.users++
	return l
}

func (n *namedLocks) leave(name string, l *namedLock) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(n.locks, name)
	}
}
