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
	} {
		env := maps.Clone(inCluster)
		env[tt.name] = tt.value
		_, err := server.Load(from(nil), from(env))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%s: %v, want one line with %q", tt.name, tt.value, err, tt.want)
		}
	}
}
