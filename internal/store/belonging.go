package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/berth-host/berth/internal/pause"
)

// Source is what Copying.Decide knows of a database that is to be copied.
type Source struct {
	Name         string // without a password
	Installation Installation
	Known        bool // the installation; a file of SQLite may have none
	Owners       []Owner
}

// Owner is a node that owns stacks, "" for one machine.
type Owner struct {
	Node, Name string // Name is "" if the node has no row
	Stacks     int    // that are not deleted
	First      string // the id of one of them
}

// Belonging is whom the copy of a database belongs to.
type Belonging struct {
	Before       string // node that had all stacks at the source
	Node         string // node that has them now, "" for one machine
	Installation *Installation
}

// describe returns what Decide is asked with.
func (s *Store) describe(ctx context.Context) (source Source, err error) {
	source.Name = s.Name()
	if source.Installation, source.Known, err = s.Installation(ctx); err != nil {
		return Source{}, err
	}
	source.Owners, err = readAll(ctx, s, s.read, "read the owners of stacks", func(o *Owner) []any {
		return []any{&o.Node, &o.Name, &o.Stacks, &o.First}
	}, `SELECT k.node, coalesce(max(n.name), ''), count(*), min(k.id) FROM stacks k LEFT JOIN nodes n ON n.id = k.node
		WHERE k.status <> 'deleted' GROUP BY k.node ORDER BY k.node`)
	return source, err
}

// leaseLook is how often awaitLeases looks.
const leaseLook = 500 * time.Millisecond

// awaitLeases waits until the leases of all nodes are over, as that of a node is soon after its
// server was stopped. It refuses once a node renews its lease: after PostgreSQL has been
// restarted, a server that has written nothing since does not hold the lock of the servers.
func (s *Store) awaitLeases(ctx context.Context) error {
	until := map[string]time.Time{}
	for {
		nodes, err := s.Nodes(ctx)
		if err != nil {
			return err
		}
		var wait time.Duration
		for _, n := range nodes {
			if !n.LeaseUntil.After(n.Now) {
				continue
			}
			if before, seen := until[n.ID]; seen && n.LeaseUntil.After(before) {
				return fmt.Errorf("a server runs on node %s and uses %s; stop it and run this again", n.Name, s.Name())
			}
			until[n.ID] = n.LeaseUntil
			wait = max(wait, n.LeaseUntil.Sub(n.Now))
		}
		if wait == 0 {
			return nil
		}
		if !pause.For(ctx, min(wait, leaseLook)) {
			return ctx.Err()
		}
	}
}

// give makes rows that were copied those of one node: its stacks, and the events that it owes.
// No other node is left, nor what one may still have of a stack or is asked to do.
func (s *Store) give(ctx context.Context, tx *sql.Tx, to Belonging) error {
	epoch := 0
	if to.Node != "" {
		epoch = 1
	}
	for _, step := range []struct {
		query string
		args  []any
	}{
		// What other nodes owe are the last events of stacks that they deleted.
		{`DELETE FROM webhook_owed WHERE node <> (SELECT node FROM stacks WHERE id = stack_id)`, nil},
		{`INSERT INTO webhook_owed (node, stack_id, after_id, up_to_id)
			SELECT k.node, k.id, m.event_id, (SELECT coalesce(max(id), 0) FROM events)
			FROM stacks k JOIN webhook_mark m ON m.node = k.node WHERE k.node <> ? AND k.webhook <> ''
			ON CONFLICT (node, stack_id) DO NOTHING`, []any{to.Before}},
		{`UPDATE webhook_owed SET node = ?`, []any{to.Node}},
		{`DELETE FROM webhook_mark WHERE node <> ?`, []any{to.Before}},
		{`UPDATE webhook_mark SET node = ?`, []any{to.Node}},
		{`UPDATE stacks SET node = ?, epoch = ?`, []any{to.Node, epoch}},
		{`DELETE FROM remains`, nil},
		{`DELETE FROM moves`, nil},
		{`DELETE FROM certificate_locks`, nil},
		{`DELETE FROM nodes`, nil},
		{`DELETE FROM installation`, nil},
	} {
		if err := s.exec(ctx, tx, "give the copy an owner", step.query, step.args...); err != nil {
			return err
		}
	}
	if to.Installation == nil {
		return nil
	}
	return s.insertInstallation(ctx, tx, *to.Installation)
}
