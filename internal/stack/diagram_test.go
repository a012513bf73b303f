package stack

import (
	"flag"
	"fmt"
	"os"
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
