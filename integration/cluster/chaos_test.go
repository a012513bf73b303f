package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/invariants"
)

const (
	// chaosRound is how long the chaos goes on before everything is checked.
	chaosRound = time.Minute

	// chaosAgents use the cluster at the same time.
	chaosAgents = 4
)

// TestChaos_TheInvariantsHold has agents create, change, claim and delete stacks through
// random nodes while nodes, their engines and servers, and what they share are killed,
// frozen and cut off at random. BERTH_CHAOS_FOR says for how long, as in 20m
// (make cluster-chaos). BERTH_CHAOS_SEED repeats the order of an earlier run's faults. With an odd
// one the stacks of lost nodes are restored from snapshots, with an even one they wait.
func TestChaos_TheInvariantsHold(t *testing.T) {
	long(t)
	length, seed := chaosRound, time.Now().UnixNano()&0xffffff
	var err error
	if text := os.Getenv("BERTH_CHAOS_FOR"); text != "" {
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	if text := os.Getenv("BERTH_CHAOS_SEED"); text != "" {
		seed, err = strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("BERTH_CHAOS_SEED=%d", seed)
	opts := []Option{clustered, with("BERTH_RETENTION", "40s"), with("BERTH_DRAIN", "1s"), with("BERTH_EXPIRY_NOTICE", "1s"), with("BERTH_ORPHAN_GRACE", "1s")}
	if seed%2 == 1 {
		opts = append(opts, restoring)
	}
	c := start(t, opts...)
	x := newChaos(t, c, uint64(seed))
	began := time.Now()
	var before []invariants.Occurrence
	for rounds := 1; time.Since(began) < length; rounds++ {
		x.round(t)
		c.inOrder(t, before)
		before = c.history(t)
		t.Logf("round %d, after %s: %s", rounds, time.Since(began).Round(time.Second), x.compare(t, before))
		if t.Failed() {
			return
		}
	}
}

// chaos is a cluster, those who use it, and what happens to it.
type chaos struct {
	c      *Cluster
	key    string // of the account that claims stacks
	agents []*agent
	owners *owners
	stays  *stays
	dice   *rand.Rand // of the faults
	deaths *rand.Rand // of the points at which servers die
	points []string

	commands []*running
	excuses  map[string][]window // by node

	mu     sync.Mutex
	counts map[string]int // of what was done and answered
}

func newChaos(t *testing.T, c *Cluster, seed uint64) *chaos {
	t.Helper()
	x := &chaos{
		c: c, key: c.on("m1").account(t, "ana@example.com"), owners: c.follow(t), stays: c.watchEngines(t), excuses: map[string][]window{}, points: failpoints(t), counts: map[string]int{},
		dice: rand.New(rand.NewPCG(seed, 1000)), deaths: rand.New(rand.NewPCG(seed, 1001)),
	}
	for i := range chaosAgents {
		x.agents = append(x.agents, &agent{chaos: x, name: fmt.Sprintf("agent%d", i), rand: rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	return x
}

func (x *chaos) count(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts[what]++
}

// round lets the agents work for a while under faults, and leaves a cluster that runs well
// and has answered every create.
func (x *chaos) round(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), chaosRound)
	defer cancel()
	var agents sync.WaitGroup
	for _, a := range x.agents {
		agents.Go(func() {
			for ctx.Err() == nil {
				a.act(t)
				nap(ctx, time.Duration(a.rand.IntN(300))*time.Millisecond)
			}
		})
	}
	for ctx.Err() == nil {
		nap(ctx, time.Duration(1+x.dice.IntN(4))*time.Second)
		x.strike(t, ctx)
	}
	agents.Wait()
	x.excuseDead()
	require.NoError(t, x.c.lab.restore(context.Background()))
	x.disarm(t)
	x.c.mend(t)
	x.activate(t)
	x.endCommands(t)
	for _, a := range x.agents {
		a.settle(t)
	}
}

// compare asserts that the cluster is as those who use it believe, and says what has happened
// so far.
func (x *chaos) compare(t *testing.T, history []invariants.Occurrence) string {
	t.Helper()
	if err := errors.Join(x.owners.check(), x.stays.check(x.owners, x.excused)); err != nil {
		t.Errorf("two nodes had one stack: %v", err)
	}
	made, stacks := 0, map[string]int{}
	for _, a := range x.agents {
		made += len(a.mine)
		for status, n := range a.compare(t, history) {
			stacks[status] += n
		}
	}
	require.Equal(t, strconv.Itoa(made), x.c.sql(t, "SELECT count(*) FROM stacks"), "creates that were answered and stacks")
	moved, taken := x.owners.count()
	x.mu.Lock()
	defer x.mu.Unlock()
	var counts []string
	for _, what := range slices.Sorted(maps.Keys(x.counts)) {
		counts = append(counts, fmt.Sprintf("%s: %d", what, x.counts[what]))
	}
	return fmt.Sprintf("%d events, %d moves, %d takeovers, stacks %v\n%s", len(history), moved, taken, stacks, strings.Join(counts, ", "))
}

// strike lets one or two faults happen at the same time.
func (x *chaos) strike(t *testing.T, ctx context.Context) {
	t.Helper()
	all := []*happening{x.roll()}
	if second := x.roll(); x.dice.IntN(3) == 0 && second.beside(all[0]) {
		all = append(all, second)
	}
	for _, f := range all {
		f.begin(t, x)
		nap(ctx, time.Second)
	}
	for _, f := range all {
		nap(ctx, time.Until(f.until))
		f.end(t, x)
	}
	x.excuseDead()
	for _, h := range x.c.hosts {
		if !h.process.Alive() {
			h.fails = ""
			if x.deaths.IntN(3) == 0 {
				h.fails = x.points[x.deaths.IntN(len(x.points))]
			}
			h.spawn(t)
		}
	}
}

// window is a time in which a node may run what is not its own.
type window struct{ from, to time.Time }

// excuse notes that a node's server stood still with its machine, or was dead, for a time until
// now: it has to notice what was taken from it meanwhile.
func (x *chaos) excuse(h *Host, length time.Duration) {
	now := time.Now()
	x.excuses[h.node.Name] = append(x.excuses[h.node.Name], window{now.Add(-length), now.Add(notice)})
}

func (x *chaos) excuseDead() {
	for _, h := range x.c.hosts {
		if !h.process.Alive() {
			x.excuse(h, time.Since(h.process.EndedAt()))
		}
	}
}

// disarm kills the servers that would still die at a failpoint.
func (x *chaos) disarm(t *testing.T) {
	t.Helper()
	for _, h := range x.c.hosts {
		if h.fails == "" || !h.process.Alive() {
			continue
		}
		_ = h.process.Signal(t.Context(), "KILL") // it may have died by now
		h.wait(t)
		x.excuse(h, 0)
	}
}

// excused reports whether a node may have run at a moment what is not its own.
func (x *chaos) excused(node string, at time.Time) bool {
	return slices.ContainsFunc(x.excuses[node], func(w window) bool { return at.After(w.from) && at.Before(w.to) })
}

// roll returns some fault that may happen.
func (x *chaos) roll() *happening {
	f := calamities[x.dice.IntN(len(calamities))]
	return &happening{
		calamity: f, victim: x.c.hosts[x.dice.IntN(len(x.c.hosts))],
		length: time.Duration(1+x.dice.IntN(f.seconds)) * time.Second,
	}
}

// happening is a fault that happens.
type happening struct {
	calamity calamity
	victim   *Host
	length   time.Duration
	until    time.Time
}

// beside reports whether the fault can happen at the same time as another.
func (h *happening) beside(other *happening) bool {
	first, _, _ := strings.Cut(h.calamity.name, " ")
	return h.victim != other.victim && !strings.HasPrefix(other.calamity.name, first) && !h.needs(other.victim) && !other.needs(h.victim)
}

// needs reports whether the fault is a command that a node runs.
func (h *happening) needs(node *Host) bool {
	return h.calamity.name == "drain" && h.victim.c.after(h.victim) == node
}

func (h *happening) begin(t *testing.T, x *chaos) {
	t.Helper()
	t.Logf("%s: %s on %s for %s", time.Now().Format(time.TimeOnly), h.calamity.name, h.victim.node.Name, h.length)
	x.count("fault " + h.calamity.name)
	h.until = time.Now().Add(h.length)
	if err := h.calamity.begin(x, h.victim); err != nil {
		t.Errorf("%s on %s: %v", h.calamity.name, h.victim.node.Name, err)
	}
}

func (h *happening) end(t *testing.T, x *chaos) {
	t.Helper()
	if err := h.calamity.end(x, h.victim); err != nil {
		t.Errorf("the end of %s on %s: %v", h.calamity.name, h.victim.node.Name, err)
	}
	if h.calamity.name == "node frozen" {
		x.excuse(h.victim, time.Since(h.until.Add(-h.length)))
	}
}

// activate lets every node have stacks again.
func (x *chaos) activate(t *testing.T) {
	t.Helper()
	for name, m := range x.c.hosts[0].members(t) {
		if m.Availability != "active" {
			x.c.hosts[0].berthd(t, "nodes", "activate", name)
		}
	}
}
