package cluster

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// No stack reaches the installation's own registry, PostgreSQL or Redis, or what only nodes are
// to reach, neither with its programs nor with its builds. All of it is on the nodes' own network.
func TestCluster_StacksReachNothingOfTheInstallation(t *testing.T) {
	long(t)
	c := start(t, clustered)
	closed := []string{
		fmt.Sprintf("%s:5000", c.lab.address(registryHost)),
		fmt.Sprintf("%s:5432", c.lab.address(postgresHost)),
		fmt.Sprintf("%s:6379", c.lab.address(valkeyHost)),
	}
	for _, h := range c.hosts {
		closed = append(closed, h.node.AddressOf(8443).String())
	}
	for _, address := range closed {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err, "nothing is there that could be reached")
		conn.Close()
	}
	try := `perl -MIO::Socket::INET -e 'for (@ARGV) { print "reached $_\n" if IO::Socket::INET->new(PeerAddr => $_, Timeout => 2) } print "tried " . @ARGV . "\n"' ` + strings.Join(closed, " ")
	manifest := "{name: app, services: [{name: web, runtime: node, build: sh try, start: exec perl server.pl, stop_timeout: 1s}]}"
	want := fmt.Sprintf("tried %d\n", len(closed))
	for _, h := range c.hosts {
		st := c.liveOn(t, h, app.plus("try", try), manifest)
		r := h.as(t, st.ManageToken, http.MethodPost, "/v0/stacks/"+st.ID+"/services/web/exec", `{"command": "sh try"}`)
		require.Contains(t, r.body, fmt.Sprintf(`"output":%q`, want), h.node.Name)
		built := h.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/logs?kind=build", "").body
		require.Contains(t, built, want, h.node.Name)
		require.NotContains(t, built, "reached", h.node.Name)
		require.Equal(t, http.StatusOK, h.delete(t, st).status)
	}
}
