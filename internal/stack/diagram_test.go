package stack

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lifecycle's picture into the README")

const readme = "../../README.md"

// diagram draws the lifecycle table for the README.
func diagram() string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> building: POST /v0/stacks\n")
	for _, row := range transitions {
		to := string(row.to)
		if row.to == Deleted {
			to = "[*]"
		}
		fmt.Fprintf(&b, "    %s --> %s: %s\n", row.from, to, row.trigger)
	}
	b.WriteString("```\n")
	return b.String()
}

func TestReadme_ShowsTheLifecycleTable(t *testing.T) {
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "```mermaid\n")
	_, after, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatal("the README has no mermaid block")
	}
	want := before + diagram() + after
	if string(text) == want {
		return
	}
	if !*update {
		t.Fatal("the README's picture is not the lifecycle table's; run go test ./internal/stack -update")
	}
	if err := os.WriteFile(readme, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

var (
	inCode   = regexp.MustCompile("`([a-z]+)`")
	statuses = []Status{Building, Live, Failed, Expired}
)

// TestReference_HasTheLifecycleTable reads the table of docs/api.md, "States and
// transitions", whose rows may stand for several.
func TestReference_HasTheLifecycleTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## States and transitions\n")
	section, _, _ = strings.Cut(section, "\n### ")
	var got []transition
	for line := range strings.Lines(section) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 || !strings.Contains(cells[0], "`") && cells[0] != "| any" {
			continue
		}
		from := statuses
		if cells[0] != "| any" {
			from = nil
			for _, m := range inCode.FindAllStringSubmatch(cells[0], -1) {
				from = append(from, Status(m[1]))
			}
		}
		for _, status := range from {
			to := Status(strings.Trim(cells[2], "`"))
			if to == "unchanged" {
				to = status
			}
			got = append(got, transition{status, Trigger(cells[1]), to})
		}
	}
	for _, row := range transitions {
		if !slices.Contains(got, row) {
			t.Errorf("docs/api.md has no row for %s, %s, %s", row.from, row.trigger, row.to)
		}
	}
	if len(got) != len(transitions) {
		t.Errorf("docs/api.md has %d transitions, want %d", len(got), len(transitions))
	}
}
