package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Condition is the state of a database.
type Condition struct {
	Version int64 // of its tables; 0 for a database of PostgreSQL that has none yet
	Newest  int64 // version that this program knows
	Stacks  int   // that are not deleted
}

// Check looks at a database without changing it, also beside a server that has it open. The
// error says what is wrong with it.
func Check(ctx context.Context, opts Options) (c Condition, err error) {
	d, err := opts.dialect()
	if err != nil {
		return c, err
	}
	switch d := d.(type) {
	case *sqliteFile:
		c, err = d.check(ctx)
	case *postgres:
		c, err = d.check(ctx)
	}
	if err == nil && c.Version > c.Newest {
		err = fmt.Errorf("it has version %d and this berthd knows up to %d; start the berthd that wrote it, or a newer one", c.Version, c.Newest)
	}
	if err != nil {
		return c, fmt.Errorf("database %s: %w", d.name(), err)
	}
	return c, nil
}

func (f *sqliteFile) check(ctx context.Context) (c Condition, err error) {
	db, err := connect(f.path, "mode=ro&_query_only=1", 1)
	if err != nil {
		return c, err
	}
	defer db.Close() // nothing was written
	if err := damage(ctx, db); err != nil {
		return c, err
	}
	return look(ctx, db, "sqlite")
}

func (p *postgres) check(ctx context.Context) (c Condition, err error) {
	db := p.pool(1, map[string]string{"default_transaction_read_only": "on"}, nil)
	defer db.Close() // nothing was written
	conn, err := db.Conn(ctx)
	if err != nil {
		return c, err
	}
	var made bool
	versionErr := checkVersion(ctx, conn)
	err = conn.QueryRowContext(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&made)
	if err := cmp.Or(versionErr, err, conn.Close()); err != nil {
		return c, err
	}
	if made {
		return look(ctx, db, "postgres")
	}
	c.Newest, err = newest("postgres")
	return c, err
}

// look reads the condition of a database whose migrations are in a folder.
func look(ctx context.Context, db *sql.DB, folder string) (c Condition, err error) {
	if c.Newest, err = newest(folder); err != nil {
		return c, err
	}
	err = db.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&c.Version)
	if err != nil {
		return c, fmt.Errorf("it is not a database of Berth: %w", err)
	}
	err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM stacks WHERE status <> 'deleted'").Scan(&c.Stacks)
	return c, err
}

// newest returns the number of the newest migration in a folder.
func newest(folder string) (version int64, err error) {
	entries, err := fs.ReadDir(migrations, "migrations/"+folder)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		text, _, _ := strings.Cut(e.Name(), "_")
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, err
		}
		version = max(version, number)
	}
	return version, nil
}
