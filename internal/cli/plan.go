package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/stack"
)

// The limits for unpacking a source here to look at it: a server's defaults.
var unpackLimits = archive.Limits{MaxUnpacked: 1_000_000_000, MaxEntries: 100_000}

// tree is an archive unpacked as the server would.
type tree struct {
	dir    string // temporary
	root   string
	single string // name of the archive's one folder
	lost   []stack.Lost
}

// unpack unpacks an archive to look at it. The caller closes the tree.
func (s *spool) unpack(ctx context.Context) (_ *tree, err error) {
	dir, err := os.MkdirTemp("", "berth-source-")
	if err != nil {
		return nil, fmt.Errorf("create a temporary folder: %w", err)
	}
	t := &tree{dir: dir}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if t.lost, err = archive.Unpack(ctx, io.NewSectionReader(s.file, 0, s.form.Size), dir, unpackLimits); err != nil {
		return nil, invalidSource(err)
	}
	t.root, t.single, err = archive.Root(dir)
	return t, err
}

// Close removes the tree.
func (t *tree) Close() error { return os.RemoveAll(t.dir) }

func (t *tree) fs() fs.FS { return os.DirFS(t.root) }

// resolve returns the manifest of a deploy, resolved as the server would.
func (t *tree) resolve(req manifest.Request) (*stack.Manifest, error) {
	m, err := manifest.Resolve(t.fs(), t.single, req)
	if err != nil {
		return nil, invalidSource(err)
	}
	for i := range m.Services {
		m.Services[i].Lost = t.lost
	}
	return m, nil
}

// invalidSource words a refusal of the source like the server's.
func invalidSource(err error) error {
	if refusal, ok := errors.AsType[*stack.Error](err); ok {
		return &failure{code: exitInvalid, detail: refusal.Detail}
	}
	return err
}

func (a *app) initCommand() *cobra.Command {
	var force bool
	var o origin
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Detect a folder's services and write a stack.yaml",
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing manifest")
	return a.onFolder(cmd, &o, func(ctx context.Context) error { return a.init(ctx, o, force) })
}

// manifestIn returns the path of a folder's manifest, "" if it has none.
func manifestIn(folder string) string {
	for _, name := range manifest.Files {
		if path := filepath.Join(folder, name); exists(path) {
			return path
		}
	}
	return ""
}

func (a *app) init(ctx context.Context, o origin, force bool) error {
	if info, err := os.Stat(o.path); err != nil || !info.IsDir() {
		return usagef("%s is not a folder", o.path)
	}
	if found := manifestIn(o.path); found != "" && !force {
		return usagef("%s already exists; check it with berth check, or replace it with --force", found)
	}
	packed, err := a.archive(ctx, o)
	if err != nil {
		return err
	}
	defer packed.Close()
	src, err := packed.unpack(ctx)
	if err != nil {
		return err
	}
	defer src.Close()
	m, err := src.detect()
	if err != nil {
		return err
	}
	file := filepath.Join(o.path, manifest.Files[0])
	if err := os.WriteFile(file, manifestText(m), 0o644); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if a.json {
		return a.ui.printJSON(map[string]any{"file": file, "services": m.Services})
	}
	_, err = fmt.Fprintln(a.ui.out, file)
	return err
}

// detect finds the services of a source without its manifest: one in the root, or, if
// the root shows nothing, one in each folder that does.
func (t *tree) detect() (*stack.Manifest, error) {
	m, err := t.resolve(manifest.Request{Manifest: []byte("{}")})
	if err == nil {
		return m, nil
	}
	entries, dirErr := os.ReadDir(t.root)
	if dirErr != nil {
		return nil, dirErr
	}
	found := &stack.Manifest{}
	for _, e := range entries {
		name := serviceName(e.Name())
		if !e.IsDir() || name == "" || len(found.Services) == stack.MaxServices {
			continue
		}
		entry := fmt.Sprintf("services: [{name: %s, root: %q}]", name, e.Name())
		if one, err := t.resolve(manifest.Request{Manifest: []byte(entry)}); err == nil {
			found.Name, found.Services = one.Name, append(found.Services, one.Services...)
		}
	}
	if len(found.Services) == 0 {
		return nil, err
	}
	found.Name = cmp.Or(t.single, found.Name)
	return found, nil
}

var notInServiceName = regexp.MustCompile(`^[^a-z]+|[^a-z0-9]`)

// serviceName makes a service's name from a folder's; "" if that is impossible.
func serviceName(folder string) string {
	name := notInServiceName.ReplaceAllString(strings.ToLower(folder), "")
	return name[:min(len(name), 20)]
}

// manifestText formats a manifest for reading: what was found, with its origin beside
// it.
func manifestText(m *stack.Manifest) []byte {
	var b strings.Builder
	b.WriteString("# Written by berth init. A field that you remove is detected at each deploy.\n")
	fmt.Fprintf(&b, "name: %s\nservices:\n", scalar(m.Name))
	for i := range m.Services {
		writeService(&b, &m.Services[i])
	}
	return []byte(b.String())
}

func writeService(b *strings.Builder, s *stack.Spec) {
	fmt.Fprintf(b, "  - name: %s\n", s.Name)
	field := func(name, value string) {
		if value == "" {
			return
		}
		line := fmt.Sprintf("    %s: %s", name, scalar(value))
		if from := s.Origin[name]; from != "" && from != "manifest" {
			line += "  # " + strings.Join(strings.Fields(from), " ")
		}
		b.WriteString(line + "\n")
	}
	field("runtime", s.Runtime.String())
	if path.Clean(s.Root) != "." {
		field("root", s.Root)
	}
	field("install", s.Install)
	field("build", s.Build)
	field("release", s.Release)
	field("start", s.Start)
	if s.Port > 0 {
		fmt.Fprintf(b, "    port: %d\n", s.Port)
	}
	field("health", s.Health)
	if s.IsStatic() {
		field("publish", s.Publish)
	}
}

// scalar formats a text as a YAML scalar on one line.
func scalar(s string) string {
	text, err := yaml.MarshalWithOptions(s, yaml.JSON())
	if plain, plainErr := yaml.Marshal(s); plainErr == nil && !strings.Contains(strings.TrimSpace(string(plain)), "\n") && !strings.Contains(s, " #") {
		text, err = plain, nil
	}
	if err != nil {
		return strconv.Quote(s)
	}
	return strings.TrimSpace(string(text))
}
