package web

import (
	"bytes"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a-h/templ"
	"github.com/a-h/templ/generator"
	"github.com/a-h/templ/parser/v2"
	"github.com/stretchr/testify/require"
)

// The generated files are committed: this finds files that are older than their
// template. go generate ./internal/web writes them.
func TestTemplates_AreGenerated(t *testing.T) {
	templates, err := filepath.Glob("*.templ")
	require.NoError(t, err)
	require.NotEmpty(t, templates)
	for _, name := range templates {
		template, err := parser.Parse(name)
		require.NoError(t, err)
		var b bytes.Buffer
		_, err = generator.Generate(template, &b, generator.WithFileName(name), generator.WithVersion(templ.Version()))
		require.NoError(t, err)
		want, err := format.Source(b.Bytes())
		require.NoError(t, err)
		got, err := os.ReadFile(strings.TrimSuffix(name, ".templ") + "_templ.go")
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s is out of date: run go generate ./internal/web", name)
	}
}
