package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// Condition is the state of a database's file.
type Condition struct {
	Version int64 // of its tables
	Newest  int64 // version that this program knows
	Stacks  int   // that are not deleted
}

// Check looks at a database without changing it, also beside a server that has it open. The
// error says what is wrong with it.
func Check(ctx context.Context, path string) (c Condition, err error) {
	fault := func(err error) error { return fmt.Errorf("database %s: %w", path, err) }
	if path, err = filepath.Abs(path); err != nil {
		return c, fault(err)
	}
	if c.Newest, err = newest(); err != nil {
		return c, err
	}
	db, err := connect(path, "mode=ro&_query_only=1", 1)
	if err != nil {
		return c, fault(err)
	}
	defer db.Close() // nothing was written
	if err := c.look(ctx, db); err != nil {
		return c, fault(err)
	}
	if c.Version > c.Newest {
		return c, fault(fmt.Errorf("it has version %d and this berthd knows up to %d; start the berthd that wrote it, or a newer one", c.Version, c.Newest))
	}
	return c, nil
}

// look reads the condition of a database.
func (c *Condition) look(ctx context.Context, db *sql.DB) error {
	if err := damage(ctx, db); err != nil {
		return err
	}
	err := db.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&c.Version)
	if err != nil {
		return errors.Join(errors.New("it is not a database of Berth"), err)
	}
	return db.QueryRowContext(ctx, "SELECT COUNT(*) FROM stacks WHERE status <> 'deleted'").Scan(&c.Stacks)
}

// newest returns the number of the newest migration.
func newest() (version int64, err error) {
	err = fs.WalkDir(migrations, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, _, _ := strings.Cut(d.Name(), "_")
		number, err := strconv.ParseInt(text, 10, 64)
		version = max(version, number)
		return err
	})
	return version, err
}
