package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/stackid"
	"github.com/berth-host/berth/internal/store"
)

// writerFile makes the test binary a process that creates stacks in the
// database of that name until it is killed.
const writerFile = "BERTH_TEST_STORE_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerFile); path != "" {
		fmt.Fprintln(os.Stderr, writeForEver(context.Background(), path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver prints the id of each stack once it is stored.
func writeForEver(ctx context.Context, path string) error {
	s, err := store.Open(ctx, options(path))
	for err == nil {
		k := newStack("192.0.2.1")
		if err = s.Create(ctx, k, []stack.Event{k.Created(), stack.ServiceBuilding("web", 1, 1)}); err == nil {
			_, err = fmt.Println(k.ID)
		}
	}
	return err
}

func TestStore_KeepsWhatAKilledProcessHadCommitted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	var ids []string
	for range 3 {
		ids = append(ids, killWriter(t, path, 20)...)
		s := sqliteFile(path).open(t)
		for _, id := range ids {
			if get(t, s, id); len(eventsOf(t, s, id)) != 2 {
				t.Errorf("%s has the events %v, want both", id, eventsOf(t, s, id))
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var verdict string
	if err := sqliteFile(path).raw(t).QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity check: %s, %v", verdict, err)
	}
}

// killWriter kills a writing process after it created n stacks, and returns
// the ids of all that it reported stored.
func killWriter(t *testing.T, path string, n int) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerFile+"="+path)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if stackid.Valid(lines.Text()) {
			ids = append(ids, lines.Text())
		}
		if len(ids) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if cmd.Wait(); len(ids) < n {
		t.Fatalf("the writer ended by itself after %d stacks: %s", len(ids), &complaint)
	}
	return ids
}
