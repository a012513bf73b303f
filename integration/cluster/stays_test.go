package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"
)

// stays are when and where containers of stacks have run, as each node's engine said again
// and again.
type stays struct {
	mu    sync.Mutex
	all   map[string][]*stay // by stack
	last  map[string]*stay   // by node and container
	found int
}

// stay is a time in which a container of a stack ran on a node without a break.
type stay struct {
	node, container string
	since           time.Time // when the container was first seen
	from, to        time.Time // it ran at least then
}

const (
	// unseen is how long an engine may say nothing before its containers may have stood still.
	unseen = 2 * time.Second

	// guestStays is how long a node may run a stack that it was to get from the owner, which
	// has given up the move: the guest waits for 30 seconds for the owner's next step.
	guestStays = 45 * time.Second

	// notice is how long a server needs that has just started, or whose machine was frozen, to
	// end the containers of stacks that were taken meanwhile.
	notice = 20 * time.Second
)

// watchEngines asks the engines what runs until the test ends.
func (c *Cluster) watchEngines(t *testing.T) *stays {
	t.Helper()
	s := &stays{all: map[string][]*stay{}, last: map[string]*stay{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, h := range c.hosts {
		running.Go(func() {
			for ctx.Err() == nil {
				s.look(ctx, h.node)
				nap(ctx, lookAround)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

// look asks an engine once. What does not answer is frozen or away.
func (s *stays) look(ctx context.Context, n *Node) {
	ctx, cancel := context.WithTimeout(ctx, unseen/2)
	defer cancel()
	asked := time.Now()
	found, err := n.Engine.ContainerList(ctx, container.ListOptions{Filters: ofStacks()})
	if err != nil {
		return
	}
	got := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range found {
		if c.State == container.StateRunning {
			s.note(c.Labels["berth.stack"], stay{node: n.Name, container: c.Names[0], since: asked, from: got, to: asked}, c.ID)
		}
	}
}

// note notes that a container was running at some moment between one.to and one.from.
func (s *stays) note(st string, one stay, id string) {
	s.found++
	key := one.node + " " + id
	last := s.last[key]
	if last != nil && one.to.Sub(last.to) < unseen {
		last.to = one.to
		return
	}
	if last != nil {
		one.since = last.since
	}
	s.last[key] = &one
	s.all[st] = append(s.all[st], &one)
}

// check returns an error if a stack ran on two nodes at the same time, but for a guest after a
// move that broke off, and what excused says of a node and a moment.
func (s *stays) check(o *owners, excused func(node string, at time.Time) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == 0 {
		return errors.New("no container was ever seen")
	}
	var errs []error
	for st, all := range s.all {
		for i, a := range all {
			for _, b := range all[:i] {
				if err := o.beside(st, a, b, excused); err != nil {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// beside returns an error if two containers of a stack must not have run at the same time.
func (o *owners) beside(st string, a, b *stay, excused func(node string, at time.Time) bool) error {
	from, to := latest(a.from, b.from), earliest(a.to, b.to)
	if a.node == b.node || !to.After(from) {
		return nil
	}
	isGuest := func(one *stay) bool { return !o.mayServe(st, one.node, one.since, to) }
	if (isGuest(a) || isGuest(b)) && to.Sub(from) < guestStays {
		return nil
	}
	for _, one := range []*stay{a, b} {
		if excused(one.node, to) {
			return nil
		}
	}
	return fmt.Errorf("stack %s: %s on %s and %s on %s ran at the same time, from %s to %s; its owners: %+v",
		st, a.container, a.node, b.container, b.node, from.Format(time.StampMilli), to.Format(time.StampMilli), o.of(st))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// What the chaos asserts of owners and containers can fail.
func TestStays_FindAStackOnTwoNodes(t *testing.T) {
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	in := func(node string, since, to int) *stay {
		return &stay{node: node, container: "web", since: at(since), from: at(since), to: at(to)}
	}
	o := &owners{reigns: map[string][]reign{}, asked: map[string]time.Time{}}
	o.note("st", reign{node: "w1", epoch: 1, after: at(0), by: at(0)})
	o.note("st", reign{node: "w1", epoch: 1, after: at(100), by: at(100)})
	o.note("st", reign{node: "w2", epoch: 2, after: at(101), by: at(101)})
	for name, c := range map[string]struct {
		a, b    *stay
		excused bool
		fails   bool
	}{
		"one after the other":              {a: in("w1", 1, 99), b: in("w2", 99, 200)},
		"at the same time":                 {a: in("w1", 1, 110), b: in("w2", 101, 200), fails: true},
		"after a freeze":                   {a: in("w1", 1, 110), b: in("w2", 101, 200), excused: true},
		"on one node":                      {a: in("w1", 1, 50), b: in("w1", 40, 99)},
		"a guest":                          {a: in("w1", 1, 99), b: in("w2", 40, 70)},
		"a guest that stays":               {a: in("w1", 1, 99), b: in("w2", 10, 70), fails: true},
		"both before the owner is another": {a: in("w1", 1, 200), b: in("w2", 40, 120), fails: true},
	} {
		err := o.beside("st", c.a, c.b, func(string, time.Time) bool { return c.excused })
		require.Equal(t, c.fails, err != nil, "%s: %v", name, err)
	}
	require.NoError(t, o.check())
	o.note("st", reign{node: "w1", epoch: 1, after: at(102), by: at(102)})
	require.ErrorContains(t, o.check(), "in epoch 1 after")
}
