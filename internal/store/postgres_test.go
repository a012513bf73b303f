package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named pgx

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/store/postgrestest"
)

func TestPostgres(t *testing.T) { suite{copiedPostgres}.run(t) }

// postgres is the address of a database of PostgreSQL.
type postgres string

func newPostgres(t testing.TB) database {
	return postgres(postgrestest.Shared(t).Database(t))
}

// copiedPostgres returns a copy of one database, which has the tables: to make them takes far
// longer.
func copiedPostgres(t testing.TB) database {
	t.Helper()
	server := postgrestest.Shared(t)
	emptyPostgres.once.Do(func() {
		address, err := server.Make(context.Background())
		if err == nil {
			err = openAndClose(postgres(address).options())
		}
		emptyPostgres.address, emptyPostgres.err = address, err
	})
	if emptyPostgres.err != nil {
		t.Fatal(emptyPostgres.err)
	}
	return postgres(server.Copy(t, emptyPostgres.address))
}

// emptyPostgres is a database that a store has opened once.
var emptyPostgres struct {
	once    sync.Once
	address string
	err     error
}

func (address postgres) options() store.Options {
	return store.Options{Postgres: string(address), Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler), Mails: true}
}

func (address postgres) open(t testing.TB) *store.Store { return openStore(t, address.options()) }

func (address postgres) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := address.raw(t).Exec(numbered(query), args...); err != nil {
		t.Fatal(err)
	}
}

func (address postgres) row(t testing.TB, query string, args ...any) *sql.Row {
	return address.raw(t).QueryRow(numbered(query), args...)
}

func (address postgres) raw(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", string(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// connect returns a connection of an operator's.
func (address postgres) connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), string(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// dump returns all rows, with bytes as they are.
func (address postgres) dump(t testing.TB) string {
	t.Helper()
	conn := address.connect(t)
	var all strings.Builder
	for _, table := range []string{"accounts", "stacks", "events", "deliveries", "sessions", "receipts", "webhook_mark", "commands"} {
		rows, err := conn.Query(t.Context(), "SELECT * FROM "+table)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			for _, raw := range rows.RawValues() {
				all.Write(raw)
				all.WriteByte('\n')
			}
			values, err := rows.Values()
			if err != nil {
				t.Fatal(err)
			}
			for _, value := range values {
				fmt.Fprintf(&all, "%s\n", value)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

func (address postgres) name() string {
	u, err := url.Parse(string(address))
	if err != nil {
		panic(err)
	}
	return "postgres://berth@" + u.Host + u.Path
}

// numbered gives each ? of a test's query its number.
func numbered(query string) string {
	parts := strings.Split(query, "?")
	for i := range parts[1:] {
		parts[i] += fmt.Sprintf("$%d", i+1)
	}
	return strings.Join(parts, "")
}
