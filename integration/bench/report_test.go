package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReport_KeepsWhatIsWrittenByHand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	tb := table{rows: []row{{what: "first"}}}
	if err := writeReport(path, &tb, "a machine"); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const chaos = "\n## Chaos\n\nAn hour of it.\n"
	if err := os.WriteFile(path, append(made, chaos...), 0o644); err != nil {
		t.Fatal(err)
	}
	tb.rows[0].what = "second"
	if err := writeReport(path, &tb, "a machine"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(string(made), "first", "second", 1) + chaos
	if string(page) != want {
		t.Errorf("the page is\n%s\nwant\n%s", page, want)
	}
}
