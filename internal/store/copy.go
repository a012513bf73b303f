package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
)

// errInUse means that another process has a database open that must be quiet.
var errInUse = errors.New("a server or a command uses it; stop berthd, and run this again")

// table is a table of the database. Those that another refers to come before it.
type table struct {
	name    string
	numbers string // column that numbers the rows and never gives a number twice; "" for none
}

// tables are all tables, as far as their rows are copied from one database to another. What
// installation and nodes have, the new owner writes.
var tables = []table{
	{"accounts", ""},
	{"stacks", "seq"},
	{"events", "id"},
	{"deliveries", "id"},
	{"sessions", "id"},
	{"mails", "id"},
	{"mail_tokens", ""},
	{"receipts", ""},
	{"webhook_mark", ""},
	{"commands", "seq"},
	{"remains", ""},
	{"webhook_owed", ""},
	{"moves", ""},
	{"domains", ""},
	{"certificates", ""},
	{"certificate_locks", ""},
	{"bans", ""},
	{"audit", "id"},
	{"nodes", ""},
	{"installation", ""},
}

// Copying says what Copy copies.
type Copying struct {
	From, To Options

	// Decide returns whom the copy belongs to, or refuses to make it.
	Decide func(Source) (Belonging, error)
	Log    *slog.Logger
}

// Copied is how many rows of a table were copied.
type Copied struct {
	Table string
	Rows  int64
}

// Copy copies all rows of a database to an empty one, in one transaction: sealed values stay
// as they are, and numbers go on where they were. It changes nothing at the source, and fails
// while anybody else has one of the two open.
func Copy(ctx context.Context, c Copying) (copied []Copied, err error) {
	from, err := openSource(ctx, c.From)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	source, err := from.describe(ctx)
	if err != nil {
		return nil, err
	}
	belongs, err := c.Decide(source)
	if err != nil {
		return nil, err
	}
	if err := from.awaitLeases(ctx); err != nil {
		return nil, err
	}
	to, drop, err := openTarget(ctx, c.To, c.Log)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, to.Close())
		if err != nil {
			drop()
		}
	}()
	return copyRows(ctx, from, to, belongs)
}

// openQuiet opens a store that keeps all others away.
func openQuiet(ctx context.Context, dialect dialect) (*Store, error) {
	s := &Store{dialect: dialect, patient: true}
	db, err := dialect.quiet(ctx)
	if err != nil {
		return nil, s.fault("open", err)
	}
	s.write, s.read = db, db
	return s, nil
}

// openSource opens a database that must have the tables of this berthd.
func openSource(ctx context.Context, opts Options) (*Store, error) {
	dialect, err := opts.dialect()
	if err != nil {
		return nil, err
	}
	if opts.Postgres == "" {
		if _, err := os.Stat(dialect.name()); err != nil {
			return nil, fmt.Errorf("there is no database %s to copy; name that of the server", dialect.name())
		}
	}
	s, err := openQuiet(ctx, dialect)
	if err != nil {
		return nil, err
	}
	if err := s.checkTables(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// checkTables refuses a database with other tables than those of this berthd.
func (s *Store) checkTables(ctx context.Context) error {
	there, err := s.schema(ctx, s.read)
	if err != nil {
		return err
	}
	if len(there["stacks"]) == 0 {
		return fmt.Errorf("%s is not a database of Berth; name that of the server", s.Name())
	}
	version, _, err := readOne(ctx, s, s.read, "read the version", onlyPlace[int64], "SELECT max(version_id) FROM goose_db_version WHERE is_applied")
	if err != nil {
		return err
	}
	known, err := newest(s.dialect.folder())
	switch {
	case err != nil:
		return err
	case version < known:
		return fmt.Errorf("the database %s has version %d, and this berthd copies version %d; start this berthd on it once, stop it, and run this again", s.Name(), version, known)
	case version > known:
		return fmt.Errorf("the database %s has version %d, and this berthd knows up to %d; use the berthd that wrote it, or a newer one", s.Name(), version, known)
	}
	return nil
}

// openTarget opens an empty database and makes its tables. Calling drop after it was closed
// removes the file that it made, if it made one.
func openTarget(ctx context.Context, opts Options, log *slog.Logger) (s *Store, drop func(), err error) {
	dialect, err := opts.dialect()
	if err != nil {
		return nil, nil, err
	}
	drop = func() {}
	if opts.Postgres == "" {
		_, missing := os.Stat(dialect.name())
		if err := touch(dialect.name()); err != nil {
			return nil, nil, fmt.Errorf("database %s: create: %w", dialect.name(), err)
		}
		if missing != nil {
			drop = func() { _ = os.Remove(dialect.name()) } // an empty database at worst
		}
	}
	if s, err = openQuiet(ctx, dialect); err != nil {
		drop()
		return nil, nil, err
	}
	err = s.checkEmpty(ctx)
	if err == nil {
		err = s.fault("make the tables", dialect.makeTables(ctx, s.write, log))
	}
	if err != nil {
		err = errors.Join(err, s.Close())
		drop()
		return nil, nil, err
	}
	return s, drop, nil
}

// checkEmpty refuses a database with rows, or with tables of another program.
func (s *Store) checkEmpty(ctx context.Context) error {
	there, err := s.schema(ctx, s.read)
	if err != nil {
		return err
	}
	for name := range there {
		if !slices.ContainsFunc(tables, func(t table) bool { return t.name == name }) {
			return fmt.Errorf("the database %s is not empty: it has the table %s; name an empty one", s.Name(), name)
		}
	}
	for _, t := range tables {
		if len(there[t.name]) == 0 || t.name == "webhook_mark" { // which a new database has one row in
			continue
		}
		rows, _, err := readOne(ctx, s, s.read, "count rows", onlyPlace[int64], "SELECT count(*) FROM "+t.name)
		if err != nil {
			return err
		}
		if rows > 0 {
			return fmt.Errorf("the database %s is not empty: it has %d rows in %s; name an empty one", s.Name(), rows, t.name)
		}
	}
	return nil
}

// schema returns the columns of each table, and whether they are of the type boolean.
func (s *Store) schema(ctx context.Context, q querier) (map[string]map[string]bool, error) {
	type column struct {
		table, name string
		boolean     bool
	}
	all, err := readAll(ctx, s, q, "read the tables", func(c *column) []any { return []any{&c.table, &c.name, &c.boolean} }, s.dialect.schema())
	found := map[string]map[string]bool{}
	for _, c := range all {
		if found[c.table] == nil {
			found[c.table] = map[string]bool{}
		}
		found[c.table][c.name] = c.boolean
	}
	return found, err
}

// copyRows copies all rows and gives them to whom they belong.
func copyRows(ctx context.Context, from, to *Store, belongs Belonging) (copied []Copied, err error) {
	reading, err := from.write.BeginTx(ctx, nil)
	if err != nil {
		return nil, from.fault("begin", err)
	}
	defer reading.Rollback()
	writing, err := to.write.BeginTx(ctx, nil)
	if err != nil {
		return nil, to.fault("begin", err)
	}
	defer writing.Rollback()
	c := &copier{from, to, reading, writing}
	if copied, err = c.all(ctx); err != nil {
		return nil, err
	}
	if err := to.give(ctx, writing, belongs); err != nil {
		return nil, err
	}
	return copied, to.fault("commit", writing.Commit())
}

// copier copies rows in a transaction of each database.
type copier struct {
	from, to         *Store
	reading, writing *sql.Tx
}

// all copies every table.
func (c *copier) all(ctx context.Context) (copied []Copied, err error) {
	columns, err := c.columns(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.to.exec(ctx, c.writing, "prepare webhook_mark", "DELETE FROM webhook_mark"); err != nil {
		return nil, err
	}
	for _, t := range tables {
		rows, err := c.table(ctx, t.name, columns[t.name])
		if err != nil {
			return nil, err
		}
		copied = append(copied, Copied{t.name, rows})
		if err := c.number(ctx, t); err != nil {
			return nil, err
		}
	}
	return copied, nil
}

// columns returns the columns of all tables at the target. It fails unless both databases
// have the same, in the tables that are copied and no others.
func (c *copier) columns(ctx context.Context) (map[string]map[string]bool, error) {
	from, err := c.from.schema(ctx, c.reading)
	if err != nil {
		return nil, err
	}
	to, err := c.to.schema(ctx, c.writing)
	if err != nil {
		return nil, err
	}
	want := map[string]bool{}
	for _, t := range tables {
		want[t.name] = true
	}
	for name := range maps.Keys(want) {
		if !sameKeys(from[name], to[name]) {
			return nil, fmt.Errorf("the table %s has other columns in %s than in %s, so it cannot be copied", name, c.from.Name(), c.to.Name())
		}
	}
	for _, s := range []struct {
		name  string
		there map[string]map[string]bool
	}{{c.from.Name(), from}, {c.to.Name(), to}} {
		for name := range s.there {
			if !want[name] {
				return nil, fmt.Errorf("the database %s has the table %s, which this berthd does not copy", s.name, name)
			}
		}
	}
	return to, nil
}

func sameKeys(a, b map[string]bool) bool {
	return len(a) > 0 && slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
}

// valuesAtOnce is how many values one statement inserts; SQLite takes 32,766.
const valuesAtOnce = 1000

// table copies the rows of a table, and returns how many there were.
func (c *copier) table(ctx context.Context, name string, columns map[string]bool) (copied int64, err error) {
	names := slices.Sorted(maps.Keys(columns))
	rows, err := c.reading.QueryContext(ctx, "SELECT "+strings.Join(names, ", ")+" FROM "+name)
	if err != nil {
		return 0, c.from.fault("read "+name, err)
	}
	defer rows.Close()
	var values []any
	for rows.Next() {
		row, places := make([]any, len(names)), make([]any, len(names))
		for i := range row {
			places[i] = &row[i]
		}
		if err := rows.Scan(places...); err != nil {
			return 0, c.from.fault("read "+name, err)
		}
		values = append(values, converted(row, names, columns)...)
		copied++
		if len(values)+len(names) > valuesAtOnce {
			if err := c.insert(ctx, name, names, values); err != nil {
				return 0, err
			}
			values = values[:0]
		}
	}
	if err := rows.Err(); err != nil {
		return 0, c.from.fault("read "+name, err)
	}
	return copied, c.insert(ctx, name, names, values)
}

// converted makes numbers of SQLite booleans where the target has these.
func converted(row []any, names []string, boolean map[string]bool) []any {
	for i, name := range names {
		if n, ok := row[i].(int64); ok && boolean[name] {
			row[i] = n != 0
		}
	}
	return row
}

func (c *copier) insert(ctx context.Context, name string, columns []string, values []any) error {
	if len(values) == 0 {
		return nil
	}
	row := "(?" + strings.Repeat(", ?", len(columns)-1) + ")"
	query := "INSERT INTO " + name + " (" + strings.Join(columns, ", ") + ") VALUES " + row + strings.Repeat(", "+row, len(values)/len(columns)-1)
	return c.to.exec(ctx, c.writing, "copy "+name, query, values...)
}

// number makes a table at the target number its rows from where the source would.
func (c *copier) number(ctx context.Context, t table) error {
	if t.numbers == "" {
		return nil
	}
	last, _, err := readOne(ctx, c.from, c.reading, "read the last number of "+t.name, onlyPlace[int64], "SELECT "+c.from.dialect.counter(t.name, t.numbers))
	if err != nil {
		return err
	}
	return c.to.fault("number "+t.name, c.to.dialect.reserve(ctx, c.writing, t.name, t.numbers, last))
}
