package server

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"
)

// The values of BERTH_CLUSTER.
const (
	clusterOff   = "off"
	clusterSwarm = "swarm"
)

// The values of BERTH_NODE_LOST.
const (
	lostWait    = "wait"
	lostRestore = "restore"
)

// leastSnapshots is the shortest time between two snapshots of a stack, which is paused for up
// to 2 s for each.
const leastSnapshots = 5 * time.Second

// leastLease is the shortest lease of a node: it is renewed three times in that time. With one
// longer than emptyLease, no stack is known for long enough to have no data.
const (
	leastLease = time.Second
	emptyLease = 7 * time.Second
)

// isolatedStop returns how long programs get to end on a node that is cut off. Others may take
// their stacks a lease after it has noticed.
func (c *Config) isolatedStop() time.Duration { return c.NodeLease / 2 }

// cluster returns the settings of a server that is one of several nodes.
func (c *Config) cluster() []Setting {
	return []Setting{
		{"BERTH_CLUSTER", clusterOff, "off for one machine, or swarm for one of several nodes, whose engines are in one swarm", into(&c.Cluster, parseCluster)},
		{"BERTH_KEY_FILE", "", "key of the installation, a file of 32 bytes with mode 0600, the same on all nodes; when empty, key in the data directory", into(&c.KeyFile, parseText)},
		{"BERTH_NODE_LEASE", "6s", "time for which a node counts as ready after it was last heard of; it renews its lease three times as often", into(&c.NodeLease, parseDuration)},
		{"BERTH_NODE_GRACE", "60s", "how long the lease of a node must have been over before it can be lost", into(&c.NodeGrace, parseDuration)},
		{"BERTH_NODE_LOST", lostWait, "what becomes of stacks with data whose node is lost: wait until it is back, or restore them elsewhere from their last snapshots", into(&c.NodeLost, parseNodeLost)},
		{"BERTH_SNAPSHOT_EVERY", "", "how often the data of each stack that runs is copied to the registry, if it has changed; when empty, never", into(&c.SnapshotEvery, optional(parseDuration))},
		{"BERTH_PEER_LISTEN", ":8443", "address of this node for other nodes", into(&c.PeerListen, parsePeerListen)},
		{"BERTH_PEER_CERT", "", "PEM certificate of this node, whose common name is the node's id; when empty, that of Swarm. Reloaded when it changes", into(&c.PeerCert, parseText)},
		{"BERTH_PEER_KEY", "", "PEM private key of the node's certificate", into(&c.PeerKey, parseText)},
		{"BERTH_PEER_CA", "", "PEM bundle of the authority that signs the nodes' certificates", into(&c.PeerCA, parseText)},
	}
}

func parseCluster(value string) (string, error) {
	if value != clusterOff && value != clusterSwarm {
		return "", errors.New("write off or swarm")
	}
	return value, nil
}

func parseNodeLost(value string) (string, error) {
	if value != lostWait && value != lostRestore {
		return "", errors.New("write wait or restore")
	}
	return value, nil
}

func parsePeerListen(value string) (string, error) {
	if _, port, err := net.SplitHostPort(value); err != nil || port == "" || port == "0" {
		return "", errors.New("not an address with a port; write one like :8443 or 10.0.0.5:8443")
	}
	return value, nil
}

// InCluster reports whether this server is one of several nodes.
func (c *Config) InCluster() bool { return c.Cluster == clusterSwarm }

// checkCluster refuses what a cluster cannot do without or with.
func (c *Config) checkCluster() error {
	files := 0
	for _, path := range []string{c.PeerCert, c.PeerKey, c.PeerCA} {
		if path != "" {
			files++
		}
	}
	switch {
	case files != 0 && files != 3:
		return errors.New("BERTH_PEER_CERT, BERTH_PEER_KEY and BERTH_PEER_CA belong together; set all three, or none to use Swarm's certificates")
	case !c.InCluster() && c.SnapshotEvery != 0:
		return errors.New("BERTH_SNAPSHOT_EVERY needs BERTH_CLUSTER=swarm, since snapshots are for other nodes; remove it on one machine")
	case !c.InCluster() && c.NodeLost == lostRestore:
		return errors.New("BERTH_NODE_LOST=restore needs BERTH_CLUSTER=swarm, since other nodes restore; remove it on one machine")
	case !c.InCluster():
		return nil
	case !isPostgres(c.DatabaseURL):
		return errors.New("BERTH_CLUSTER=swarm needs PostgreSQL, which all nodes share; set BERTH_DATABASE_URL to postgres://…")
	case c.RedisURL == "embedded":
		return errors.New("BERTH_CLUSTER=swarm needs a Redis that all nodes share; set BERTH_REDIS_URL to redis://… or rediss://…")
	case c.KeyFile == "":
		return errors.New("BERTH_CLUSTER=swarm needs BERTH_KEY_FILE, the same 32 bytes on all nodes; make them once with: head -c 32 /dev/urandom")
	case c.NodeLease < leastLease:
		return fmt.Errorf("BERTH_NODE_LEASE (%s) is below %s, too short to renew it in time", c.NodeLease, leastLease)
	case c.NodeGrace < 2*c.NodeLease:
		return fmt.Errorf("BERTH_NODE_GRACE (%s) must be at least twice BERTH_NODE_LEASE (%s)", c.NodeGrace, c.NodeLease)
	}
	return c.checkSnapshots()
}

// checkSnapshots refuses what a node cannot restore from.
func (c *Config) checkSnapshots() error {
	switch {
	case c.NodeLost == lostRestore && c.SnapshotEvery == 0:
		return errors.New("BERTH_NODE_LOST=restore needs snapshots to restore from; set BERTH_SNAPSHOT_EVERY, for example to 10m")
	case c.SnapshotEvery == 0:
		return nil
	case c.Registry.Host == "":
		return errors.New("BERTH_SNAPSHOT_EVERY needs a registry to keep snapshots in; set BERTH_REGISTRY")
	case c.SnapshotEvery < leastSnapshots:
		return fmt.Errorf("BERTH_SNAPSHOT_EVERY (%s) is below %s, too short to copy data in; write one like 10m", c.SnapshotEvery, leastSnapshots)
	}
	return nil
}

// isOpenRedis reports whether an address of Redis leads to another machine without TLS.
func isOpenRedis(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "redis" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && !(ip != nil && ip.IsLoopback())
}

// peerFiles returns the files of the node's certificate, its key and the authority, for an
// engine that keeps its own in root.
func (c *Config) peerFiles(root string) (cert, key, authority string) {
	if c.PeerCert != "" {
		return c.PeerCert, c.PeerKey, c.PeerCA
	}
	return swarmFiles(root)
}

// swarmFiles returns the files in which an engine with its data at root keeps Swarm's certificate
// of the node, its key and the authority.
func swarmFiles(root string) (cert, key, authority string) {
	dir := filepath.Join(root, "swarm", "certificates")
	return filepath.Join(dir, "swarm-node.crt"), filepath.Join(dir, "swarm-node.key"), filepath.Join(dir, "swarm-root-ca.crt")
}
