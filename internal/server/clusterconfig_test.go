package server_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/server"
)

var inCluster = map[string]string{
	"BERTH_CLUSTER": "swarm", "BERTH_DATABASE_URL": "postgres://berth@localhost/berth",
	"BERTH_REDIS_URL": "redis://localhost", "BERTH_KEY_FILE": "/run/secrets/key",
}

func TestLoad_TakesTheSettingsOfANode(t *testing.T) {
	if c := load(t, nil); c.Cluster != "off" || c.NodeLease != 6*time.Second || c.NodeGrace != time.Minute || c.PeerListen != ":8443" {
		t.Errorf("defaults %+v", c)
	}
	if c := load(t, inCluster); c.Cluster != "swarm" || c.KeyFile != "/run/secrets/key" {
		t.Errorf("of a node %+v", c)
	}
}

func TestLoad_RefusesAClusterThatCannotWork(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"BERTH_CLUSTER", "kubernetes", "BERTH_CLUSTER"},
		{"BERTH_DATABASE_URL", "", "needs PostgreSQL"},
		{"BERTH_DATABASE_URL", "sqlite:///berth.db", "needs PostgreSQL"},
		{"BERTH_REDIS_URL", "", "needs a Redis that all nodes share"},
		{"BERTH_KEY_FILE", "", "needs BERTH_KEY_FILE"},
		{"BERTH_NODE_LEASE", "500ms", "BERTH_NODE_LEASE"},
		{"BERTH_NODE_GRACE", "11s", "BERTH_NODE_GRACE"},
		{"BERTH_PEER_LISTEN", "8443", "BERTH_PEER_LISTEN"},
		{"BERTH_PEER_CERT", "cert.pem", "BERTH_PEER_KEY"},
		{"BERTH_NODE_LOST", "forget", "BERTH_NODE_LOST"},
		{"BERTH_NODE_LOST", "restore", "set BERTH_SNAPSHOT_EVERY"},
		{"BERTH_SNAPSHOT_EVERY", "often", "BERTH_SNAPSHOT_EVERY"},
		{"BERTH_SNAPSHOT_EVERY", "0s", "BERTH_SNAPSHOT_EVERY"},
		{"BERTH_SNAPSHOT_EVERY", "10m", "set BERTH_REGISTRY"},
	} {
		env := maps.Clone(inCluster)
		env[tt.name] = tt.value
		_, err := server.Load(from(nil), from(env))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%s: %v, want one line with %q", tt.name, tt.value, err, tt.want)
		}
	}
}

func TestLoad_TakesTheSettingsOfSnapshots(t *testing.T) {
	env := maps.Clone(inCluster)
	env["BERTH_REGISTRY"], env["BERTH_SNAPSHOT_EVERY"] = "registry.example.com", "10m"
	if c := load(t, env); c.SnapshotEvery != 10*time.Minute || c.NodeLost != "wait" {
		t.Errorf("snapshots every %s, lost nodes %s", c.SnapshotEvery, c.NodeLost)
	}
	env["BERTH_NODE_LOST"] = "restore"
	if c := load(t, env); c.NodeLost != "restore" {
		t.Errorf("lost nodes %s", c.NodeLost)
	}
	env["BERTH_SNAPSHOT_EVERY"] = "4s"
	if _, err := server.Load(from(nil), from(env)); err == nil || !strings.Contains(err.Error(), "below 5s") {
		t.Errorf("a period of 4s: %v", err)
	}
	for name, value := range map[string]string{"BERTH_SNAPSHOT_EVERY": "10m", "BERTH_NODE_LOST": "restore"} {
		_, err := server.Load(from(nil), from(map[string]string{name: value}))
		if err == nil || !strings.Contains(err.Error(), name+" needs BERTH_CLUSTER=swarm") && !strings.Contains(err.Error(), name+"=restore needs BERTH_CLUSTER=swarm") {
			t.Errorf("%s on one machine: %v", name, err)
		}
	}
}
