package server_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/berth-host/berth/"

// mayImport is which of our packages each package may import; the packages
// that are not listed may import all of them.
var mayImport = map[string][]string{
	"internal/failpoint":  {},
	"internal/plain":      {},
	"internal/stack":      {"internal/plain"},
	"internal/sse":        {},
	"internal/metrics":    {},
	"internal/auth":       {},
	"internal/docker":     {},
	"internal/firewall":   {},
	"internal/redis":      {},
	"internal/site":       {},
	"internal/certs":      {},
	"internal/logfile":    {},
	"internal/pace":       {},
	"internal/mcp":        {"internal/pace"},
	"runtimes":            {},
	"images":              {},
	"internal/source":     {"internal/stack", "runtimes"},
	"internal/docs":       {"internal/stack", "runtimes"},
	"internal/store":      {"internal/stack"},
	"internal/proxy":      {"internal/stack"},
	"internal/edge":       {"internal/proxy"},
	"internal/build":      {"internal/stack", "internal/source", "internal/docker", "runtimes", "images"},
	"internal/webhook":    {"internal/stack", "internal/store"},
	"internal/supervisor": {"internal/stack", "internal/source", "internal/store", "internal/build", "internal/docker", "internal/proxy", "internal/site", "internal/logfile", "internal/firewall", "internal/plain"},
	"internal/account":    {"internal/stack", "internal/auth", "internal/store"},
	"internal/api":        {"internal/stack", "internal/plain", "internal/source", "internal/auth", "internal/store", "internal/account", "internal/supervisor", "internal/sse", "internal/pace"},
	"internal/web":        {"internal/stack", "internal/source", "internal/auth", "internal/store", "internal/account", "internal/supervisor", "internal/docs", "internal/sse"},
	"internal/client":     {"internal/source"},
	"internal/pack":       {},
	"internal/pty":        {},
	"internal/cli":        {"internal/client", "internal/mcp", "internal/pack", "internal/source", "internal/stack"},
	"cmd/berthd":          {"internal/server"},
	"cmd/berth":           {"internal/cli"},
}

// everyones is what any package may import.
const everyones = "internal/failpoint"

// only is which packages may import a library, by the beginning of its path.
var only = map[string][]string{
	"github.com/docker/docker":   {"internal/docker"},
	"github.com/redis/go-redis":  {"internal/redis"},
	"github.com/gofiber/fiber":   {"internal/api", "internal/web"},
	"github.com/a-h/templ":       {"internal/web"},
	"database/sql":               {"internal/store"},
	"github.com/caddyserver":     {"internal/certs"},
	"github.com/prometheus":      {"internal/metrics"},
	"github.com/alicebob/minire": {"internal/redis"},
	"code.dny.dev/ssrf":          {"internal/webhook"},
	"charm.land":                 {"internal/cli"},
	"github.com/go-git/go-git":   {"internal/pack"},
	"github.com/modelcontextpro": {"internal/mcp"},
}

func TestImports_PointOneWay(t *testing.T) {
	checked := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../")
		if strings.HasPrefix(pkg, "integration") || strings.HasPrefix(pkg, "examples") {
			return nil
		}
		for _, spec := range file.Imports {
			checked++
			checkImport(t, pkg, strings.Trim(spec.Path.Value, `"`))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked == 0 {
		t.Error("no import was checked")
	}
}

func checkImport(t *testing.T, pkg, imported string) {
	t.Helper()
	if ours, ok := strings.CutPrefix(imported, module); ok {
		if allowed, listed := mayImport[pkg]; listed && ours != everyones && !slices.Contains(allowed, ours) {
			t.Errorf("%s imports %s", pkg, ours)
		}
		return
	}
	for library, owners := range only {
		if strings.HasPrefix(imported, library) && !slices.Contains(owners, pkg) {
			t.Errorf("%s imports %s, which is for %v", pkg, imported, owners)
		}
	}
}
