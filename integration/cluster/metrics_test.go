package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// measured is what GET /v0/stacks/{id}/metrics says of a service.
type measured struct {
	Times    []int64
	Requests []*int
	Memory   []*int64 `json:"memory_bytes"`
}

// metrics asks a node for the last hour of a stack's service web, in steps of 15 seconds.
func (h *Host) metrics(t *testing.T, st *Stack) measured {
	t.Helper()
	r := h.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/metrics", "")
	require.Equal(t, http.StatusOK, r.status, r)
	var got struct{ Services map[string]measured }
	require.NoError(t, json.Unmarshal([]byte(r.body), &got), r.body)
	return got.Services["web"]
}

// requests adds up the requests, and returns when the first step begins in which anything was
// measured, 0 for none.
func (m measured) requests() (n int, since int64) {
	for i, requests := range m.Requests {
		if requests == nil && m.Memory[i] == nil {
			continue
		}
		if since == 0 {
			since = m.Times[i]
		}
		if requests != nil {
			n += *requests
		}
	}
	return n, since
}

// Each node keeps what it has measured of a stack, and any node shows what the stack's own has:
// requests count once, whichever node they came to. After a move the metrics begin with it.
func TestCluster_MetricsBeginAnewWithAMove(t *testing.T) {
	long(t)
	c := start(t, clustered)
	from, to := c.on("w1"), c.on("w2")
	st := c.liveOn(t, from, app, appManifest)
	// count sends requests through each node, and waits until each says that there were so many.
	count := func(each, want int) (since int64) {
		t.Helper()
		for _, h := range c.hosts {
			for range each {
				require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/")).status)
			}
		}
		for _, h := range c.hosts {
			eventually(t, "the requests are in the metrics through "+h.node.Name, func() error {
				n := 0
				n, since = h.metrics(t, st).requests()
				return same(fmt.Sprint(want), fmt.Sprint(n))
			})
		}
		return since
	}
	move := func(to *Host) (at int64) {
		t.Helper()
		c.on("m1").berthd(t, "stacks", "move", st.ID, to.node.Name)
		require.Same(t, to, c.owner(t, st))
		moved := last(to.events(t, st))
		require.Equal(t, "stack.restored", moved.Type)
		return int64(moved.CreatedAt)
	}
	first := count(5, 15)
	moved := move(to)
	for _, h := range c.hosts {
		n, since := h.metrics(t, st).requests()
		require.Zero(t, n, h.node.Name)
		if since != 0 {
			require.Greater(t, since, moved-15, h.node.Name)
		}
	}
	require.Greater(t, count(2, 6), moved-15)
	move(from)
	require.Equal(t, first, count(0, 15), "what it has measured before")
}
