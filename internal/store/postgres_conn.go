package store

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// connector makes connections that take the statements and values of this package, which
// are written for SQLite.
type connector struct{ driver.Connector }

// Connect returns a *pgConn.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &pgConn{conn.(*stdlib.Conn)}, nil
}

// pgConn numbers the parameters of statements, and begins transactions that exclude each
// other.
type pgConn struct{ *stdlib.Conn }

// CheckNamedValue makes a value what any driver takes. PostgreSQL has neither NUL nor bytes
// that are not UTF-8 in a text, so they become U+FFFD.
func (c *pgConn) CheckNamedValue(arg *driver.NamedValue) (err error) {
	if arg.Value, err = driver.DefaultParameterConverter.ConvertValue(arg.Value); err != nil {
		return err
	}
	if text, ok := arg.Value.(string); ok {
		arg.Value = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
	}
	return nil
}

func (c *pgConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.ExecContext(ctx, numbered(query), args)
}

func (c *pgConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.QueryContext(ctx, numbered(query), args)
}

func (c *pgConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.PrepareContext(ctx, numbered(query))
}

// BeginTx begins a transaction that sees the commits of all before it, and waits for them:
// in one round trip.
func (c *pgConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.Conn().BeginTx(ctx, pgx.TxOptions{
		BeginQuery: fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(%d)", lockWriters),
	})
	return pgTx{tx}, err
}

// pgTx ends a transaction whatever becomes of the context that it began with, so that a
// caller who leaves does not make its outcome unknown.
type pgTx struct{ tx pgx.Tx }

func (t pgTx) Commit() error   { return within(context.Background(), callPatience, t.tx.Commit) }
func (t pgTx) Rollback() error { return within(context.Background(), connectTimeout, t.tx.Rollback) }

// numbered returns a statement with $1, $2 and so on for each ? in turn.
func numbered(query string) string {
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}
