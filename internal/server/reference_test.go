package server

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/docs"
	"github.com/berth-host/berth/internal/domain"
	"github.com/berth-host/berth/internal/mail"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/sse"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// reference is one of the pages in docs that these tests keep true.
type reference string

func readReference(t *testing.T, name string) reference {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	return reference(text)
}

// blocks are code blocks, with their language and their text.
var blocks = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// headings are the titles of all sections, in their order.
func (r reference) headings() []string {
	var titles []string
	for line := range strings.Lines(blocks.ReplaceAllString(string(r), "")) {
		if level, title, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.Trim(level, "#") == "" && level != "" {
			titles = append(titles, title)
		}
	}
	return titles
}

// section is the text below a heading, up to the next one.
func (r reference) section(t *testing.T, title string) reference {
	t.Helper()
	begin := regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(title) + `$`).FindStringIndex(string(r))
	require.NotNil(t, begin, "there is no section %q", title)
	rest := string(r[begin[1]:])
	if end := regexp.MustCompile(`(?m)^#+ `).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return reference(rest)
}

// tables are the rows of each table, without its head.
func (r reference) tables() [][][]string {
	var all [][][]string
	inside := false
	for line := range strings.Lines(string(r)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
			continue
		case !inside:
			inside = true
			all = append(all, nil)
			continue
		case strings.HasPrefix(line, "|-"):
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all[len(all)-1] = append(all[len(all)-1], cells)
	}
	return all
}

// rows are those of all tables.
func (r reference) rows() [][]string { return slices.Concat(r.tables()...) }

var codeSpan = regexp.MustCompile("`([^`]+)`")

// code are the code spans of a text.
func code(text string) []string {
	var spans []string
	for _, m := range codeSpan.FindAllStringSubmatch(blocks.ReplaceAllString(text, ""), -1) {
		spans = append(spans, m[1])
	}
	return spans
}

// named are the code spans in the first cells of rows.
func named(rows [][]string) []string {
	var names []string
	for _, row := range rows {
		names = append(names, code(row[0])...)
	}
	return names
}

func names(fields []docs.Field) []string {
	var all []string
	for _, f := range fields {
		all = append(all, f.Name)
	}
	return all
}

func openDocuments(t *testing.T) *docs.Documents {
	t.Helper()
	d, err := docs.New(docs.Values{Base: &url.URL{Scheme: "https", Host: "berth.example"}, MaxUpload: 50e6})
	require.NoError(t, err)
	return d
}

func operations(d *docs.Documents) []docs.Operation {
	var all []docs.Operation
	for _, group := range d.Reference.Groups {
		all = append(all, group.Operations...)
	}
	return all
}

func schemaOf(t *testing.T, d *docs.Documents, name string) []string {
	t.Helper()
	i := slices.IndexFunc(d.Reference.Schemas, func(s docs.Schema) bool { return s.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return names(d.Reference.Schemas[i].Fields)
}

func TestReference_HasEveryEndpoint(t *testing.T) {
	page, d := readReference(t, "api.md"), openDocuments(t)
	var listed, want []string
	for _, row := range page.section(t, "Endpoints").rows() {
		listed = append(listed, row[0]+" "+code(row[1])[0])
	}
	for _, o := range operations(d) {
		route := o.Method + " " + o.Path
		want = append(want, route)
		t.Run(route, func(t *testing.T) { checkEndpoint(t, page.section(t, route), o) })
	}
	require.ElementsMatch(t, want, listed)
}

// checkEndpoint holds a section against the operation in the API document.
func checkEndpoint(t *testing.T, section reference, o docs.Operation) {
	takes := names(o.Body)
	for _, p := range o.Parameters {
		if p.In != "path" {
			takes = append(takes, p.Name)
		}
	}
	all := code(string(section))
	for _, name := range takes {
		require.True(t, slices.ContainsFunc(all, func(c string) bool { return c == name || strings.HasPrefix(c, name+"=") }), "it does not name %s", name)
	}
	for _, table := range section.tables() {
		if found := named(table); len(found) > 0 && slices.Contains(takes, found[0]) {
			require.Subset(t, takes, found)
		}
	}
	_, errors, _ := strings.Cut(string(section), "\nErrors: ")
	errors, _, _ = strings.Cut(errors, ".")
	if failures := o.Failures(); len(failures) > 0 {
		require.Equal(t, strings.Join(failures, ", "), errors)
	}
}

func TestReference_HasTheFieldsOfEveryObject(t *testing.T) {
	page, d := readReference(t, "api.md"), openDocuments(t)
	stackTables := page.section(t, "The stack").tables()
	require.Equal(t, schemaOf(t, d, "Stack"), named(stackTables[0]))
	require.Equal(t, schemaOf(t, d, "Service"), named(stackTables[1]))
	require.ElementsMatch(t, schemaOf(t, d, "CreatedStack"), append(schemaOf(t, d, "Stack"), named(page.section(t, "One-time fields").rows())...))
	require.Equal(t, schemaOf(t, d, "Event"), named(page.section(t, "The event").rows()))
}

func TestReference_HasEveryEventAndWhatItSays(t *testing.T) {
	page, d := readReference(t, "api.md"), openDocuments(t)
	rows := page.section(t, "Event types").rows()
	require.ElementsMatch(t, constants(t, "../stack/event.go", "EventType"), named(rows))
	said := map[string]bool{}
	for _, row := range rows {
		for _, name := range code(row[2]) {
			said[name] = true
		}
	}
	require.ElementsMatch(t, schemaOf(t, d, "EventData"), slices.Collect(maps.Keys(said)))
}

func TestReference_HasEveryStatus(t *testing.T) {
	page := readReference(t, "api.md")
	require.ElementsMatch(t, constants(t, "../stack/stack.go", "ServiceStatus"), named(page.section(t, "Service states").rows()))
	said := code(string(page.section(t, "The stack")))
	for _, status := range constants(t, "../stack/stack.go", "Status") {
		require.Equal(t, status != string(stack.Deleted), slices.Contains(said, status), status)
	}
}

// constants are the values of a file's constants of a type.
func constants(t *testing.T, path, kind string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	require.NoError(t, err)
	var values []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Type == nil {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == kind {
			values = append(values, strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`))
		}
		return true
	})
	require.NotEmpty(t, values, kind)
	return values
}

func TestReference_HasTheStatusOfEveryError(t *testing.T) {
	page, d := readReference(t, "api.md"), openDocuments(t)
	var listed []string
	for _, row := range page.section(t, "Errors").rows() {
		listed = append(listed, row[0])
	}
	for _, o := range operations(d) {
		require.Subset(t, listed, o.Failures(), o.Path)
	}
}

// operators lists the settings that do not concern callers of the API.
var operators = []string{
	"BERTH_LISTEN", "BERTH_DATA_DIR", "BERTH_DATABASE_URL", "BERTH_REDIS_URL", "BERTH_TLS", "BERTH_TLS_CERT", "BERTH_TLS_KEY",
	"BERTH_ACME_DIRECTORY", "BERTH_ACME_EMAIL", "BERTH_BUILD_ENV_FILE", "BERTH_BUILD_CA_FILE", "BERTH_CONTAINER_RUNTIME",
	"BERTH_SERVICE_MEMORY", "BERTH_SERVICE_CPUS", "BERTH_SERVICE_PIDS", "BERTH_BUILD_MEMORY", "BERTH_BUILD_CACHE_MAX", "BERTH_DISK_FLOOR", "BERTH_NETWORK_POOL",
	"BERTH_CLUSTER", "BERTH_KEY_FILE", "BERTH_NODE_LEASE", "BERTH_NODE_GRACE", "BERTH_NODE_LOST", "BERTH_SNAPSHOT_EVERY", "BERTH_PEER_LISTEN", "BERTH_PEER_CERT", "BERTH_PEER_KEY", "BERTH_PEER_CA",
	"BERTH_NETWORK_ALLOW", "BERTH_ALLOW_UNGUARDED", "BERTH_ADMIN_LISTEN", "BERTH_ORPHAN_GRACE", "BERTH_ALLOW_UNKNOWN_DATA",
	"BERTH_REGISTRY", "BERTH_REGISTRY_AUTH_FILE", "BERTH_REGISTRY_CA_FILE", "BERTH_DNS", "BERTH_HTTP_LISTEN", "BERTH_SMTP_URL", "BERTH_MAIL_FROM", "BERTH_FAST_LANE", "BERTH_RELOAD_WAIT", "BERTH_CONNS_PER_CLIENT",
}

var settingName = regexp.MustCompile(`BERTH_[A-Z_]+`)

func TestReference_HasTheDefaultOfEverySetting(t *testing.T) {
	page := readReference(t, "api.md")
	defaults := map[string]string{}
	for _, s := range Settings() {
		defaults[s.Name] = s.Default
		if !slices.Contains(operators, s.Name) {
			require.True(t, strings.Contains(string(page), "`"+s.Name+"`"), "the page says nothing of %s, and operators does not list it", s.Name)
		}
	}
	for _, name := range settingName.FindAllString(string(page+readReference(t, "manifest.md")), -1) {
		require.Contains(t, defaults, name)
	}
	for _, row := range page.rows() {
		if setting := strings.Trim(row[len(row)-1], "`"); defaults[setting] != "" {
			require.Equal(t, defaults[setting], row[1], setting)
		}
	}
}

func TestReference_HasTheFiguresThatNoSettingChanges(t *testing.T) {
	page := readReference(t, "api.md")
	for _, tt := range []struct {
		section, what string
		want          int
	}{
		{"Stack size", "services of a stack", stack.MaxServices},
		{"Logs and events", "streams of logs and events", sse.MostOpen},
		{"Logs and events", "characters of `error` and `deploy_error`", stack.ErrorChars},
		{"Logs and events", "characters of an `error` in an event", stack.EventErrorChars},
		{"Rate limits", "changes of the TTL", extensionsPerMinute},
		{"One-off commands", "bytes of a command", stack.CommandChars},
		{"One-off commands", "bytes of its output", stack.CommandOutput},
		{"One-off commands", "commands of a stack at a time", stack.CommandsAtOnce},
		{"Domains", "domains of a stack", stack.MaxDomains},
		{"Domains", "domains of an account", stack.MaxAccountDomains},
		{"Domains", "orders of certificates", domain.OrdersPerHour},
		{"Domains", "checks that are asked for", domainChecksPerMinute},
		{"Domains", "other checks at the same time", domain.ChecksOfAccount},
		{"Accounts", "characters of a password", auth.MinPassword},
		{"Accounts", "minutes that a link in a mail works", int(mail.TokenLife / time.Minute)},
		{"Rate limits", "mails with links to one address", mailsToAddress},
		{"Rate limits", "mails with links that one client network", mailsByNetwork},
		{"Accounts", "days that a session", int(account.SessionLife / (24 * time.Hour))},
	} {
		rows := page.section(t, tt.section).rows()
		i := slices.IndexFunc(rows, func(row []string) bool { return strings.HasPrefix(row[0], tt.what) })
		require.GreaterOrEqual(t, i, 0, tt.what)
		require.Equal(t, fmt.Sprint(tt.want), strings.ReplaceAll(rows[i][1], ",", ""), tt.what)
	}
}

func TestReference_ExamplesAreWhatTheAPIDocumentDescribes(t *testing.T) {
	page, d := readReference(t, "api.md"), openDocuments(t)
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(d.Text("/openapi.json")))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("openapi.json", document))
	examples := map[string]string{"The stack": "Stack", "The event": "Event", "Uploads in JSON": "CreateObject", "GET /v0/stacks/{id}/source": "Source", "GET /v0/stacks/{id}/metrics": "Metrics", "GET /v0/stacks/{id}/env": "Variables", "GET /v0/stacks/{id}/domains": "Domains", "PATCH /v0/stacks/{id}/env": "VariablesChange"}
	require.Equal(t, len(examples), strings.Count(string(page), "```json"))
	for section, name := range examples {
		schema, err := compiler.Compile("openapi.json#/components/schemas/" + name)
		require.NoError(t, err)
		var example any
		require.NoError(t, json.Unmarshal([]byte(blocks.FindStringSubmatch(string(page.section(t, section)))[2]), &example))
		require.NoError(t, schema.Validate(example), section)
	}
}

func TestManifestReference_HasEveryField(t *testing.T) {
	page, d := readReference(t, "manifest.md"), openDocuments(t)
	var schema struct {
		Properties map[string]struct{ Properties map[string]any }
	}
	require.NoError(t, json.Unmarshal([]byte(d.Text("/schema/stack.json")), &schema))
	notify := schema.Properties["notify"].Properties
	require.ElementsMatch(t, slices.Collect(maps.Keys(schema.Properties)), named(page.section(t, "Fields of the stack").rows()))
	require.ElementsMatch(t, slices.Collect(maps.Keys(notify)), named(page.section(t, "notify").rows()))
	require.Equal(t, names(d.Reference.Manifest[len(d.Reference.Manifest)-1].Fields), firsts(page.section(t, "Fields of a service").rows()))
}

// firsts are the first code spans of rows.
func firsts(rows [][]string) []string {
	var all []string
	for _, row := range rows {
		all = append(all, code(row[0])[0])
	}
	return all
}

func TestManifestReference_ExamplesAreAccepted(t *testing.T) {
	root := fstest.MapFS{}
	for _, name := range []string{"web/package.json", "api/package.json", "api/package-lock.json", "api/server.js", "docs/index.html"} {
		root[name] = &fstest.MapFile{Data: []byte("{}")}
	}
	page := readReference(t, "manifest.md")
	found := blocks.FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, found)
	for _, block := range found {
		require.Equal(t, "yaml", block[1])
		_, faults := manifest.Check(root, "", manifest.Request{Manifest: []byte(block[2])})
		require.Empty(t, faults, block[2])
	}
	for _, reference := range named(page.section(t, "env").rows()) {
		text := fmt.Sprintf("services: [{name: api, runtime: node, root: api, start: x, env: {A: %q}}]", strings.ReplaceAll(reference, "<name>", "api"))
		_, faults := manifest.Check(root, "", manifest.Request{Manifest: []byte(text)})
		require.Empty(t, faults, reference)
	}
}

func TestManifestReference_HasTheEnvironmentOfEveryRuntime(t *testing.T) {
	tables := readReference(t, "manifest.md").section(t, "Environment").tables()
	listed := map[string][]string{}
	for _, row := range tables[1] {
		listed[row[0]] = code(row[1])
	}
	for _, d := range runtimes.All() {
		var want []string
		for name, value := range d.Env {
			want = append(want, name+"="+value)
		}
		require.ElementsMatch(t, want, listed[d.Name], d.Name)
	}
}
