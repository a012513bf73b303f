package cluster

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reaches reports whether a node gets an answer of the registry within some seconds.
func (n *Node) reaches(t *testing.T, seconds string) bool {
	t.Helper()
	_, err := n.Machine.Run(t.Context(), "", "curl", "-sS", "-m", seconds, "http://registry:5000/v2/")
	return err == nil
}

// The lab itself: what the other tests do to it happens, and what they rely on holds.
func TestLab_DoesWhatIsAskedOfIt(t *testing.T) {
	l := theLab(t)
	for _, f := range l.Figures {
		t.Logf("%s: %s", f.Part, f.Took.Round(time.Millisecond))
	}
	for _, m := range l.Machines() {
		used, err := m.Memory(t.Context())
		require.NoError(t, err)
		t.Logf("%s uses %d MB", m.Name, used>>20)
	}
	answer, err := l.Postgres.SQL(t.Context(), "postgres", "SHOW server_version_num")
	require.NoError(t, err)
	require.Greater(t, answer, "150000")

	w1, w2 := l.Node("w1"), l.Node("w2")
	require.True(t, w1.reaches(t, "15"))
	require.NoError(t, w1.Cut(t.Context(), l.Registry))
	require.False(t, w1.reaches(t, "1"))
	require.True(t, w2.reaches(t, "15"))
	require.NoError(t, w2.Cut(t.Context()))
	require.False(t, w2.reaches(t, "1"))
	require.NoError(t, w1.Heal(t.Context()))
	require.NoError(t, w2.Heal(t.Context()))
	require.True(t, w1.reaches(t, "15"))
	require.True(t, w2.reaches(t, "15"))

	require.NoError(t, w1.RestartEngine(t.Context(), "KILL"))
	require.NoError(t, w2.Machine.Kill(t.Context()))
	require.NoError(t, l.Postgres.Pause(t.Context()))
	require.NoError(t, l.Valkey.Kill(t.Context()))
	require.NoError(t, l.restore(t.Context()))
}

// Every node serves sites and programs, each as a separate installation.
func TestNodes_ServeOnTheirOwn(t *testing.T) {
	c := start(t)
	for _, h := range c.hosts {
		key := h.account(t, h.node.Name+"@example.com")
		site, st := h.create(t, page("a page on "+h.node.Name), ""), h.live(t, app, appManifest)
		site = h.mustLive(t, site)
		require.Equal(t, "200 a page on "+h.node.Name, h.get(t, site.url("web", "/")).String())
		require.Equal(t, "200 hello from web, generation 1", h.get(t, st.url("web", "/")).String())
		require.Equal(t, "200 a site", h.get(t, st.url("site", "/")).String())
		h.write(t, st, "kept", h.node.Name)

		require.NoError(t, h.node.Machine.Kill(t.Context()))
		h.wait(t)
		require.NoError(t, h.node.Machine.Start(t.Context()))
		h.run(t)
		eventually(t, "the data is back", func() error { return same("200 "+h.node.Name, h.reads(t, st, "kept")) })

		require.Equal(t, http.StatusOK, h.claim(t, key, st).status)
		require.Equal(t, http.StatusOK, h.redeploy(t, st, app.plus("site/more", "x"), appManifest).status)
		require.Equal(t, 2, h.mustLive(t, st).Generation)
		require.Equal(t, "200 "+h.node.Name, h.reads(t, st, "kept"))
		require.Equal(t, "stack.live", last(types(h.events(t, st))))
		require.Contains(t, h.has(t, st), "running container web-g2")
	}
}

// A node of the lab does what one machine does: a stack expires, and comes back with its data.
func TestNodes_ExpireAndRestore(t *testing.T) {
	c := start(t, with("BERTH_EXPIRY_NOTICE", "1s"))
	h := c.on("w1")
	key := h.account(t, "ana@example.com")
	st := h.live(t, app, appManifest)
	h.write(t, st, "kept", "data")
	h.kill(t)
	h.run(t)
	require.Equal(t, http.StatusOK, h.extend(t, st, "1s").status)
	eventually(t, "it expires", func() error { return same("expired", h.show(t, st).Status) })
	require.Equal(t, http.StatusOK, h.claim(t, key, st).status)
	h.mustLive(t, st)
	require.Equal(t, "200 data", h.reads(t, st, "kept"))
}
