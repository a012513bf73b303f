package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// migrate brings the tables to the newest version in a folder of migrations. It leaves
// the database of a newer program alone, and refuses it unless newer is set.
func migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, folder string, newer bool, log *slog.Logger) error {
	files, err := fs.Sub(migrations, "migrations/"+folder)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true),
		goose.WithAllowOutofOrder(true)) // 5 was written after 7; no other is to be
	if err != nil {
		return err
	}
	current, target, err := provider.GetVersions(ctx)
	if err != nil {
		return err
	}
	if current > target && newer {
		return nil
	}
	if current > target {
		return fmt.Errorf("it has version %d and this berthd knows up to %d; start the berthd that wrote it, or a newer one", current, target)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return err
	}
	if current == 0 {
		return nil // a new database has no history
	}
	for _, r := range results {
		log.Info("migrated the database", "version", r.Source.Version, "duration", r.Duration)
	}
	return nil
}
