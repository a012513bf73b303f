package integration

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/store/postgrestest"
)

// onPostgres keeps the state in a new database of a server.
func onPostgres(t *testing.T, server *postgrestest.Server) Option {
	return with("BERTH_DATABASE_URL", server.Database(t))
}

func TestPostgres_HoldsTheStateOfAServer(t *testing.T) {
	t.Parallel()
	h := start(t, onPostgres(t, postgrestest.Shared(t)))
	require.NoFileExists(t, filepath.Join(h.dir, "berth.db"))
	st := h.live(t, program(t), manifest(programManifest))
	site := h.live(t, page("before"), nil)
	h.redeploy(t, site, page("after"), nil)
	require.Equal(t, "after", h.get(t, site.url("web", "/")).body)
	before := h.events(t, site)
	h.restart(t)
	require.Equal(t, "after", h.get(t, site.url("web", "/")).body)
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/")).status)
	require.Equal(t, before, h.events(t, site)[:len(before)])
	require.NotContains(t, h.log.String(), postgrestest.Password)
}

func TestPostgres_AwayRefusesWritesAndServes(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	h := start(t, onPostgres(t, server))
	site := h.live(t, page("the site"), nil)
	refused := func(limit time.Duration) {
		t.Helper()
		began := time.Now()
		r := h.post(t, archive(t, page("another")), nil, "")
		t.Logf("a create is answered %d after %s", r.status, time.Since(began))
		require.Equal(t, http.StatusServiceUnavailable, r.status, r.body)
		require.NotEmpty(t, r.header.Get("Retry-After"))
		require.Less(t, time.Since(began), limit)
		require.Equal(t, "the site", h.get(t, site.url("web", "/")).body)
	}
	// A call ends after 13 s, as the tests of package store assert; the rest is for a busy machine.
	const most = 40 * time.Second
	server.Freeze()
	refused(most)
	server.Thaw()
	h.redeploy(t, site, page("the site"), nil)

	server.Kill(t)
	refused(most)
	h.stop(t)
	h.spawn(t)
	eventually(t, "the server waits for its database", func() error {
		r := h.attempt(t, http.MethodGet, "/healthz", "")
		if r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, "waits for its database") {
			return &unexpected{r}
		}
		return nil
	})
	server.Run(t)
	h.awaitAnswer(t, h.running())
	require.Equal(t, "the site", h.get(t, site.url("web", "/")).body)
	h.live(t, page("another"), nil)
	require.NotContains(t, h.log.String(), postgrestest.Password)
}

// unexpected is an answer that a test does not want.
type unexpected struct{ reply Reply }

func (u *unexpected) Error() string { return u.reply.String() }

func TestPostgres_OfANewServerMustBeThere(t *testing.T) {
	t.Parallel()
	h := install(t, asShipped, with("BERTH_DATABASE_URL", "postgres://berth:"+postgrestest.Password+"@127.0.0.1:1/berth"))
	said := h.refusesToStart(t)
	require.Contains(t, said, "postgres://berth@127.0.0.1:1/berth")
	require.NotContains(t, said, postgrestest.Password)
	require.NoFileExists(t, filepath.Join(h.dir, "key"))
	delete(h.env, "BERTH_DATABASE_URL")
	h.run(t)
}
