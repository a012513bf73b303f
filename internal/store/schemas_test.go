package store

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
)

var update = flag.Bool("update", false, "write the databases of earlier schemas into testdata, those that are missing")

// earlierDir has the database of a server of the ninth schema, from which those in
// testdata/schemas were made: the later ones by the migrations of their time, and the earlier
// ones with what it has in the columns that there were.
const earlierDir = "../server/testdata/earlier"

// What that server had.
const (
	earlierStack  = "stk_d92911442059"
	earlierEvents = 18 // of all stacks
)

func fixture(version int64) string {
	return filepath.Join("testdata", "schemas", fmt.Sprintf("%05d.sql", version))
}

// A database of each schema that there has been is one of today's once it is opened.
func TestOpen_TakesADatabaseOfEachEarlierSchema(t *testing.T) {
	last, err := newest("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for version := int64(1); version <= last; version++ {
			writeFixture(t, version)
		}
	}
	want := tablesOf(t, filepath.Join(t.TempDir(), "fresh.db"), "")
	for version := int64(1); version <= last; version++ {
		t.Run(strconv.FormatInt(version, 10), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(fixture(version))
			if err != nil {
				t.Fatalf("%v; keep a database of this schema: go test ./internal/store -run EachEarlierSchema -update", err)
			}
			if diff := cmp.Diff(want, tablesOf(t, filepath.Join(t.TempDir(), "berth.db"), string(text))); diff != "" {
				t.Errorf("the tables are not those of a new database:\n%s", diff)
			}
		})
	}
}

// tablesOf opens a database that begins with statements, checks that what earlierDir had is
// there if there are any, and returns the columns of its tables.
func tablesOf(t *testing.T, path, statements string) map[string]string {
	t.Helper()
	if statements != "" {
		exec(t, path, statements)
	}
	key, err := auth.LoadKey(filepath.Join(copyOfKey(t), "key"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Options{Path: path, Sealer: auth.NewSealer(key), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if statements != "" {
		requireEarlier(t, s)
	}
	tables := map[string]string{}
	for _, name := range column(t, s.read, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
		columns := column(t, s.read, `SELECT name || ' ' || type || ' ' || "notnull" || ' ' || ifnull(dflt_value, '') || ' ' || pk FROM pragma_table_info(?) ORDER BY name`, name)
		tables[name] = strings.Join(columns, ", ")
	}
	indexes := column(t, s.read, "SELECT name FROM sqlite_schema WHERE type = 'index' AND name NOT LIKE 'sqlite_%' ORDER BY name")
	tables["indexes"] = strings.Join(indexes, ", ")
	return tables
}

// requireEarlier requires what the earlier server had, and that it can be changed.
func requireEarlier(t *testing.T, s *Store) {
	t.Helper()
	kept, err := s.Kept(t.Context(), "")
	if err != nil || len(kept) != 2 {
		t.Fatalf("there are %d stacks, %v", len(kept), err)
	}
	events := 0
	for _, k := range kept {
		all, err := s.Events(t.Context(), k.ID, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		events += len(all)
	}
	if events != earlierEvents {
		t.Errorf("there are %d events, want %d", events, earlierEvents)
	}
	changed, err := s.Update(t.Context(), earlierStack, func(k *stack.Stack) ([]stack.Event, error) {
		k.Name = "renamed"
		return []stack.Event{{Type: stack.EventExtended}}, nil
	})
	if err != nil || changed.Name != "renamed" || len(changed.Generation.Services) == 0 {
		t.Errorf("the changed stack is %+v, %v", changed, err)
	}
}

// copyOfKey returns a folder with the key of the earlier server, which only its owner may read.
func copyOfKey(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(earlierDir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// writeFixture writes a database of a schema, unless it is kept already.
func writeFixture(t *testing.T, version int64) {
	t.Helper()
	if _, err := os.Stat(fixture(version)); err == nil {
		return
	}
	earlier, err := os.ReadFile(filepath.Join(earlierDir, "berth.db"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	from, to := filepath.Join(dir, "earlier.db"), filepath.Join(dir, "berth.db")
	if err := os.WriteFile(from, earlier, 0o600); err != nil {
		t.Fatal(err)
	}
	const ofEarlier = 9
	if version >= ofEarlier {
		to = from
	}
	migrateTo(t, to, version)
	if version < ofEarlier {
		fill(t, to, from)
	}
	if err := os.MkdirAll(filepath.Dir(fixture(version)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fixture(version), []byte(dump(t, to)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func migrateTo(t *testing.T, path string, version int64) {
	t.Helper()
	db := openRaw(t, path)
	files, err := fs.Sub(migrations, "migrations/sqlite")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true), goose.WithAllowOutofOrder(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
}

// fill copies the rows of another database into the columns that both have.
func fill(t *testing.T, to, from string) {
	t.Helper()
	db := openRaw(t, to)
	if _, err := db.Exec("ATTACH ? AS earlier", from); err != nil {
		t.Fatal(err)
	}
	for _, table := range column(t, db, "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%'") {
		theirs := column(t, db, "SELECT name FROM pragma_table_info(?, 'earlier')", table)
		both := slices.DeleteFunc(column(t, db, "SELECT name FROM pragma_table_info(?, 'main')", table), func(name string) bool { return !slices.Contains(theirs, name) })
		if len(both) == 0 {
			continue
		}
		columns := strings.Join(both, ", ")
		if _, err := db.Exec(fmt.Sprintf("DELETE FROM main.%[1]s; INSERT INTO main.%[1]s (%[2]s) SELECT %[2]s FROM earlier.%[1]s", table, columns)); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
	}
}

// dump returns the statements that make a database anew.
func dump(t *testing.T, path string) string {
	t.Helper()
	db := openRaw(t, path)
	var text strings.Builder
	for _, statement := range column(t, db, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type = 'index', rowid") {
		text.WriteString(statement + ";\n")
	}
	for _, table := range column(t, db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND (name = 'sqlite_sequence' OR name NOT LIKE 'sqlite_%') ORDER BY name = 'sqlite_sequence', rowid") {
		names := column(t, db, "SELECT name FROM pragma_table_info(?)", table)
		quoted := make([]string, len(names))
		for i, name := range names {
			quoted[i] = "quote(" + name + ")"
		}
		if table == "sqlite_sequence" {
			text.WriteString("DELETE FROM sqlite_sequence;\n")
		}
		for _, row := range column(t, db, "SELECT "+strings.Join(quoted, " || ', ' || ")+" FROM "+table) {
			fmt.Fprintf(&text, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(names, ", "), row)
		}
	}
	return text.String()
}

func openRaw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := connect(path, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t *testing.T, path, statements string) {
	t.Helper()
	db := openRaw(t, path)
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// column returns the values of the first column of what a query finds.
func column(t *testing.T, db *sql.DB, query string, args ...any) (values []string) {
	t.Helper()
	rows, err := db.QueryContext(context.WithoutCancel(t.Context()), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}
