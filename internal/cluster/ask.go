package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Self returns the id of this node.
func (m *Membership) Self() string { return m.cfg.Self.ID }

// Nodes returns all nodes, by name.
func (m *Membership) Nodes() []Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Node, 0, len(m.order))
	for _, id := range m.order {
		all = append(all, m.nodes[id])
	}
	return all
}

// Node returns one node.
func (m *Membership) Node(id string) (n Node, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok = m.nodes[id]
	return n, ok
}

// Member reports whether a node belongs to the cluster: it has registered, and has not left
// the swarm since.
func (m *Membership) Member(id string) bool {
	n, ok := m.Node(id)
	return ok && !n.Gone
}

// Address returns host:port of a node's listener for nodes, and the node's state. For an
// unknown node they are "" and Lost.
func (m *Membership) Address(id string) (string, State) {
	n, ok := m.Node(id)
	if !ok {
		return "", Lost
	}
	return n.Address, n.State
}

// Name returns the name of a node for people, its id if it is not known.
func (m *Membership) Name(id string) string {
	if n, ok := m.Node(id); ok {
		return n.Name
	}
	return id
}

// Counts returns the number of nodes in each state.
func (m *Membership) Counts() map[string]int {
	counts := map[string]int{string(Ready): 0, string(Away): 0, string(Lost): 0}
	for _, n := range m.Nodes() {
		counts[string(n.State)]++
	}
	return counts
}

// Manager reports whether this node is a manager to which Swarm answers. What reaches such a
// node is not cut off: see Contact.
func (m *Membership) Manager() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.speaks.IsZero() && time.Since(m.speaks) <= wordLife
}

// HasLease reports whether this node has its lease, by its own clock: once it reports false,
// others see so at the earliest.
func (m *Membership) HasLease() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hasLease()
}

func (m *Membership) hasLease() bool { return time.Now().Before(m.until) }

// Contact says that this node and another have been in contact at a time, and whether the
// other one has answered that it is a manager, as its Membership.Manager says. Both sides of a
// contact call it. The time is when the request began. The one that was asked does not know
// whether its answer came, so to it the other is no manager: a manager that got none has not
// noted the contact.
func (m *Membership) Contact(node string, manager bool, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.noteIsolation()()
	if manager && at.After(m.contact) {
		m.contact = at
	}
	if at.After(m.met[node]) {
		m.met[node] = at
	}
}

// HeardAfter reports whether this node has read what Swarm said of it after a moment.
func (m *Membership) HeardAfter(at time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[m.cfg.Self.ID]
	return ok && m.readAt.Add(-n.Heard).After(at)
}

// Isolated reports whether this node has had neither its lease nor contact with a manager
// for BERTH_NODE_GRACE: it must stop what others may take. It counts from when it asked for
// its last lease, so that it is done before they begin. A node that stood still meanwhile may
// be back before anybody asks, or its clock with it: it counts as isolated until Stopped.
func (m *Membership) Isolated() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lapsed || m.isIsolated()
}

// Stopped says that this node has stopped what others may take since it became isolated.
func (m *Membership) Stopped() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lapsed, m.stopped = false, m.isIsolated()
}

// MayServe reports whether what this node runs is its own for sure: it is not isolated, or has
// stopped what others may take.
func (m *Membership) MayServe() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stopped || !m.lapsed && !m.isIsolated()
}

// noteIsolation is called before a change of what isIsolated looks at, and what it returns
// after it. The caller has locked m.
func (m *Membership) noteIsolation() (changed func()) {
	m.lapsed = m.lapsed || m.isIsolated() && !m.stopped && !m.renewed.IsZero() // not before the first lease
	return func() { m.stopped = m.stopped && m.isIsolated() }
}

func (m *Membership) isIsolated() bool {
	last := m.renewed
	for _, at := range []time.Time{m.contact, m.speaks} {
		if at.After(last) {
			last = at
		}
	}
	return !m.hasLease() && time.Since(last) >= m.cfg.Grace
}

// quorumLife is how long a manager that is cut off from the others may go on answering: it gives
// up after an election's time, which is ten of Swarm's ticks of a second.
const quorumLife = 10 * time.Second

// managers returns how many managers the swarm has, as far as is known. A cut-off one among
// several may still take itself for one, and those who reach it are in contact with a manager.
// The caller has locked m.
func (m *Membership) managers() (n int) {
	for _, node := range m.nodes {
		if node.Manager {
			n++
		}
	}
	return n
}

// MayTakeOver reports whether this node may take stacks of another one: that is lost, and
// this node has kept its own lease for all the time in which the other had to come back. No
// manager has been in contact with the other one for so long that it knows that it is cut
// off.
func (m *Membership) MayTakeOver(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[node]
	if !ok || n.State != Lost || !m.hasLease() {
		return false
	}
	kept := time.Since(m.since) >= m.cfg.Grace
	fresh := time.Since(m.readAt) <= m.cfg.Lease
	silence := m.cfg.Grace + m.cfg.Lease
	if m.managers() > 1 {
		silence += wordLife + quorumLife
	}
	return kept && fresh && n.Over >= m.cfg.Grace && n.Silent >= silence
}

// TakesLost reports whether this node may be given what a lost one had: it takes new stacks, and
// has room or no other node that takes some does.
func (m *Membership) TakesLost() bool {
	self, ok := m.Node(m.Self())
	self.Builds, self.Room = m.load()
	if !ok || !self.takesNew(true) {
		return false
	}
	if self.Room >= m.cfg.Floor {
		return true
	}
	return !slices.ContainsFunc(m.Nodes(), func(n Node) bool {
		return n.ID != m.Self() && n.takesNew(false) && n.Room >= m.cfg.Floor
	})
}

// placeRetry is when to try again while no node takes new stacks.
const placeRetry = 10 * time.Second

// Place returns the node of a new stack, none of those without: one with the fewest builds
// that run or wait, and of several the one with the most room, this one first. A node with less
// room than Config.Floor comes after all that have more. It returns a *stack.Error of kind
// Unavailable if no node takes new stacks.
func (m *Membership) Place(_ context.Context, without []string) (string, error) {
	best, found := Node{}, false
	for _, n := range m.Nodes() {
		isSelf := n.ID == m.Self()
		if isSelf {
			n.Builds, n.Room = m.load()
		}
		if !n.takesNew(isSelf) || slices.Contains(without, n.ID) || isSelf && !m.HasLease() {
			continue
		}
		if !found || m.better(n, best) {
			best, found = n, true
		}
	}
	if !found {
		return "", &stack.Error{
			Kind: stack.Unavailable, RetryAfter: placeRetry,
			Detail: "no node of this installation takes new stacks at the moment; try again later",
		}
	}
	m.count(best.ID)
	return best.ID, nil
}

// roomStep is how much more room makes a node better.
const roomStep = 1 << 30

// better reports whether a new stack goes to a rather than b.
func (m *Membership) better(a, b Node) bool {
	if aFull, bFull := a.Room < m.cfg.Floor, b.Room < m.cfg.Floor; aFull != bFull {
		return bFull
	}
	if a.Builds != b.Builds {
		return a.Builds < b.Builds
	}
	if a.Room/roomStep != b.Room/roomStep {
		return a.Room > b.Room
	}
	return a.ID == m.Self()
}

// count counts a new stack as a build of its node until the nodes are read again.
func (m *Membership) count(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.nodes[id]; ok {
		n.Builds++
		m.nodes[id] = n
	}
}
