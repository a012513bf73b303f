package server

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// An account goes by the same rules as DELETE of its stacks.
func TestHeirOf_IsAnotherNodeOnlyForALostOne(t *testing.T) {
	nodes := []cluster.Node{
		{ID: "n1", Name: "w1", State: cluster.Ready},
		{ID: "n2", Name: "w2", State: cluster.Ready},
		{ID: "n3", Name: "w3", State: cluster.Away},
		{ID: "n4", Name: "w4", State: cluster.Lost},
	}
	heir := heirOf(nodes, "n1")
	for node, want := range map[string]string{"n1": "n1", "n2": "n2", "n4": "n1", "forgotten": "n1"} {
		got, err := heir(node)
		require.NoError(t, err, node)
		require.Equal(t, want, got, node)
	}
	_, err := heir("n3")
	require.Equal(t, stack.Unavailable, stack.KindOf(err))
	require.ErrorContains(t, err, "the node w3, which has a stack of the account, does not answer")
	got, err := heirOf(nodes, "n3")("n3")
	require.NoError(t, err, "this node itself, before it has read that it is back")
	require.Equal(t, "n3", got)
	got, err = heirOf(nodes, "")("n4")
	require.NoError(t, err)
	require.Equal(t, "n4", got, "no node is there to be the heir")
	require.Nil(t, (&Server{}).heirs(), "on one machine")
}

// A manager whose ping was not answered has not noted that it reaches this node.
func TestOpenPeers_APingOfAManagerIsNotContactWithOne(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: log})
	require.NoError(t, err)
	defer db.Close()
	const grace = time.Second
	joined, err := cluster.Join(t.Context(), cluster.Config{Store: db, Self: store.Node{ID: "n1", Name: "w1", Holder: "a"}, Lease: time.Millisecond, Grace: grace, Log: log})
	require.NoError(t, err)
	s := &Server{store: db, routes: &proxy.Routes{}, log: log, cfg: Config{AppsDomain: "apps.test", PeerListen: "127.0.0.1:0"}, cluster: joined}
	require.NoError(t, s.openPeers(t.Context()))
	defer s.others.close()
	time.Sleep(grace)
	require.True(t, joined.Isolated())
	joined.Stopped()

	r := httptest.NewRequest("GET", "/peer/v1/ping?manager=true", nil) // as the version before says
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "m1"}}}}
	w := httptest.NewRecorder()
	s.others.calls.ServeHTTP(w, r)
	require.Equal(t, 200, w.Code)
	require.True(t, joined.Isolated())
}
