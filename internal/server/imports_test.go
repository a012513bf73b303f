package server_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/berth-host/berth/"

// mayImport lists which of our packages each package may import besides those in
// everyones.
var mayImport = map[string][]string{
	"internal/stack":             {"internal/safetext", "internal/stackid", "runtimes"},
	"internal/mcp":               {"internal/stack", "internal/client", "internal/slowbody", "internal/fair"},
	"internal/archive":           {"internal/stack", "internal/safetext"},
	"internal/source":            {"internal/stack", "internal/safetext", "internal/archive", "internal/disk"},
	"internal/source/sourcetest": {"internal/archive", "internal/source"},
	"internal/manifest":          {"internal/stack", "internal/safetext", "runtimes"},
	"internal/docs":              {"internal/stack", "runtimes"},
	"internal/auth":              {"internal/disk"},
	"internal/store":             {"internal/stack"},
	"internal/wire":              {},
	"internal/exchange":          {"internal/socket", "internal/wire"},
	"internal/proxy":             {"internal/stack", "internal/histogram", "internal/wire", "internal/exchange"},
	"internal/streams":           {},
	"internal/chart":             {},
	"internal/edge":              {"internal/proxy", "internal/socket", "internal/streams", "internal/wire", "internal/exchange"},
	"internal/peer":              {"internal/stack", "internal/stackid", "internal/store", "internal/proxy", "internal/streams", "internal/wire", "internal/exchange"},
	"internal/builder":           {"internal/stack", "internal/source", "internal/archive", "internal/manifest", "internal/engine", "internal/fair", "internal/safetext", "runtimes", "images"},
	"internal/firewall":          {"internal/engine"},
	"internal/admission":         {"internal/stack", "internal/engine", "internal/disk"},
	"internal/datadir":           {"internal/stack", "internal/stackid", "internal/logfile", "internal/disk"},
	"internal/engine":            {"internal/disk", "internal/stackid"},
	"internal/engine/enginetest": {"internal/engine", "internal/stackid", "internal/disk"},
	"internal/docker":            {"internal/engine", "internal/disk", "internal/hostfault"},
	"internal/registry":          {"internal/engine", "internal/stackid"},
	"internal/backup":            {},
	"internal/depot":             {"internal/registry", "internal/engine", "internal/stack", "internal/store"},
	"internal/health":            {"internal/hostfault"},
	"internal/doctor":            {"internal/disk"},
	"internal/site":              {"internal/hostfault", "internal/wire"},
	"internal/cluster":           {"internal/stack", "internal/store"},
	"internal/webhook":           {"internal/stack", "internal/store"},
	"internal/mail":              {"internal/stack", "internal/safetext", "internal/auth", "internal/store"},
	"internal/supervisor":        {"internal/archive", "internal/stack", "internal/source", "internal/manifest", "internal/store", "internal/builder", "internal/engine", "internal/proxy", "internal/site", "internal/logfile", "internal/datadir", "internal/admission", "internal/health", "internal/hostfault"},
	"internal/usage":             {"internal/stack", "internal/proxy", "internal/engine", "internal/histogram"},
	"internal/account":           {"internal/stack", "internal/auth", "internal/store"},
	"internal/operator":          {"internal/stack", "internal/store", "internal/account", "internal/usage", "internal/datadir"},
	"internal/domain":            {"internal/stack", "internal/safetext", "internal/auth"},
	"internal/appserver":         {"internal/stack", "internal/store", "internal/archive", "internal/source", "internal/sse", "internal/fair"},
	"internal/api":               {"internal/stack", "internal/source", "internal/stackid", "internal/safetext", "internal/archive", "internal/manifest", "internal/auth", "internal/store", "internal/account", "internal/domain", "internal/appserver", "internal/logfile", "internal/sse", "internal/slowbody", "internal/fair", "internal/usage"},
	"internal/web":               {"internal/fair", "internal/slowbody", "internal/stack", "internal/safetext", "internal/source", "internal/logfile", "internal/auth", "internal/store", "internal/account", "internal/domain", "internal/appserver", "internal/docs", "internal/sse", "internal/chart", "internal/usage"},
	"internal/client":            {"internal/manifest"},
	"internal/cli":               {"internal/client", "internal/manpage", "internal/mcp", "internal/pack", "internal/archive", "internal/manifest", "internal/stack"},
	"images":                     {"internal/engine"},
	"cmd/berthd":                 {"internal/server", "internal/backup", "internal/disk", "internal/manpage", "internal/operator", "internal/reload", "internal/stack"},
	"cmd/berth":                  {"internal/cli"},

	"integration/cluster":    {"images"},
	"integration/invariants": {"internal/stack"},

	"integration/bench":       {"images", "integration/cluster", "internal/auth", "internal/datadir", "internal/engine", "internal/peer", "internal/proxy", "internal/stack", "internal/store", "internal/store/postgrestest", "integration/hog", "runtimes"},
	"integration/bench/front": {"internal/edge", "internal/proxy", "internal/site", "internal/stack"},
	"integration/bench/hooks": {"internal/auth", "internal/redis", "internal/stack", "internal/stackid", "internal/store", "internal/webhook"},
}

// wiring is the package that may import every other one.
const wiring = "internal/server"

// everyones lists the packages that any package may import.
var everyones = []string{"internal/failpoint", "internal/pause", "internal/plainjson", "internal/lastlines"}

// only is which packages may import a library, by the beginning of its path.
var only = map[string][]string{
	"github.com/docker/docker":   {"internal/docker", "integration/bench", "integration/cluster", "integration/invariants"},
	"github.com/docker/go-conn":  {"internal/docker"},
	"github.com/redis/go-redis":  {"internal/redis"},
	"github.com/gofiber/fiber":   {"internal/appserver", "internal/api", "internal/web"},
	"github.com/a-h/templ":       {"internal/web"},
	"database/sql":               {"internal/store", "internal/usage", "integration/invariants"},
	"github.com/jackc/pgx":       {"internal/store", "internal/store/postgrestest"},
	"github.com/caddyserver":     {"internal/certs"},
	"github.com/miekg/dns":       {"internal/domain", "internal/domain/dnstest"},
	"github.com/prometheus":      {"internal/metrics"},
	"github.com/alicebob/minire": {"internal/redis"},
	"code.dny.dev/ssrf":          {"internal/webhook"},
	"charm.land":                 {"internal/cli"},
	"github.com/go-git/go-git":   {"internal/pack"},
	"github.com/modelcontextpro": {"internal/mcp"},
	"github.com/creack/pty":      {"integration/terminal"},
	"github.com/alexedwards/arg": {"internal/auth"},
	"github.com/hbollon/go-edli": {"internal/manifest"},
	"golang.org/x/mod":           {"runtimes"},
	"github.com/google/go-conta": {"internal/registry"},
	"github.com/coreos":          {"internal/server"},
	"github.com/muesli":          {"internal/manpage"},
	"github.com/gaissmai/bart":   {"internal/operator"},
	"github.com/wneessen/go-mai": {"internal/mail"},
	"filippo.io/age":             {"internal/backup"},
	"github.com/emersion/go-s":   {"internal/mail/mailtest"},
}

// never is which libraries a package may not import, by the beginning of their paths.
var never = map[string][]string{
	"internal/supervisor": {"os", "syscall", "golang.org/x/sys"},
	"internal/wire":       {"net/http"},
}

func TestImports_PointOneWay(t *testing.T) {
	unused := rows()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../")
		for _, spec := range file.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			if fault := importFault(pkg, imported); fault != "" {
				t.Error(fault)
			}
			maps.DeleteFunc(unused, func(row row, _ bool) bool { return row.permits(pkg, imported) })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for row := range unused {
		t.Errorf("%s does not import %s, though a list permits it", row.pkg, row.imports)
	}
}

// row is one permission in mayImport or only.
type row struct{ pkg, imports string }

// permits reports whether the row permits an import: of a package of ours as it is named,
// of a library by the beginning of its path.
func (r row) permits(pkg, imported string) bool {
	library := !strings.HasPrefix(r.imports, module)
	return pkg == r.pkg && (imported == r.imports || library && strings.HasPrefix(imported, r.imports))
}

// rows returns all permissions.
func rows() map[row]bool {
	all := map[row]bool{}
	for pkg, ours := range mayImport {
		for _, name := range ours {
			all[row{pkg, module + name}] = true
		}
	}
	for library, owners := range only {
		for _, pkg := range owners {
			all[row{pkg, library}] = true
		}
	}
	return all
}

func TestImports_OfAPackageThatIsNotListedAreRefused(t *testing.T) {
	for _, tt := range []struct {
		pkg, imported string
		refused       bool
	}{
		{"internal/unlisted", module + "internal/stack", true},
		{"internal/unlisted", module + everyones[0], false},
		{"internal/unlisted", "database/sql", true},
		{"internal/unlisted", "context", false},
		{"internal/unlisted", "syscall", false},
		{"internal/supervisor", "syscall", true},
		{"internal/supervisor", "os", true},
		{"internal/store", module + "internal/stack", false},
		{"internal/store", module + "internal/supervisor", true},
		{wiring, module + "internal/supervisor", false},
	} {
		if fault := importFault(tt.pkg, tt.imported); (fault != "") != tt.refused {
			t.Errorf("%s imports %s: refused %q, want %v", tt.pkg, tt.imported, fault, tt.refused)
		}
	}
}

// importFault says why a package may not import another; it is "" for one that
// it may.
func importFault(pkg, imported string) string {
	if ours, ok := strings.CutPrefix(imported, module); ok {
		if pkg != wiring && !slices.Contains(everyones, ours) && !slices.Contains(mayImport[pkg], ours) {
			return fmt.Sprintf("%s imports %s, which mayImport does not list for it", pkg, ours)
		}
		return ""
	}
	if slices.ContainsFunc(never[pkg], func(library string) bool { return strings.HasPrefix(imported, library) }) {
		return fmt.Sprintf("%s imports %s, which never lists for it", pkg, imported)
	}
	for library, owners := range only {
		if strings.HasPrefix(imported, library) && !slices.Contains(owners, pkg) {
			return fmt.Sprintf("%s imports %s, which is for %v", pkg, imported, owners)
		}
	}
	return ""
}
