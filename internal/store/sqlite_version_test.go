package store

import (
	"log/slog"
	"path/filepath"
	"testing"
)

// Else each commit of the server's own would wake every watcher.
func TestDataVersion_ChangesWithTheCommitsOfOthersOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	opened := func() *Store {
		s, err := Open(t.Context(), Options{Path: path, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s, other := opened(), opened()
	for _, tt := range []struct {
		by      *Store
		changes bool
	}{{s, false}, {other, true}, {s, false}} {
		before, err := dataVersion(t.Context(), s.write)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tt.by.CreateAccount(t.Context(), newAccountID()+"@example.com", "", Key{Hash: []byte(newAccountID())}); err != nil {
			t.Fatal(err)
		}
		after, err := dataVersion(t.Context(), s.write)
		if err != nil || (after != before) != tt.changes {
			t.Errorf("version %d, then %d, %v; want a change: %v", before, after, err, tt.changes)
		}
	}
}
