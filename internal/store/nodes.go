package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Node is a machine of the cluster as its row has it. Times are of the database's clock.
type Node struct {
	ID, Name string
	Address  string // host:port for other nodes
	Version  string // of its server
	Holder   string // which data directory of the machine has the lease

	LeaseUntil time.Time
	Load       Load

	Word   Word
	WordAt time.Time // when a manager said so; zero if none has
	SeenAt time.Time // when the server of a manager was last in contact with the node's; zero if never

	LostAt   time.Time // when an operator gave the node up; zero if none has
	Draining bool      // an operator wants its stacks moved

	Now time.Time // when the row was read
}

// Load is what a node has to do and room for, as it last said.
type Load struct {
	Stacks int   // that it owns
	Builds int   // that run or wait
	Room   int64 // free bytes on its fullest disk; cluster.NoRoom while it takes no new stacks

	Empty []string // stacks that serve and have no data
}

// Word is what a manager of Swarm says about a node.
type Word struct {
	ID           string
	State        string // as Swarm calls it, such as ready and down; Gone if Swarm does not know the node
	Availability string // active, pause or drain
	Labels       map[string]string
	Manager      bool
}

// Gone is the state of a node that has left the swarm or was removed from it.
const Gone = "gone"

// Lease is a lease that a node has just taken or renewed.
type Lease struct {
	At   time.Time // by the database's clock
	Over time.Time // when the lease before ended, if it was over for a while; zero if it was not
}

// ErrLeaseTaken means that another server of the same node has the lease.
var ErrLeaseTaken = errors.New("another berthd runs for the same node")

// ErrNodeReady means that a node cannot be given up or removed while it has its lease.
var ErrNodeReady = errors.New("the node has its lease")

// ErrNoNode means that the node does not exist.
var ErrNoNode = errors.New("there is no such node")

const nodeColumns = `id, name, address, version, holder, lease_until, stacks, builds, room, empty,
	word_state, availability, labels, manager, word_at, seen_at, lost_at, draining`

func (n *Node) places() []any {
	return []any{
		&n.ID, &n.Name, &n.Address, &n.Version, &n.Holder, (*micros)(&n.LeaseUntil), &n.Load.Stacks, &n.Load.Builds, &n.Load.Room, &plainJSON{&n.Load.Empty},
		&n.Word.State, &n.Word.Availability, &plainJSON{&n.Word.Labels}, &n.Word.Manager, (*micros)(&n.WordAt), (*micros)(&n.SeenAt), (*micros)(&n.LostAt), &n.Draining,
		(*micros)(&n.Now),
	}
}

// Nodes returns all nodes, by name.
func (s *Store) Nodes(ctx context.Context) ([]Node, error) {
	nodes, err := readAll(ctx, s, s.read, "read nodes", (*Node).places,
		"SELECT "+nodeColumns+", "+s.dialect.clock()+" FROM nodes ORDER BY name, id")
	for i := range nodes {
		nodes[i].Word.ID = nodes[i].ID
	}
	return nodes, err
}

// CountByNode returns how many stacks each node owns. Deleted ones do not count.
func (s *Store) CountByNode(ctx context.Context) (map[string]int, error) {
	type count struct {
		node string
		n    int
	}
	all, err := readAll(ctx, s, s.read, "count stacks of nodes", func(c *count) []any { return []any{&c.node, &c.n} },
		"SELECT node, count(*) FROM stacks WHERE status <> 'deleted' GROUP BY node")
	counts := map[string]int{}
	for _, c := range all {
		counts[c.node] = c.n
	}
	return counts, err
}

// Now returns the time of the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, _, err := readOne(ctx, s, s.read, "read the clock", func(t *time.Time) []any { return []any{(*micros)(t)} }, "SELECT "+s.dialect.clock())
	return now, err
}

// RegisterNode makes the node known with a lease, or takes its lease again. It forgets which
// stacks had no data and what room there was: that was seen by an earlier server, and does not
// hold for the new lease. It returns ErrLeaseTaken while a server with another Holder has the
// lease.
func (s *Store) RegisterNode(ctx context.Context, n Node, lease time.Duration) (Lease, error) {
	found, ok, err := readOne(ctx, s, s.beside, "register node "+n.ID, (*Lease).places,
		`INSERT INTO nodes (id, name, address, version, holder, registered_at, renewed_at, lease_until)
		SELECT CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), t, t, t + CAST(? AS BIGINT)
		FROM (SELECT `+s.dialect.clock()+` AS t) AS clock WHERE true
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, address = excluded.address, version = excluded.version, holder = excluded.holder,
			registered_at = excluded.registered_at, lost_at = NULL, room = excluded.room, empty = excluded.empty, `+renewal("excluded.renewed_at", "excluded.lease_until")+`
		WHERE nodes.holder = excluded.holder OR nodes.lease_until <= excluded.renewed_at
		RETURNING renewed_at, lapsed_at`,
		n.ID, n.Name, n.Address, n.Version, n.Holder, lease.Microseconds())
	if err == nil && !ok {
		err = fmt.Errorf("node %s: %w", n.Name, ErrLeaseTaken)
	}
	return found, err
}

// RenewLease renews the lease of a node, says what it has to do, and forgets that the node was
// lost. A lease that was over is taken again, and the result says so. It returns ErrLeaseTaken
// if a server with another Holder has registered since. It does not wait for transactions of
// other stores.
func (s *Store) RenewLease(ctx context.Context, n Node, lease time.Duration) (Lease, error) {
	found, ok, err := readOne(ctx, s, s.beside, "renew the lease of node "+n.ID, (*Lease).places,
		`UPDATE nodes SET lost_at = NULL, builds = ?, room = ?, empty = ?,
			stacks = (SELECT count(*) FROM stacks WHERE stacks.node = nodes.id AND status <> 'deleted'), `+renewal("clock.t", "clock.t + CAST(? AS BIGINT)")+`
		FROM (SELECT `+s.dialect.clock()+` AS t) AS clock WHERE id = ? AND holder = ?
		RETURNING renewed_at, lapsed_at`,
		n.Load.Builds, n.Load.Room, plainJSON{n.Load.Empty}, lease.Microseconds(), n.ID, n.Holder)
	if err == nil && !ok {
		err = fmt.Errorf("node %s: %w", n.Name, ErrLeaseTaken)
	}
	return found, err
}

// renewal is the part of an UPDATE that makes a lease hold until a time. What it compares is
// the row as it was.
func renewal(now, until string) string {
	return `renewed_at = ` + now + `, lease_until = ` + until + `,
		lapsed_at = CASE WHEN nodes.lease_until <= ` + now + ` THEN nodes.lease_until END`
}

func (l *Lease) places() []any { return []any{(*micros)(&l.At), (*micros)(&l.Over)} }

// TakeWord records what a manager says about a node, unless another one said so less than
// every ago. A node that has not registered is ignored.
func (s *Store) TakeWord(ctx context.Context, w Word, every time.Duration) error {
	return s.exec(ctx, s.beside, "take Swarm's word about node "+w.ID, `UPDATE nodes SET word_state = ?, availability = ?, labels = ?, manager = ?, word_at = clock.t
		FROM (SELECT `+s.dialect.clock()+` AS t) AS clock
		WHERE id = ? AND (word_at IS NULL OR word_at <= clock.t - CAST(? AS BIGINT) OR word_state <> ? OR availability <> ? OR labels <> ?)`,
		w.State, w.Availability, plainJSON{w.Labels}, w.Manager, w.ID, every.Microseconds(), w.State, w.Availability, plainJSON{w.Labels})
}

// SawNode records that the server of a manager was in contact with that of a node, some time
// ago.
func (s *Store) SawNode(ctx context.Context, id string, ago time.Duration) error {
	return s.exec(ctx, s.beside, "note contact with node "+id, `UPDATE nodes SET seen_at = clock.t - CAST(? AS BIGINT)
		FROM (SELECT `+s.dialect.clock()+` AS t) AS clock WHERE id = ? AND (seen_at IS NULL OR seen_at < clock.t - CAST(? AS BIGINT))`,
		ago.Microseconds(), id, ago.Microseconds())
}

// LoseNode records that an operator gives a node up. It returns ErrNodeReady while the node
// has its lease.
func (s *Store) LoseNode(ctx context.Context, id string) error {
	return s.changeAway(ctx, "give up node "+id, "UPDATE nodes SET lost_at = clock.t FROM (SELECT "+s.dialect.clock()+" AS t) AS clock WHERE id = ? AND lease_until <= clock.t RETURNING id", id)
}

// DrainNode records whether an operator wants the stacks of a node moved.
func (s *Store) DrainNode(ctx context.Context, id string, drain bool) error {
	_, ok, err := readOne(ctx, s, s.beside, "drain node "+id, onlyPlace[string], "UPDATE nodes SET draining = ? WHERE id = ? RETURNING id", drain, id)
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w", id, ErrNoNode)
	}
	return err
}

// RemoveNode forgets a node that has left: its lease is over and it owns no stacks. It returns
// ErrNodeReady for any other.
func (s *Store) RemoveNode(ctx context.Context, id string) error {
	return s.changeAway(ctx, "remove node "+id, `DELETE FROM nodes WHERE id = ? AND lease_until <= `+s.dialect.clock()+`
		AND NOT EXISTS (SELECT 1 FROM stacks WHERE stacks.node = nodes.id AND status <> 'deleted') RETURNING id`, id)
}

// changeAway runs a statement that finds a node's row only while its lease is over.
func (s *Store) changeAway(ctx context.Context, doing, query, id string) error {
	_, ok, err := readOne(ctx, s, s.beside, doing, onlyPlace[string], query, id)
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w", id, ErrNodeReady)
	}
	return err
}

// Installation is whom a database belongs to.
type Installation struct {
	ID         string // on every object of the engines
	KeyPrint   string // fingerprint of the key
	BaseURL    string
	AppsDomain string
	Cluster    string // BERTH_CLUSTER
	Swarm      string // id of the swarm; "" while no manager has started
}

// Installation returns whom the database belongs to, unless it belongs to nobody yet.
func (s *Store) Installation(ctx context.Context) (found Installation, known bool, err error) {
	return s.installation(ctx, s.read)
}

func (s *Store) installation(ctx context.Context, q querier) (Installation, bool, error) {
	return readOne(ctx, s, q, "read the installation", (*Installation).places,
		"SELECT id, key_print, base_url, apps_domain, cluster, swarm FROM installation")
}

// Install returns the installation of the database, and makes it want if there is none.
func (s *Store) Install(ctx context.Context, want Installation) (found Installation, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		known := false
		found, known, err = s.installation(ctx, tx)
		if err != nil || known {
			return err
		}
		found = want
		return s.insertInstallation(ctx, tx, want)
	})
	return found, err
}

func (s *Store) insertInstallation(ctx context.Context, tx *sql.Tx, i Installation) error {
	return s.exec(ctx, tx, "make the installation", `INSERT INTO installation (one, id, key_print, base_url, apps_domain, cluster, swarm, made_at)
		VALUES (1, ?, ?, ?, ?, ?, ?, ?)`, i.ID, i.KeyPrint, i.BaseURL, i.AppsDomain, i.Cluster, i.Swarm, micros(stack.Now()))
}

// SetSwarm records the swarm of an installation that has none.
func (s *Store) SetSwarm(ctx context.Context, id string) error {
	return s.exec(ctx, s.write, "record the swarm", "UPDATE installation SET swarm = ? WHERE swarm = ''", id)
}

func (i *Installation) places() []any {
	return []any{&i.ID, &i.KeyPrint, &i.BaseURL, &i.AppsDomain, &i.Cluster, &i.Swarm}
}
