package server_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayEmbed lists the types of the standard library and of other modules that a struct
// may embed: mutexes, and what it embeds to satisfy an interface.
var mayEmbed = []string{
	"sync.Mutex",
	"sync.RWMutex",

	"context.Context",
	"io.ReadCloser",
	"io.Reader",
	"database/sql/driver.Connector",
	"net.Conn",
	"net.Listener",
	"net/http.Handler",
	"net/http.ResponseWriter",
	"net/http.RoundTripper",

	"crypto/tls.Conn",                     // as a net.Conn
	"github.com/jackc/pgx/v5/stdlib.Conn", // as a database/sql/driver.Conn with all that the standard library asks of one
	"github.com/muesli/roff.Document",     // as a mango.Builder
	"net.TCPConn",                         // as a net.Conn that can be closed one way
	"net.TCPListener",                     // as a net.Listener
	"net/http/httptest.ResponseRecorder",  // as an http.ResponseWriter
	"go.opentelemetry.io/otel/trace/noop.TracerProvider",
	"go.opentelemetry.io/otel/trace/noop.Tracer",
	"go.opentelemetry.io/otel/trace/noop.Span",
}

// A struct that embeds another has the methods and fields of both under one name, and a
// line no longer says which of them it reaches. So structs name what they hold. Only
// fakes of tests may embed an interface of ours; all that is not ours is in mayEmbed.
func TestStructs_DoNotEmbedEachOther(t *testing.T) {
	sources := map[string]string{}
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(d.Name(), ".") && d.Name() != ".." && d.IsDir()
		if hidden || d.Name() == "testdata" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		text, err := os.ReadFile(name)
		sources[strings.TrimPrefix(filepath.ToSlash(name), "../../")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	faults, err := embeddingFaults(sources)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
	if len(sources) < 100 {
		t.Errorf("only %d files were checked", len(sources))
	}
}

func TestStructs_ThatEmbedEachOtherAreRefused(t *testing.T) {
	const other = "package other\ntype Struct struct{}\ntype Renamed Struct\ntype Interface interface{ Do() }\ntype Number int"
	for _, tt := range []struct {
		file, field string
		fault       bool
	}{
		{"x.go", "named other.Struct", false},
		{"x.go", "other.Struct", true},
		{"x.go", "*other.Struct", true},
		{"x.go", "other.Renamed", true},
		{"x.go", "generic[int]", true},
		{"x.go", "other.Number", false},
		{"x.go", "other.Interface", true},
		{"x_test.go", "other.Interface", false},
		{"x_test.go", "*local", true},
		{"x.go", "local", true},
		{"x.go", "alias", true},
		{"x.go", "Interface", true},
		{"x.go", "error", false},
		{"x.go", "sync.Mutex", false},
		{"x.go", "net.Conn", false},
		{"x.go", "*net.TCPConn", false},
		{"x.go", "*bytes.Buffer", true},
		{"x.go", "bytes.Buffer", true},
		{"x_test.go", "*testing.T", true},
		{"x.go", "fmt.Stringer", true},
		{"x.go", "*foreign.Client", true},
	} {
		file := "internal/x/" + tt.file
		faults, err := embeddingFaults(map[string]string{
			"internal/other/other.go": other,
			"internal/x/types.go":     "package x\ntype local struct{}\ntype alias = local\ntype generic[T any] struct{}\ntype Interface interface{ Do() }",
			file: "package x\nimport (\n\"bytes\"\n\"fmt\"\n\"net\"\n\"sync\"\n\"testing\"\n\"example.com/foreign\"\n\"" + module + "internal/other\"\n)\n" +
				"var _ sync.Mutex\nvar _ foreign.Client\nvar _ other.Struct\nfunc f() {\ntype holder struct {\n" + tt.field + "\n}\n}",
		})
		if err != nil {
			t.Fatal(err)
		}
		if (len(faults) > 0) != tt.fault {
			t.Errorf("%s with %s: %q, want a fault: %v", tt.file, tt.field, faults, tt.fault)
		}
	}
}

// embeddingFaults returns what is embedded in structs and may not be, in the
// module's files by their paths.
func embeddingFaults(sources map[string]string) ([]string, error) {
	m := moduleTypes{types: map[string]typeDecl{}}
	positions := token.NewFileSet()
	for name, text := range sources {
		file, err := parser.ParseFile(positions, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		m.add(path.Dir(name), file)
	}
	var faults []string
	for _, f := range m.files {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				if fault := m.fault(f, field, positions.Position(field.Pos())); fault != "" {
					faults = append(faults, fault)
				}
			}
			return true
		})
	}
	slices.Sort(faults)
	return faults, nil
}

// moduleTypes is what the module declares, by package and name.
type moduleTypes struct {
	files []sourceFile
	types map[string]typeDecl // by folder, package and name
}

type sourceFile struct {
	folder  string
	pkg     string            // folder and name of the package
	imports map[string]string // paths by name
	syntax  *ast.File
}

type typeDecl struct {
	file sourceFile
	expr ast.Expr
}

// add takes in a file with the types that it declares, those of functions among
// them.
func (m *moduleTypes) add(folder string, syntax *ast.File) {
	f := sourceFile{folder: folder, pkg: folder + " " + syntax.Name.Name, imports: map[string]string{}, syntax: syntax}
	for _, spec := range syntax.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // it was parsed
		name := path.Base(imported)
		if major, ok := strings.CutPrefix(name, "v"); ok && strings.Trim(major, "0123456789") == "" {
			name = path.Base(path.Dir(imported))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		f.imports[name] = imported
	}
	m.files = append(m.files, f)
	ast.Inspect(syntax, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			m.types[f.pkg+" "+spec.Name.Name] = typeDecl{f, spec.Type}
		}
		return true
	})
}

// fault says why a struct may not have a field; it is "" for one that it may.
func (m *moduleTypes) fault(f sourceFile, field *ast.Field, at token.Position) string {
	if len(field.Names) > 0 {
		return ""
	}
	switch kind, name := m.kind(f, field.Type); {
	case kind == ours:
		return fmt.Sprintf("%s: a struct embeds the struct %s; give the field a name", at, name)
	case kind == oursToImplement && !strings.HasSuffix(at.Filename, "_test.go"):
		return fmt.Sprintf("%s: a struct embeds the interface %s; give the field a name", at, name)
	case kind == foreign && !slices.Contains(mayEmbed, name):
		return fmt.Sprintf("%s: a struct embeds %s, which mayEmbed does not list", at, name)
	}
	return ""
}

// kind is what an embedded type is.
type kind int

const (
	harmless        kind = iota // of the language, or without fields and methods of its own
	ours                        // a struct of this module
	oursToImplement             // an interface of this module
	foreign                     // of the standard library or another module
)

// kind returns what a type is, and its name.
func (m *moduleTypes) kind(f sourceFile, expr ast.Expr) (kind, string) {
	switch e := expr.(type) {
	case *ast.StructType:
		return ours, ""
	case *ast.InterfaceType:
		return oursToImplement, ""
	case *ast.StarExpr:
		return m.kind(f, e.X)
	case *ast.ParenExpr:
		return m.kind(f, e.X)
	case *ast.IndexExpr:
		return m.kind(f, e.X)
	case *ast.IndexListExpr:
		return m.kind(f, e.X)
	case *ast.Ident:
		return m.declared(f.pkg, e.Name)
	case *ast.SelectorExpr:
		return m.imported(f.imports[e.X.(*ast.Ident).Name], e.Sel.Name)
	}
	return harmless, ""
}

// declared returns the kind of a name that a package of the module declares.
func (m *moduleTypes) declared(pkg, name string) (kind, string) {
	decl, ok := m.types[pkg+" "+name]
	if !ok {
		return harmless, name // of the language
	}
	k, _ := m.kind(decl.file, decl.expr)
	return k, name
}

// imported returns the kind of a name of an imported package.
func (m *moduleTypes) imported(from, name string) (kind, string) {
	full := from + "." + name
	if folder, inModule := strings.CutPrefix(from, module); inModule {
		for _, f := range m.files {
			if f.folder == folder && !strings.HasSuffix(f.pkg, "_test") {
				k, _ := m.declared(f.pkg, name)
				return k, full
			}
		}
	}
	return foreign, full
}
