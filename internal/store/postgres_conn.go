package store

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/berth-host/berth/internal/pause"
)

// connector makes connections that take the statements and values of this package, which
// are written for SQLite.
type connector struct {
	driver.Connector
	config *pgx.ConnConfig
}

// Connect returns a *pgConn.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &pgConn{conn.(*stdlib.Conn), c.config}, nil
}

// pgConn numbers the parameters of statements, and begins transactions that exclude each
// other.
type pgConn struct {
	*stdlib.Conn
	config *pgx.ConnConfig
}

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

// beginWriting begins a transaction that sees the commits of all before it, waits for them,
// and returns the id of the transaction.
var beginWriting = fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(%d); SELECT pg_current_xact_id()", lockWriters)

// BeginTx begins a transaction in one round trip.
func (c *pgConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	conn := c.Conn.Conn()
	results, err := conn.PgConn().Exec(ctx, beginWriting).ReadAll()
	if err != nil {
		_ = within(context.Background(), connectTimeout, conn.Close) // it may be in a transaction
		return nil, err
	}
	until := time.Now().Add(callPatience)
	if deadline, ok := ctx.Deadline(); ok {
		until = deadline
	}
	return &pgTx{conn: conn, config: c.config, id: string(results[2].Rows[0][0]), until: until}, nil
}

// pgTx ends a transaction whatever becomes of the context that it began with, so that a
// caller who leaves does not make its outcome unknown.
type pgTx struct {
	conn   *pgx.Conn
	config *pgx.ConnConfig
	id     string
	until  time.Time // when the call that it is part of ends
}

const (
	// leastCommit is how long a commit may take at the end of its call, and how long it may
	// then take to find out what became of it.
	leastCommit = time.Second
	askOutcome  = 50 * time.Millisecond // between two attempts to find that out
)

// Rollback implements driver.Tx.
func (t *pgTx) Rollback() error {
	return within(context.Background(), connectTimeout, func(ctx context.Context) error {
		_, err := t.conn.Exec(ctx, "ROLLBACK")
		if err != nil {
			_ = t.conn.Close(ctx) // it may be in the transaction still
		}
		return err
	})
}

// Commit implements driver.Tx. If the connection fails before the answer, it asks on another
// one whether the transaction was committed.
func (t *pgTx) Commit() error {
	left := max(leastCommit, time.Until(t.until))
	err := within(context.Background(), left, func(ctx context.Context) error {
		tag, err := t.conn.Exec(ctx, "COMMIT")
		if err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
		return err
	})
	if err == nil || !t.conn.IsClosed() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(leastCommit, time.Until(t.until)))
	defer cancel()
	return t.findOut(ctx, err)
}

// findOut returns nil if the transaction was committed, and else why its commit was not
// answered.
func (t *pgTx) findOut(ctx context.Context, cause error) error {
	for {
		status, err := t.status(ctx)
		switch {
		case err == nil && status == "committed":
			return nil
		case err == nil && status == "aborted":
			return cause
		case !pause.For(ctx, askOutcome):
			return &inDoubt{t.id, cause}
		}
	}
}

// status asks what became of the transaction.
func (t *pgTx) status(ctx context.Context) (status string, err error) {
	conn, err := pgx.ConnectConfig(ctx, t.config)
	if err != nil {
		return "", err
	}
	defer func() { _ = within(context.Background(), time.Second, conn.Close) }()
	err = conn.QueryRow(ctx, "SELECT coalesce(pg_xact_status($1::text::xid8), 'unknown')", t.id).Scan(&status)
	return status, err
}

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
