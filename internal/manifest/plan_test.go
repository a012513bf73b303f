package manifest

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

var update = flag.Bool("update", false, "write the plans of testdata anew")

const golden = "golden"

// TestResolve_Plans resolves each small source tree of testdata and compares
// its plan, or the faults of its manifest, with the golden one beside it.
func TestResolve_Plans(t *testing.T) {
	files, err := filepath.Glob("testdata/plans/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no plans in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := cut(a)
			got := resolvedText(tree(a), Request{})
			if *update {
				a.Files = append(a.Files, txtar.File{Name: golden, Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// cut takes the golden text out of a tree.
func cut(a *txtar.Archive) string {
	last := len(a.Files) - 1
	if a.Files[last].Name != golden {
		return ""
	}
	text := string(a.Files[last].Data)
	a.Files = a.Files[:last]
	return text
}

func tree(a *txtar.Archive) fstest.MapFS {
	src := fstest.MapFS{}
	for _, f := range a.Files {
		src[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	return src
}

func resolvedText(src fstest.MapFS, req Request) string {
	m, err := Resolve(src, "", req)
	if err != nil {
		var fault *stack.Error
		if !errors.As(err, &fault) || fault.Kind != stack.Unprocessable {
			return "not an Unprocessable: " + err.Error() + "\n"
		}
		return strings.ReplaceAll(fault.Detail, strings.Join(runtimes.Names(), ", "), "{runtimes}") + "\n"
	}
	var b bytes.Buffer
	b.WriteString("stack " + m.Name + "\n")
	if err := WritePlan(&b, m.Services...); err != nil {
		return err.Error()
	}
	return b.String()
}

func TestWritePlan_ShowsNoValues(t *testing.T) {
	var b bytes.Buffer
	err := WritePlan(&b, stack.Spec{Name: "web", Env: map[string]stack.Env{
		"KEY": {Value: "hunter2"}, "TOKEN": {Generate: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.Contains(got, "hunter2") || !strings.Contains(got, "KEY, TOKEN (generated)") {
		t.Errorf("plan:\n%s", got)
	}
}

func TestWritePlan_TellsWhatIsNotInTheSource(t *testing.T) {
	var b bytes.Buffer
	if err := WritePlan(&b, stack.Spec{Name: "web", Lost: []stack.Lost{{Entry: `"out" -> "/"`, Reason: "a reason"}, {Entry: "and 3 more"}}}); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, "  left out      \"out\" -> \"/\"  # a reason\n  left out      and 3 more\n") {
		t.Errorf("plan:\n%s", got)
	}
}

func TestWritePlan_ReportsAFailingWriter(t *testing.T) {
	failed := errors.New("disk full")
	if err := WritePlan(failing{failed}, stack.Spec{Name: "web"}); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
