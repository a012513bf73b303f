package store

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"
)

// ErrUnavailable is in the errors of a database that cannot be reached, does not answer
// in time, or is locked: the same call may work in a few seconds. What a failed call
// wrote is undone, unless its commit was under way when the database went away, and the
// database was not back in time to say what became of it.
var ErrUnavailable = errors.New("the database is not available")

// dialect is what differs between SQLite and PostgreSQL.
type dialect interface {
	// name returns the address of the database for errors, without a password.
	name() string
	// open connects, brings the tables up to date and returns two pools. A transaction
	// of the first excludes those of all other stores of the database.
	open(ctx context.Context, log *slog.Logger) (write, read *sql.DB, err error)
	// patience is how long a call may take; 0 means that its context alone ends it.
	patience() time.Duration
	// email is the expression by which an account's email is unique; it equals an email
	// in lower case as lowerASCII makes it.
	email() string
	// clock is an expression for the microseconds since 1970 by the database's clock, the
	// time at which it is reckoned.
	clock() string
	// beside returns a pool for single statements that change what no transaction does; they
	// do not wait for those of other stores.
	beside() *sql.DB
	// reserve makes rows inserted from now on get a number above last. The table is one of
	// those that number their rows.
	reserve(ctx context.Context, tx *sql.Tx, table, column string, last int64) error
	// counter is an expression for the last number that a table has given, or 0.
	counter(table, column string) string
	// quiet returns a pool of one connection without limits of time, which keeps every other
	// store away until it is closed. Its error has errInUse while another store is open.
	quiet(ctx context.Context) (*sql.DB, error)
	// makeTables brings the tables up to date, through a pool of quiet's.
	makeTables(ctx context.Context, quiet *sql.DB, log *slog.Logger) error
	// folder is the one of the migrations.
	folder() string
	// schema is a query for all columns of all tables, but for the one with the version: the
	// table's name, the column's, and whether it is of the type boolean.
	schema() string
	// cause returns syscall.ENOSPC or ErrUnavailable if that is what an error of the
	// database means, and nil for any other.
	cause(err error) error
	// follow calls changed after each commit of another store, with the id of a stack
	// that it touched, or with "" if it may have touched any, until ctx ends. It counts
	// what was committed since open.
	follow(ctx context.Context, changed func(stackID string))
}

// lowerASCII returns an email as it is compared: only the case of ASCII letters does not
// matter.
func lowerASCII(email string) string {
	lower := []byte(email)
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return string(lower)
}
