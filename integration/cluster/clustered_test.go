package cluster

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/invariants"
)

const (
	// lease and grace are those of the nodes in these tests.
	lease = 3 * time.Second
	grace = 8 * time.Second
)

// clustered makes the servers one cluster: one database, Redis, registry and key.
func clustered(c *Cluster) {
	c.clustered = true
	c.env["BERTH_CLUSTER"] = "swarm"
	c.env["BERTH_KEY_FILE"] = c.keyFile()
	c.env["BERTH_NODE_GRACE"] = grace.String()
	c.env["BERTH_NODE_LEASE"] = lease.String()
	c.env["BERTH_REGISTRY"] = fmt.Sprintf("http://registry:5000/t%d", c.number)
	for _, h := range c.hosts {
		h.database = fmt.Sprintf("cluster_%d", c.number)
		h.env["BERTH_DATABASE_URL"] = postgresURL("postgres", h.database)
	}
}

// steady gives nodes that no test takes away a lease which they renew in time also on a busy
// machine. It comes after clustered. A node may take 4 s to know another that has just started.
func steady(c *Cluster) {
	c.env["BERTH_NODE_GRACE"] = "60s"
	c.env["BERTH_NODE_LEASE"] = "12s"
}

func (c *Cluster) keyFile() string { return c.dir + ".key" }

// shareKey gives every node the key of the installation.
func (c *Cluster) shareKey(t *testing.T) {
	t.Helper()
	for _, h := range c.hosts {
		_, err := h.node.Machine.Run(t.Context(), strings.Repeat("k", 32), "sh", "-c", `mkdir -p "$1" && umask 077 && cat >"$0"`, c.keyFile(), path.Dir(c.dir))
		require.NoError(t, err)
	}
}

// owner returns the server of the node that has a stack.
func (c *Cluster) owner(t *testing.T, st *Stack) *Host {
	t.Helper()
	id, err := c.lab.Postgres.SQL(t.Context(), c.hosts[0].database, "SELECT node FROM stacks WHERE id = '"+st.ID+"'")
	require.NoError(t, err)
	for _, h := range c.hosts {
		if h.id(t) == strings.TrimSpace(id) {
			return h
		}
	}
	t.Fatalf("stack %s is on no node of the lab but on %q", st.ID, id)
	return nil
}

// others returns the servers of the nodes that do not have a stack.
func (c *Cluster) others(t *testing.T, st *Stack) []*Host {
	t.Helper()
	owner := c.owner(t, st)
	var all []*Host
	for _, h := range c.hosts {
		if h != owner {
			all = append(all, h)
		}
	}
	return all
}

// id returns the id of the node in the swarm.
func (h *Host) id(t *testing.T) string {
	t.Helper()
	if h.node.swarmID == "" {
		info, err := h.node.Engine.Info(t.Context())
		require.NoError(t, err)
		h.node.swarmID = info.Swarm.NodeID
	}
	return h.node.swarmID
}

// member is a node as berthd nodes --json shows it.
type member struct {
	ID, Name, Address, State, Availability, Version string

	Stacks int
}

// members returns the nodes by name, as this node sees them.
func (h *Host) members(t *testing.T) map[string]member {
	t.Helper()
	var all []member
	require.NoError(t, json.Unmarshal([]byte(h.berthd(t, "nodes", "--json")), &all))
	byName := map[string]member{}
	for _, m := range all {
		byName[m.Name] = m
	}
	return byName
}

// awaitState waits until this node sees another one in a state, and returns how long that
// took.
func (h *Host) awaitState(t *testing.T, node *Host, state string) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, node.node.Name+" is "+state, func() error {
		return same(state, h.members(t)[node.node.Name].State)
	})
	return time.Since(began)
}

// setAvailability makes Swarm say something of nodes.
func (c *Cluster) setAvailability(t *testing.T, a swarm.NodeAvailability, hosts ...*Host) {
	t.Helper()
	manager := c.on("m1").node.Engine
	for _, h := range hosts {
		node, _, err := manager.NodeInspectWithRaw(context.Background(), h.id(t))
		require.NoError(t, err)
		node.Spec.Availability = a
		require.NoError(t, manager.NodeUpdate(context.Background(), node.ID, node.Version, node.Spec))
	}
}

// avail is setAvailability, and waits until the cluster knows.
func (c *Cluster) avail(t *testing.T, a swarm.NodeAvailability, hosts ...*Host) {
	t.Helper()
	c.setAvailability(t, a, hosts...)
	for _, h := range hosts {
		eventually(t, h.node.Name+" is on "+string(a), func() error {
			return same(string(a), c.on("m1").members(t)[h.node.Name].Availability)
		})
	}
	time.Sleep(lease) // the servers read it when they renew their leases
}

// sql reads from the database of the cluster.
func (c *Cluster) sql(t *testing.T, statement string) string {
	t.Helper()
	text, err := c.lab.Postgres.SQL(context.Background(), c.hosts[0].database, statement)
	require.NoError(t, err)
	return strings.TrimSpace(text)
}

// liveOn creates a stack that must come up, on a node.
func (c *Cluster) liveOn(t *testing.T, owner *Host, tree Tree, manifest string) *Stack {
	t.Helper()
	for range 10 {
		st := owner.live(t, tree, manifest)
		if c.owner(t, st) == owner {
			return st
		}
		// Another one had more room.
		require.Equal(t, http.StatusOK, owner.delete(t, st).status)
	}
	t.Fatalf("no stack comes to %s", owner.node.Name)
	return nil
}

// history reads every event of the cluster, in order.
func (c *Cluster) history(t *testing.T) []invariants.Occurrence { return c.hosts[0].history(t) }

// inOrder asserts that every node has exactly what the rows of its own stacks imply, besides
// the data that it keeps since others took its stacks, and that docs/api.md allows the history
// since before.
func (c *Cluster) inOrder(t *testing.T, before []invariants.Occurrence) {
	t.Helper()
	var rows []invariants.Row
	var now []invariants.Occurrence
	eventually(t, "everything is as the rows say", func() (err error) {
		if rows, err = invariants.Rows(t.Context(), c.hosts[0].query); err != nil {
			return err
		}
		marked, err := c.marked(t.Context())
		if err != nil {
			return err
		}
		now = c.history(t)
		var errs []error
		for _, h := range c.hosts {
			there, err := h.inventory(t.Context())
			errs = append(errs, err)
			for st, volumes := range marked[h.id(t)] {
				there[st] = slices.DeleteFunc(there[st], func(name string) bool { return slices.Contains(volumes, volumeOf(st, name)) })
			}
			own := slices.DeleteFunc(slices.Clone(rows), func(r invariants.Row) bool { return r.Node != h.id(t) })
			if err := invariants.Compare(own, there); err != nil {
				errs = append(errs, fmt.Errorf("on %s: %w", h.node.Name, err))
			}
		}
		after, err := invariants.Rows(t.Context(), c.hosts[0].query)
		if err == nil && !reflect.DeepEqual(rows, after) {
			err = errors.New("a stack has changed meanwhile")
		}
		return errors.Join(append(errs, err)...)
	})
	require.GreaterOrEqual(t, len(now), len(before), "events are lost")
	require.Equal(t, before, append([]invariants.Occurrence(nil), now[:len(before)]...), "recorded events have changed")
	require.NoError(t, invariants.Follow(now, rows))
}

// marked returns the volumes that nodes keep since others took their stacks, by the ids of the
// node and the stack.
func (c *Cluster) marked(ctx context.Context) (map[string]map[string][]string, error) {
	all := map[string]map[string][]string{}
	err := c.hosts[0].query(ctx, `SELECT r.node, r.stack_id, r.volumes FROM remains r JOIN stacks s ON s.id = r.stack_id
		WHERE s.status <> 'deleted' AND s.node <> r.node AND r.volumes <> 'null'`, func(rows *sql.Rows) error {
		var node, st string
		var text []byte
		if err := rows.Scan(&node, &st, &text); err != nil {
			return err
		}
		if all[node] == nil {
			all[node] = map[string][]string{}
		}
		var volumes []string
		err := json.Unmarshal(text, &volumes)
		all[node][st] = volumes
		return err
	})
	return all, err
}

// volumeOf returns the name that the engine has for a volume of a stack as inventory names it.
func volumeOf(st, name string) string {
	return "berth-" + strings.TrimPrefix(st, "stk_") + "-" + strings.TrimPrefix(name, "volume ")
}

// awaitPushed waits until the registry has some tags of a stack.
func (c *Cluster) awaitPushed(t *testing.T, st *Stack, tags int) {
	t.Helper()
	eventually(t, "the stack is in the registry", func() error {
		has := c.tags(t, st)
		isFiles := func(tag string) bool { return strings.HasPrefix(tag, "files-") } // which come last
		if len(has) < tags || !slices.ContainsFunc(has, isFiles) {
			return fmt.Errorf("it has %q", has)
		}
		return nil
	})
}

// saysEmpty waits until the lease of a node says that one of its stacks has no data, and of others
// does not say so.
func (c *Cluster) saysEmpty(t *testing.T, empty *Stack, full ...*Stack) {
	t.Helper()
	eventually(t, "the lease says which stacks have no data", func() error {
		said := c.sql(t, "SELECT empty FROM nodes JOIN stacks ON stacks.node = nodes.id WHERE stacks.id = '"+empty.ID+"'")
		if !strings.Contains(said, empty.ID) || slices.ContainsFunc(full, func(st *Stack) bool { return strings.Contains(said, st.ID) }) {
			return fmt.Errorf("it says %s", said)
		}
		return nil
	})
}

// tags returns what the registry has of a stack.
func (c *Cluster) tags(t *testing.T, st *Stack) []string {
	t.Helper()
	res, err := http.Get(fmt.Sprintf("http://%s:5000/v2/t%d/stacks/%s/tags/list", c.lab.Registry.Address, c.number, strings.TrimPrefix(st.ID, "stk_")))
	require.NoError(t, err)
	defer res.Body.Close()
	var list struct{ Tags []string }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&list))
	return list.Tags
}

// serves waits until a service answers a text through a node.
func (h *Host) serves(t *testing.T, url, want string) {
	t.Helper()
	eventually(t, url+" answers through "+h.node.Name, func() error { return same(want, h.get(t, url).String()) })
}

// pressure asks for an address all the time, through some nodes.
type pressure struct {
	stopped chan struct{}
	all     sync.WaitGroup

	mu      sync.Mutex
	n       int
	longest time.Duration // of an answer
	lost    []string      // what was answered but 200
}

// press begins to ask for an address through some nodes.
func press(t *testing.T, url string, hosts ...*Host) *pressure {
	t.Helper()
	p := &pressure{stopped: make(chan struct{})}
	for _, h := range hosts {
		p.all.Go(func() { p.ask(t, h, url) })
	}
	t.Cleanup(func() { p.end() })
	return p
}

func (p *pressure) ask(t *testing.T, h *Host, url string) {
	for {
		select {
		case <-p.stopped:
			return
		default:
		}
		began := time.Now()
		r := h.get(t, url)
		took := time.Since(began)
		p.mu.Lock()
		p.n++
		p.longest = max(p.longest, took)
		if r.status != http.StatusOK {
			p.lost = append(p.lost, fmt.Sprintf("%s after %s at %s: %.200s", h.node.Name, took, began.Format(time.TimeOnly), r))
		}
		p.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}

// end stops the requests.
func (p *pressure) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stopped:
		return
	default:
		close(p.stopped)
	}
	p.mu.Unlock()
	p.all.Wait()
	p.mu.Lock()
}

// lostNone stops the requests and asserts that each was answered.
func (p *pressure) lostNone(t *testing.T) {
	t.Helper()
	p.end()
	require.Empty(t, p.lost, "%d requests", p.n)
	require.Positive(t, p.n)
	t.Logf("%d requests, the longest took %s", p.n, p.longest.Round(time.Millisecond))
}
