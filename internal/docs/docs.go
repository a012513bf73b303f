// Package docs holds Berth's documents about itself: the API document, the manifest's
// JSON Schema, and the texts for agents and for people at a terminal.
//
// openapi.yaml and stack.schema.yaml are written by hand; everything else about
// endpoints and fields is generated from them, so that the page at /docs and
// /llms-full.txt cannot differ. Tests check both: those of package api its routes and
// JSON objects, those of package manifest the manifest, and the integration tests every
// response they receive. Code in this package knows texts and schemas, and no caller,
// row or stack.
package docs

import (
	"bytes"
	"embed"
	"fmt"
	"net/url"
	"strings"
	"text/template"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

//go:embed openapi.yaml stack.schema.yaml *.tmpl
var files embed.FS

// Values are the settings of the server that the documents mention.
type Values struct {
	Base            *url.URL // {base_url}
	Limits          stack.Limits
	MaxUpload       int64         // bytes of the archive as uploaded
	Wait            time.Duration // how long wait=true holds a response at most
	CreatesPerHour  int
	RefusedPerHour  int // creates refused with 413 or 422
	ClaimsPerMinute int
	Extensions      int // of one stack in a minute
	Resources       Resources
}

// Resources are what a service gets of the host. 0 stands for no limit.
type Resources struct {
	Memory, BuildMemory int64   // bytes
	CPUs                float64 // cores
	Pids                int64   // processes and threads
	DiskFloor           int64   // free bytes of the host below which uploads and builds are refused
	StackDisk           int64   // bytes that a stack may take on the disk; 0 for no limit

	OpenHosts    []string // as host:port, besides public addresses
	PackageHosts []string // that builds are told to use: a variable, a colon and its hosts
}

// Documents are the documents of one server.
type Documents struct {
	Reference Reference
	pages     map[string]page
}

// page is a document and its path.
type page struct {
	contentType string
	content     []byte
}

// New returns the documents for these settings.
func New(v Values) (*Documents, error) {
	w := newWriter(v)
	api, err := w.tree("openapi.yaml")
	if err != nil {
		return nil, err
	}
	manifest, err := w.tree("stack.schema.yaml")
	if err != nil {
		return nil, err
	}
	d := &Documents{Reference: newReference(api, manifest), pages: map[string]page{
		"/openapi.json":      {"application/json", api.json()},
		"/schema/stack.json": {"application/schema+json", manifest.json()},
	}}
	w.words.Reference = d.Reference
	for path, name := range map[string]string{"/": "front.tmpl", "/llms.txt": "llms.tmpl", "/llms-full.txt": "llms-full.tmpl"} {
		text, err := w.text(name)
		if err != nil {
			return nil, err
		}
		d.pages[path] = page{"text/plain; charset=utf-8", text}
	}
	return d, nil
}

// Text returns the document at a path; "" for an unknown path.
func (d *Documents) Text(path string) string { return string(d.pages[path].content) }

// words holds the values as the templates use them.
type words struct {
	Base, Host             string
	Local                  bool // services' names are under localhost, which not every program resolves
	TTL, TTLMin, TTLMax    string
	Retention, Wait        string
	MaxUpload              string
	MaxServices, Unclaimed int
	Creates, Refused       int
	Claims, Extensions     int
	Crashes                int
	CrashWindow            string
	Commands               int // of a stack at a time
	StackDomains           int
	AccountDomains         int
	CommandTimeout         string
	CommandTimeoutMax      string
	Runtimes               string
	All                    []*runtimes.Definition
	Reference              Reference
	Gets                   gets
}

// gets holds what a service gets; "" stands for no limit.
type gets struct {
	Memory, BuildMemory, CPUs, Pids, DiskFloor, StackDisk string
	OpenHosts, PackageHosts                               []string
}

func newGets(r Resources) gets {
	return gets{
		Memory:       size(r.Memory),
		BuildMemory:  size(r.BuildMemory),
		CPUs:         limit("%g", r.CPUs),
		Pids:         limit("%g", float64(r.Pids)),
		DiskFloor:    size(r.DiskFloor),
		StackDisk:    size(r.StackDisk),
		OpenHosts:    r.OpenHosts,
		PackageHosts: r.PackageHosts,
	}
}

// size formats a number of bytes, "" for none.
func size(bytes int64) string {
	if bytes < 1e9 {
		return limit("%g MB", float64(bytes)/1e6)
	}
	return limit("%g GB", float64(bytes)/1e9)
}

// limit formats a limit, "" for none.
func limit(format string, value float64) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf(format, value)
}

// writer executes the templates.
type writer struct {
	templates *template.Template
	words     words
}

func newWriter(v Values) *writer {
	all := template.New("").Option("missingkey=error").Funcs(template.FuncMap{"join": strings.Join, "indent": indent})
	return &writer{
		templates: template.Must(all.ParseFS(files, "*.yaml", "*.tmpl")),
		words: words{
			Base:         strings.TrimSuffix(v.Base.String(), "/"),
			Host:         v.Base.Host,
			Local:        v.Base.Hostname() == "localhost",
			TTL:          stack.FormatDuration(v.Limits.TTL),
			TTLMin:       stack.FormatDuration(v.Limits.TTLMin),
			TTLMax:       stack.FormatDuration(v.Limits.TTLMax),
			Retention:    stack.FormatDays(v.Limits.Retention),
			Wait:         fmt.Sprintf("%.0f s", v.Wait.Seconds()),
			MaxUpload:    megabytes(v.MaxUpload),
			MaxServices:  stack.MaxServices,
			Unclaimed:    v.Limits.UnclaimedPerIP,
			Creates:      v.CreatesPerHour,
			Refused:      v.RefusedPerHour,
			Claims:       v.ClaimsPerMinute,
			Extensions:   v.Extensions,
			Crashes:      v.Limits.Crashes,
			CrashWindow:  stack.FormatDuration(v.Limits.CrashWindow),
			StackDomains: stack.MaxDomains, AccountDomains: stack.MaxAccountDomains,
			Commands: stack.CommandsAtOnce, CommandTimeout: stack.FormatDuration(stack.CommandTimeout),
			CommandTimeoutMax: stack.FormatDuration(stack.CommandTimeoutMax),
			Runtimes:          strings.Join(runtimes.Names(), ", "),
			All:               runtimes.All(),
			Gets:              newGets(v.Resources),
		},
	}
}

// text executes a template.
func (w *writer) text(name string) ([]byte, error) {
	var b bytes.Buffer
	if err := w.templates.ExecuteTemplate(&b, name, w.words); err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// tree executes a template of YAML and parses the result.
func (w *writer) tree(name string) (object, error) {
	text, err := w.text(name)
	if err != nil {
		return nil, err
	}
	var m yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(text, &m, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return newObject(m), nil
}

func megabytes(n int64) string { return fmt.Sprintf("%g MB", float64(n)/1e6) }

// indent returns a text with spaces before each line.
func indent(spaces int, text string) string {
	margin := strings.Repeat(" ", spaces)
	return margin + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+margin)
}
