package store

import (
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// firstShared is the first migration that servers of the version before may meet while they
// run: the nodes of a cluster are updated one after the other.
const firstShared = 20

var (
	breaking = regexp.MustCompile(`(?i)\b(DROP|RENAME|TRUNCATE|ALTER COLUMN|SET NOT NULL|DELETE FROM)\b|\bADD (CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN)\b`)
	required = regexp.MustCompile(`(?i)\bADD COLUMN\b[^;]*\bNOT NULL\b`)
	comments = regexp.MustCompile(`--[^\n]*`)
	defaults = regexp.MustCompile(`(?i)\bDEFAULT\b`)
)

// breaks returns the statements of a migration that a server of the version before does not
// work with: what it reads or writes is gone, or what it inserts lacks a value.
func breaks(migration string) (found []string) {
	for statement := range strings.SplitSeq(comments.ReplaceAllString(migration, ""), ";") {
		statement = strings.Join(strings.Fields(statement), " ")
		if breaking.MatchString(statement) || required.MatchString(statement) && !defaults.MatchString(statement) {
			found = append(found, statement)
		}
	}
	return found
}

func TestMigrations_FitTheVersionBefore(t *testing.T) {
	looked := 0
	for _, folder := range []string{"sqlite", "postgres"} {
		files, err := fs.Glob(migrations, "migrations/"+folder+"/*.sql")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			number, _, _ := strings.Cut(path.Base(file), "_")
			if n, err := strconv.Atoi(number); err != nil || n < firstShared {
				continue
			}
			text, err := fs.ReadFile(migrations, file)
			if err != nil {
				t.Fatal(err)
			}
			looked++
			for _, statement := range breaks(string(text)) {
				t.Errorf("%s: a server of the version before does not work after %q; spread the change over two versions", file, statement)
			}
		}
	}
	if looked == 0 {
		t.Error("no migration was looked at")
	}
}

func TestBreaks_KnowsWhatTheVersionBeforeDoesNotStand(t *testing.T) {
	for statement, want := range map[string]bool{
		"ALTER TABLE nodes ADD COLUMN zone TEXT NOT NULL DEFAULT ''": false,
		"ALTER TABLE nodes ADD COLUMN zone TEXT":                     false,
		"CREATE TABLE zones (id TEXT NOT NULL)":                      false,
		"CREATE INDEX stacks_node ON stacks (node)":                  false,
		"ALTER TABLE nodes ADD COLUMN zone TEXT NOT NULL":            true,
		"ALTER TABLE nodes DROP COLUMN room":                         true,
		"ALTER TABLE nodes RENAME COLUMN room TO space":              true,
		"ALTER TABLE nodes ALTER COLUMN room TYPE TEXT":              true,
		"DROP TABLE IF EXISTS moves":                                 true,
	} {
		if got := len(breaks("-- DROP nothing\n"+statement+";\n")) > 0; got != want {
			t.Errorf("%s: breaks %v, want %v", statement, got, want)
		}
	}
}
