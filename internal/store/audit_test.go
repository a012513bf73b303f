package store

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// changesAudit matches a statement that removes or changes entries of the audit.
var changesAudit = regexp.MustCompile("(?i)\\b(DELETE\\s+FROM|UPDATE|REPLACE\\s+INTO|TRUNCATE(\\s+TABLE)?|(DROP|ALTER)\\s+TABLE(\\s+IF\\s+EXISTS)?)\\s+audit\\b[^\"`;]*")

func TestAudit_IsOnlyAddedTo(t *testing.T) {
	var found []string
	for _, pattern := range []string{"*.go", "migrations/*/*.sql"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, changesAudit.FindAllString(string(text), -1)...)
		}
	}
	if ending := []string{"UPDATE audit SET result = ? WHERE id = ?"}; !slices.Equal(found, ending) {
		t.Errorf("the audit is changed by %q, want only the end of a command: %q", found, ending)
	}
}
