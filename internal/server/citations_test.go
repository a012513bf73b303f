package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goFiles returns all Go files of the repository that are not generated.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_templ.go") {
			files = append(files, path)
		}
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

var (
	citation = regexp.MustCompile(`docs/(api|manifest)\.md, "([^"]+)"`)
	// uncited are names of the documents, and of sections, without the rest.
	uncited = regexp.MustCompile(`(^|[^/])\b(api|decisions|manifest)\.md\b|shared/spec|(^|\s)\("[A-Z][^"]*"[;,)]`)
)

func TestComments_CiteSectionsThatThereAre(t *testing.T) {
	headings := map[string][]string{
		"api":      readReference(t, "api.md").headings(),
		"manifest": readReference(t, "manifest.md").headings(),
	}
	count := 0
	for _, path := range goFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, group := range file.Comments {
			text := strings.Join(strings.Fields(group.Text()), " ")
			for _, cited := range citation.FindAllStringSubmatch(text, -1) {
				count++
				require.Contains(t, headings[cited[1]], cited[2], path)
			}
			if rest := uncited.FindString(citation.ReplaceAllString(text, "")); rest != "" {
				t.Errorf("%s cites %s; write it as docs/api.md, \"Section\"", path, rest)
			}
		}
	}
	require.NotZero(t, count)
}

// The architecture page has to fit two screens, and to lead to files that there are.
func TestArchitecture_FitsTwoScreensAndNamesFilesThatThereAre(t *testing.T) {
	page, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(page), "\n"), 110)
	named := regexp.MustCompile(`\b[a-z]+/[a-z_]+\.go\b`).FindAllString(string(page), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		require.FileExists(t, filepath.Join("..", name))
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestDocuments_LinkToWhatThereIs(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../examples/guestbook/README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, found := range link.FindAllStringSubmatch(blocks.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(found[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", page, found[1])
			if anchor == "" {
				continue
			}
			there, err := os.ReadFile(target)
			require.NoError(t, err)
			require.Contains(t, anchors(reference(there)), anchor, "%s links to %s", page, found[1])
		}
	}
}

var unanchored = regexp.MustCompile(`[^a-z0-9_ -]`)

// anchors are the names under which a page's sections are linked to.
func anchors(r reference) []string {
	var all []string
	for _, title := range r.headings() {
		all = append(all, strings.ReplaceAll(unanchored.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
	}
	return all
}

// literals returns the string literals of some packages, split at fmt's verbs.
func literals(t *testing.T, under ...string) []string {
	t.Helper()
	var all []string
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") || !slices.ContainsFunc(under, func(u string) bool { return strings.HasPrefix(path, u) }) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				all = append(all, strings.Trim(l.Value, "`\""))
			}
			return true
		})
	}
	return all
}

// message matches a line that quotes an error or a message.
var message = regexp.MustCompile("(?m)^ *> `(.*)`$")

// said matches the constant parts of a message.
var said = regexp.MustCompile(`[a-z][a-z ,'-]{9,}`)

func TestReference_MessagesAreTheCodes(t *testing.T) {
	source := strings.Join(literals(t, "../../internal/stack", "../../internal/store", "../../internal/manifest", "../../internal/supervisor"), "\n")
	for _, name := range []string{"api.md", "manifest.md"} {
		found := message.FindAllStringSubmatch(string(readReference(t, name)), -1)
		require.NotEmpty(t, found, name)
		for _, m := range found {
			parts := said.FindAllString(m[1], -1)
			require.NotEmpty(t, parts, m[1])
			for _, part := range parts {
				require.True(t, strings.Contains(source, part), "the code does not say %q, as in %q", part, m[1])
			}
		}
	}
}

// header matches a name that only a header can have.
var header = regexp.MustCompile(`^(?:[A-Z][A-Za-z]*-)+[A-Z][A-Za-z]*$`)

// browsers lists the headers that restrict what browsers do with an answer.
var browsers = regexp.MustCompile(`^(Access-Control|Content-Security|Cache|Cross-Origin|Strict-Transport|X-Content-Type|X-Robots|Sec)-|Policy$`)

func TestReference_HasEveryHeader(t *testing.T) {
	page := readReference(t, "api.md")
	listed := strings.Join(code(string(page)), " ")
	for _, literal := range literals(t, "../../internal/api", "../../internal/webhook") {
		if header.MatchString(literal) && !browsers.MatchString(literal) {
			require.True(t, strings.Contains(listed, literal), "the page does not name %s", literal)
		}
	}
	used := strings.Join(literals(t, "../../internal"), "\n")
	for _, o := range operations(openDocuments(t)) {
		for _, r := range o.Responses {
			for _, h := range r.Headers {
				require.True(t, strings.Contains(listed, h.Name), "the page does not name %s", h.Name)
				used += "\n" + h.Name
			}
		}
	}
	for _, name := range code(string(page)) {
		name, _, _ = strings.Cut(name, ":")
		if header.MatchString(name) {
			require.True(t, strings.Contains(used, name), "nothing uses %s", name)
		}
	}
}
