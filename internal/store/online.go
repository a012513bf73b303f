package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNotAFile is in the error of CopyFile for a database of PostgreSQL.
var ErrNotAFile = errors.New("the database is not a file; copy it by pg_dump")

// CopyFile writes the database as of one moment to a new file, while the store serves, and
// without keeping a change waiting. The file has mode 0600. After an error there is none.
func (s *Store) CopyFile(ctx context.Context, path string) error {
	f, ok := s.dialect.(*sqliteFile)
	if !ok {
		return fmt.Errorf("copy the database: %w", ErrNotAFile)
	}
	if err := f.copyTo(ctx, path); err != nil {
		return s.fault("copy", err)
	}
	return nil
}

// copyTo copies the database through a connection of its own, which sees what was committed
// before and nothing after.
func (f *sqliteFile) copyTo(ctx context.Context, path string) (err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return err
	}
	// SQLite takes an empty file as a new one, and would give its own another mode.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err := file.Close(); err != nil {
		return err
	}
	db, err := connect(f.path, "", 1)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", path)
	return errors.Join(err, db.Close())
}
