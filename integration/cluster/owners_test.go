package cluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"
)

// owners is who has owned each stack, as its row said again and again.
type owners struct {
	mu     sync.Mutex
	reigns map[string][]reign // by stack
	asked  map[string]time.Time
	faults []string          // rows that must not be
	nodes  map[string]string // their names, by the volume that has all of their engine
	ids    map[string]string // their names, by id
}

// reign is a time in which one node owned a stack.
type reign struct {
	node      string
	epoch     int64
	after, by time.Time // it began between these
	lease     time.Time // when the node's lease was to end, as it said last
}

// lookAround is how often the rows are read.
const lookAround = 100 * time.Millisecond

// follow reads who owns which stack until the test ends.
func (c *Cluster) follow(t *testing.T) *owners {
	t.Helper()
	o := &owners{reigns: map[string][]reign{}, asked: map[string]time.Time{}, nodes: map[string]string{}, ids: map[string]string{}}
	for _, h := range c.hosts {
		o.ids[h.id(t)] = h.node.Name
		o.nodes[h.node.volume(t)] = h.node.Name
	}
	db, err := sql.Open("pgx", postgresURL(c.lab.Postgres.Address.String(), c.hosts[0].database))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			o.read(ctx, db)
			nap(ctx, lookAround)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = db.Close()
	})
	return o
}

// volume returns the name of the volume that has all of the node's engine.
func (n *Node) volume(t *testing.T) string {
	t.Helper()
	now, err := n.lab.docker.ContainerInspect(t.Context(), n.Machine.id)
	require.NoError(t, err)
	for _, m := range now.Mounts {
		if m.Destination == "/var/lib/docker" {
			return m.Name
		}
	}
	t.Fatalf("%s keeps its engine in none of %v", n.Name, []container.MountPoint(now.Mounts))
	return ""
}

// read reads the rows once. While the database does not answer, nothing can change.
func (o *owners) read(ctx context.Context, db *sql.DB) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	asked := time.Now()
	rows, err := db.QueryContext(ctx, "SELECT s.id, s.node, s.epoch, n.lease_until FROM stacks s JOIN nodes n ON n.id = s.node")
	if err != nil {
		return
	}
	defer rows.Close()
	for rows.Next() {
		var st, node string
		var epoch, lease int64
		if rows.Scan(&st, &node, &epoch, &lease) != nil {
			return
		}
		o.note(st, reign{node: o.ids[node], epoch: epoch, after: asked, by: time.Now(), lease: time.UnixMicro(lease)})
	}
}

// note notes what a row said that was asked for at r.after and had come at r.by.
func (o *owners) note(st string, r reign) {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := r.after
	if err := o.follows(st, r); err != nil {
		o.faults = append(o.faults, err.Error())
	}
	if all := o.reigns[st]; len(all) > 0 && all[len(all)-1].epoch == r.epoch {
		all[len(all)-1].lease = r.lease
	} else {
		r.after = o.asked[st]
		o.reigns[st] = append(all, r)
	}
	o.asked[st] = asked
}

// follows returns an error if a row goes back to an earlier epoch, or names two nodes in one.
func (o *owners) follows(st string, r reign) error {
	all := o.reigns[st]
	if len(all) == 0 {
		return nil
	}
	before := all[len(all)-1]
	if r.epoch < before.epoch || r.epoch == before.epoch && r.node != before.node {
		return fmt.Errorf("stack %s is %s's in epoch %d after it was %s's in epoch %d", st, r.node, r.epoch, before.node, before.epoch)
	}
	return nil
}

// check returns an error if a row was seen that must not be.
func (o *owners) check() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.faults) > 0 {
		return errors.New(strings.Join(o.faults, "\n"))
	}
	return nil
}

// of returns the times of a stack's owners.
func (o *owners) of(st string) []reign {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]reign(nil), o.reigns[st]...)
}

// mayServe reports whether a node may have owned a stack at a moment between two times.
func (o *owners) mayServe(st, node string, begun, ended time.Time) bool {
	all := o.of(st)
	if len(all) == 0 || ended.Before(all[0].by) {
		return true // the row has not been seen yet
	}
	for i, r := range all {
		over := ended
		if i+1 < len(all) {
			over = all[i+1].by
		}
		if r.node == node && !r.after.After(ended) && !over.Before(begun) {
			return true
		}
		unseen := i > 0 && r.epoch > all[i-1].epoch+1
		if unseen && !r.after.After(ended) && !r.by.Before(begun) {
			return true
		}
	}
	return false
}

// taken returns the changes of a stack's owner after the lease of the one before had ended:
// takeovers. The others are moves.
func (o *owners) taken(st string) (from []reign) {
	all := o.of(st)
	for i := 1; i < len(all); i++ {
		if all[i-1].lease.Before(all[i].by) {
			from = append(from, all[i-1])
		}
	}
	return from
}

// count returns how often stacks were moved and taken so far.
func (o *owners) count() (moved, taken int) {
	o.mu.Lock()
	var ids []string
	for id, all := range o.reigns {
		moved += len(all) - 1
		ids = append(ids, id)
	}
	o.mu.Unlock()
	for _, id := range ids {
		taken += len(o.taken(id))
	}
	return moved - taken, taken
}

// node returns the name of the node on which a process runs that has answered, "" for none.
func (o *owners) node(process string) string {
	for volume, name := range o.nodes {
		if strings.Contains(process, volume) {
			return name
		}
	}
	return ""
}
