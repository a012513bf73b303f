package integration

import (
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/store/postgrestest"
)

// cutter is a way to a database. It counts what its clients send, and breaks all connections
// at a chosen message.
type cutter struct {
	target string

	mu    sync.Mutex
	sent  int
	cutAt int       // 0 for never
	until time.Time // when connections are taken again
	conns map[net.Conn]bool
}

// outage is how long no connection is taken after a cut.
const outage = 300 * time.Millisecond

// newCutter returns a cutter, and the address of the database that leads through it.
func newCutter(t *testing.T, database string) (*cutter, string) {
	t.Helper()
	address, err := url.Parse(database)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{target: address.Host, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cut()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go c.serve(client)
		}
	}()
	address.Host = listener.Addr().String()
	return c, address.String()
}

// arm counts from 0 again, ends an outage, and cuts at the n-th message from now on, or never for 0.
func (c *cutter) arm(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.cutAt, c.until = 0, n, time.Time{}
}

// count returns how many messages were sent since arm.
func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent
}

// serve connects a client with the database.
func (c *cutter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !c.take(client, server) {
		return
	}
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil || !c.pass() {
			return
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// take notes connections, unless there was a cut just now.
func (c *cutter) take(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range conns {
		c.conns[conn] = true
	}
	return time.Now().After(c.until)
}

// pass counts a message, and reports whether it may pass.
func (c *cutter) pass() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	if c.sent != c.cutAt {
		return true
	}
	c.until = time.Now().Add(outage)
	c.cut()
	return false
}

// cut breaks all connections. The lock is held.
func (c *cutter) cut() {
	for conn := range c.conns {
		_ = conn.Close()
	}
	clear(c.conns)
}

// startsWhileCut is how many servers start side by side, since most of a start is waiting.
const startsWhileCut = 4

// A known server survives its start at whichever statement of it the database goes away.
func TestPostgres_AwayInTheMiddleOfAStartIsWaitedFor(t *testing.T) {
	t.Parallel()
	for first := range startsWhileCut {
		t.Run(strconv.Itoa(first), func(t *testing.T) {
			t.Parallel()
			database, address := newCutter(t, postgrestest.Shared(t).Database(t))
			h := start(t, asShipped, with("BERTH_DATABASE_URL", address))
			site := h.live(t, page("the site"), nil)
			for n := first + 1; ; n += startsWhileCut {
				h.kill(t)
				database.arm(n)
				h.run(t)
				if database.count() < n { // the start is through before
					require.Greater(t, n, 20)
					t.Logf("a start sends less than %d messages", n)
					break
				}
				require.Equal(t, "the site", h.get(t, site.url("web", "/")).body, "cut at message %d", n)
			}
			h.kill(t)
			database.arm(0) // before the message comes that is cut
			h.run(t)
			h.redeploy(t, site, page("another"), nil)
			require.Contains(t, h.log.String(), "the database is not available, and the server waits for it")
			require.NotContains(t, h.log.String(), postgrestest.Password)
		})
	}
}
