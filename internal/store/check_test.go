package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/store"
)

func TestCheck_LooksAtADatabaseBesideItsServer(t *testing.T) {
	path := newFile(t)
	s := path.open(t)
	create(t, s)
	c, err := store.Check(t.Context(), store.Options{Path: string(path)})
	if err != nil || c.Stacks != 1 || c.Version != c.Newest || c.Newest < 17 {
		t.Errorf("Check = %+v, %v", c, err)
	}
	create(t, s) // nothing is locked
}

func TestCheck_LooksAtADatabaseWithoutItsServer(t *testing.T) {
	path := newFile(t)
	s, err := store.Open(t.Context(), options(string(path)))
	if err != nil {
		t.Fatal(err)
	}
	create(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := store.Check(t.Context(), store.Options{Path: string(path)}); err != nil || c.Stacks != 1 {
		t.Errorf("Check = %+v, %v", c, err)
	}
}

func TestCheck_SaysWhatIsWrong(t *testing.T) {
	newer := newFile(t)
	create(t, newer.open(t))
	newer.exec(t, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
	dir := t.TempDir()
	text, empty := filepath.Join(dir, "text.db"), filepath.Join(dir, "empty.db")
	for path, content := range map[string]string{text: strings.Repeat("not a database\n", 1000), empty: ""} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		string(newer): "version 9999",
		text:          "not a database",
		empty:         "not a database of Berth",
		dir + "/none": "unable to open",
	} {
		_, err := store.Check(t.Context(), store.Options{Path: path})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want a line with %q", path, err, want)
		}
	}
	if _, err := os.Stat(dir + "/none"); !os.IsNotExist(err) {
		t.Error("it made a database")
	}
}

func TestCheck_LooksAtPostgreSQL(t *testing.T) {
	address := newPostgres(t).(postgres)
	c, err := store.Check(t.Context(), address.options())
	if err != nil || c.Version != 0 || c.Newest < 17 {
		t.Errorf("without tables: %+v, %v", c, err)
	}
	create(t, address.open(t))
	c, err = store.Check(t.Context(), address.options())
	if err != nil || c.Stacks != 1 || c.Version != c.Newest {
		t.Errorf("Check = %+v, %v", c, err)
	}
	address.exec(t, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)")
	if _, err = store.Check(t.Context(), address.options()); err == nil || !strings.Contains(err.Error(), "version 9999") || !strings.Contains(err.Error(), address.name()) {
		t.Errorf("of a newer program: %v", err)
	}
	nobody := store.Options{Postgres: "postgres://berth@127.0.0.1:1/berth"}
	if _, err = store.Check(t.Context(), nobody); err == nil || !strings.Contains(err.Error(), nobody.Name()) {
		t.Errorf("nobody answers: %v", err)
	}
}
