package cluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver named pgx
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/invariants"
)

// onPostgres gives each server its own database in the lab's PostgreSQL.
func onPostgres(c *Cluster) {
	for _, h := range c.hosts {
		h.database = fmt.Sprintf("%s_%d", h.node.Name, c.number)
		h.env["BERTH_DATABASE_URL"] = postgresURL("postgres", h.database)
	}
}

func postgresURL(host, database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s:5432/%s?sslmode=disable", PostgresUser, PostgresPassword, host, database)
}

// databases are those of all servers in PostgreSQL.
func (c *Cluster) databases() []string {
	var all []string
	for _, h := range c.hosts {
		if h.database != "" && !slices.Contains(all, h.database) {
			all = append(all, h.database)
		}
	}
	return all
}

// createDatabases creates the databases of all servers.
func (c *Cluster) createDatabases(t *testing.T) {
	t.Helper()
	for _, name := range c.databases() {
		_, err := c.lab.Postgres.SQL(t.Context(), "postgres", "CREATE DATABASE "+name)
		require.NoError(t, err)
	}
}

// dropDatabases removes the databases of all servers.
func (c *Cluster) dropDatabases() error {
	var errs []error
	for _, name := range c.databases() {
		_, err := c.lab.Postgres.SQL(context.Background(), "postgres", "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// query reads from the server's database.
func (h *Host) query(ctx context.Context, query string, each func(*sql.Rows) error) error {
	name := postgresURL(h.c.lab.Postgres.Address.String(), h.database)
	return invariants.In("pgx", name)(ctx, query, each)
}

// history reads every event of the server's database, in order.
func (h *Host) history(t *testing.T) []invariants.Occurrence {
	t.Helper()
	all, err := invariants.History(t.Context(), h.query)
	require.NoError(t, err)
	return all
}

// inOrder asserts that the installation is as its rows say: no build or restore is under
// way, what the node has is exactly what its stacks imply, and the history since before
// docs/api.md allows.
func (h *Host) inOrder(t *testing.T, before []invariants.Occurrence) {
	t.Helper()
	var rows []invariants.Row
	var now []invariants.Occurrence
	eventually(t, "everything is as the rows say", func() (err error) {
		if rows, err = invariants.Rows(t.Context(), h.query); err != nil {
			return err
		}
		now = h.history(t)
		there, err := h.inventory(t.Context())
		if err != nil {
			return err
		}
		after, err := invariants.Rows(t.Context(), h.query)
		if err == nil && !reflect.DeepEqual(rows, after) {
			err = errors.New("a stack has changed meanwhile")
		}
		return errors.Join(err, invariants.Compare(rows, there))
	})
	require.GreaterOrEqual(t, len(now), len(before), "events are lost")
	require.Equal(t, before, now[:len(before)], "recorded events have changed")
	require.NoError(t, invariants.Follow(now, rows))
}

// outage is one way in which a machine is away for a while.
type outage struct {
	name       string
	begin, end func(*Machine, context.Context) error
}

var outages = []outage{
	{"killed", (*Machine).Kill, (*Machine).Start},
	{"frozen", (*Machine).Pause, (*Machine).Unpause},
}

// PostgreSQL ends or stands still: what runs serves, what has to be written is refused in
// time, and everything goes on afterwards.
func TestPostgres_Away(t *testing.T) {
	long(t)
	for _, away := range outages {
		t.Run(away.name, func(t *testing.T) {
			c := start(t, onPostgres)
			h := c.on("w1")
			st := h.live(t, app, appManifest)
			before := h.history(t)
			require.NoError(t, away.begin(c.lab.Postgres, t.Context()))
			began := time.Now()

			body, contentType := form(t, page("late"), "")
			r := h.attempt(t, http.MethodPost, "/v0/stacks", body, "Content-Type", contentType)
			require.Equal(t, http.StatusServiceUnavailable, r.status, r)
			require.NotEmpty(t, r.header.Get("Retry-After"))
			require.Less(t, time.Since(began), 15*time.Second)
			require.Equal(t, "200 hello from web, generation 1", h.get(t, st.url("web", "/")).String())
			require.Equal(t, "200 a site", h.get(t, st.url("site", "/")).String())
			h.write(t, st, "kept", "data")

			other := c.on("w2")
			other.kill(t)
			other.spawn(t)
			eventually(t, "a known server waits", func() error {
				return same("503", fmt.Sprint(other.get(t, "/healthz").status))
			})
			time.Sleep(30*time.Second - time.Since(began))
			require.NoError(t, away.end(c.lab.Postgres, t.Context()))
			other.awaitAnswer(t)
			eventually(t, "what was refused is taken", func() error {
				r = h.attempt(t, http.MethodPost, "/v0/stacks", body, "Content-Type", contentType)
				return same("201", fmt.Sprint(r.status))
			})
			late := r.stack(t)
			c.adopt(late)
			h.mustLive(t, late)
			require.Equal(t, "200 data", h.reads(t, st, "kept"))
			h.inOrder(t, before)
		})
	}
}
