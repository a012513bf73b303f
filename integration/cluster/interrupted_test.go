package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/observe"
)

// Work that is under way on the owner when its lease is lost, and the point at which its
// server stops until another node has the stack.
var interruptions = []struct {
	work, point string
	begin       func(*testing.T, *Cluster, *Stack)
	end         func(*testing.T, *Cluster, *Stack)
}{
	{"a deploy", "all-healthy", func(t *testing.T, c *Cluster, st *Stack) {
		require.Equal(t, http.StatusOK, c.on("m1").redeploy(t, st, app.plus("site/more", "x"), appManifest).status)
	}, func(t *testing.T, c *Cluster, st *Stack) {
		now := c.on("m1").show(t, st)
		require.Equal(t, "live 1", fmt.Sprint(now.Status, " ", now.Generation))
		require.NotEmpty(t, now.reason(), "the deploy is forgotten without a word")
	}},
	{"a move", "move-copied", func(t *testing.T, c *Cluster, st *Stack) {
		m := c.on("m1")
		var out observe.Record
		move, err := m.node.Begin(t.Context(), m.variables(), &out, "berthd", "stacks", "move", st.ID, "w2")
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			code, err := move.Wait(ctx)
			require.NoError(t, err)
			require.True(t, code == 0 || strings.HasPrefix(out.String(), "berthd: "), "the move ends with exit code %d: %s", code, &out)
		})
	}, func(t *testing.T, c *Cluster, st *Stack) {
		now := c.on("m1").show(t, st)
		require.Equal(t, "live 1", fmt.Sprint(now.Status, " ", now.Generation))
	}},
	{"an expiry", "expiry-stopped", func(t *testing.T, c *Cluster, st *Stack) {
		require.Equal(t, http.StatusOK, c.on("m1").extend(t, st, "1s").status)
	}, func(t *testing.T, c *Cluster, st *Stack) {
		eventually(t, "it expires", func() error { return same("expired", c.on("w2").show(t, st).Status) })
		expired := 0
		for _, kind := range types(c.on("w2").events(t, st)) {
			if kind == "stack.expired" {
				expired++
			}
		}
		require.Equal(t, 1, expired)
	}},
}

// The owner loses its lease in the middle of something: nothing that it does afterwards
// counts, and it runs nothing of the stack that another one has.
func TestCluster_LeaseLostInTheMiddle(t *testing.T) {
	long(t)
	ways := map[string]func(*testing.T, *Host) (goOn func()){
		"frozen": func(t *testing.T, h *Host) func() {
			require.NoError(t, h.node.Machine.Pause(t.Context()))
			return func() {
				require.NoError(t, h.node.Machine.Unpause(t.Context()))
				require.NoError(t, h.process.Signal(t.Context(), "CONT"))
			}
		},
		"cut off": func(t *testing.T, h *Host) func() {
			require.NoError(t, h.node.Cut(t.Context()))
			require.NoError(t, h.process.Signal(t.Context(), "CONT"))
			return func() { require.NoError(t, h.node.Heal(t.Context())) }
		},
	}
	for _, i := range interruptions {
		for way, interrupt := range ways {
			t.Run(i.work+", "+way, func(t *testing.T) {
				c := start(t, clustered, with("BERTH_EXPIRY_NOTICE", "1s"), with("BERTH_ORPHAN_GRACE", "1s"))
				owner := c.on("w1")
				owner.kill(t)
				owner.fails = i.point + "!"
				owner.run(t)
				st := c.liveFor(t, owner, i.point)
				watch := c.watch(t, st)
				before := c.history(t)

				i.begin(t, c, st)
				eventually(t, "the server stops at "+i.point, func() error {
					if text := owner.log.String(); !strings.Contains(text, "stopped at the failpoint "+i.point) {
						return fmt.Errorf("it has not yet")
					}
					return nil
				})
				goOn := interrupt(t, owner)
				c.awaitTaken(t, st, owner)
				goOn()
				taken := c.row(t, st)
				owner.fails = ""
				c.inOrder(t, before)
				i.end(t, c, st)
				require.Equal(t, taken, c.row(t, st), "the owner before has changed something")
				require.NoError(t, watch())
			})
		}
	}
}

// liveFor creates a stack on a node that others may take if the node is lost. The server there
// stops at a point on the way: it goes on then, and the next one will stop.
func (c *Cluster) liveFor(t *testing.T, owner *Host, point string) *Stack {
	t.Helper()
	if point == "all-healthy" { // a create comes there, too
		owner.kill(t)
		fails := owner.fails
		owner.fails = ""
		owner.run(t)
		owner.fails = fails
	}
	st := c.liveOn(t, owner, app, appManifest)
	c.awaitPushed(t, st, 2)
	if point == "all-healthy" {
		owner.kill(t)
		owner.run(t)
	}
	c.saysEmpty(t, st)
	return st
}

// awaitTaken waits until a stack has another owner than a node.
func (c *Cluster) awaitTaken(t *testing.T, st *Stack, from *Host) {
	t.Helper()
	eventually(t, "another node takes the stack", func() error {
		if c.owner(t, st) == from {
			return fmt.Errorf("its owner is %s", from.node.Name)
		}
		return nil
	})
}

// row returns who owns a stack, since which epoch, and which generation serves.
func (c *Cluster) row(t *testing.T, st *Stack) string {
	t.Helper()
	return c.sql(t, "SELECT node, epoch, generation FROM stacks WHERE id = '"+st.ID+"'")
}

// watch asks through every node which process of a stack answers, until done is called, which
// returns an error if two served at the same time.
func (c *Cluster) watch(t *testing.T, st *Stack) (done func() error) {
	t.Helper()
	s, o := &sightings{}, c.follow(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for _, h := range c.hosts {
		go func() {
			for ctx.Err() == nil {
				s.look(t, h, st)
				nap(ctx, 20*time.Millisecond)
			}
		}()
	}
	return func() error {
		cancel()
		t.Logf("%d answers of the stack", s.count())
		return s.check(st, o)
	}
}

// A node is away for 30 seconds in some way, and back: what others may take they took, the
// rest comes back with it, and never two processes of a stack have served.
func TestCluster_NodeAwayAndBack(t *testing.T) {
	long(t)
	ways := map[string]struct {
		away, back func(*Host, context.Context) error
		taken      bool
	}{
		"node frozen": {
			func(h *Host, ctx context.Context) error { return h.node.Machine.Pause(ctx) },
			func(h *Host, ctx context.Context) error { return h.node.Machine.Unpause(ctx) }, true,
		},
		"server frozen": {
			func(h *Host, ctx context.Context) error { return h.process.Signal(ctx, "STOP") },
			func(h *Host, ctx context.Context) error { return h.process.Signal(ctx, "CONT") }, false,
		},
		"engine ended": {
			func(h *Host, ctx context.Context) error { return h.node.EndEngine(ctx, "KILL") },
			func(h *Host, ctx context.Context) error { return h.node.StartEngine(ctx) }, false,
		},
		"cut off from PostgreSQL": {
			func(h *Host, ctx context.Context) error { return h.node.Cut(ctx, h.c.lab.Postgres) },
			func(h *Host, ctx context.Context) error { return h.node.Heal(ctx) }, false,
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			c := start(t, clustered)
			owner, a := c.on("w1"), c.on("m1")
			site, empty, full := c.liveOn(t, owner, page("a page"), ""), c.liveOn(t, owner, app, appManifest), c.liveOn(t, owner, app, appManifest)
			a.write(t, full, "kept", "data")
			c.awaitPushed(t, site, 1)
			c.awaitPushed(t, empty, 2)
			c.saysEmpty(t, empty, full)
			var watched []func() error
			for _, st := range []*Stack{empty, full} {
				watched = append(watched, c.watch(t, st))
			}
			before := c.history(t)

			require.NoError(t, way.away(owner, t.Context()))
			time.Sleep(30 * time.Second)
			require.Equal(t, way.taken, c.owner(t, empty) != owner)
			require.Same(t, owner, c.owner(t, full))
			require.NoError(t, way.back(owner, t.Context()))
			for _, h := range c.hosts {
				h.serves(t, site.url("web", "/"), "200 a page")
				h.serves(t, empty.url("web", "/"), "200 hello from web, generation 1")
				h.serves(t, full.url("web", "/read?name=kept"), "200 data")
			}
			c.inOrder(t, before)
			for _, done := range watched {
				require.NoError(t, done())
			}
			require.Equal(t, http.StatusOK, a.redeploy(t, full, app.plus("site/more", "x"), appManifest).status)
			require.Equal(t, 2, a.mustLive(t, full).Generation)
		})
	}
}

func nap(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
