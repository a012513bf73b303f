package manifest

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// maxManifest limits a manifest's size in bytes.
const maxManifest = 64 << 10

// Request is what a request contains besides the archive. Fields that are set take
// precedence over the manifest's.
type Request struct {
	Manifest     []byte // nil when the request brings none; it then goes before the archive's
	ManifestName string // what to call it in messages; "" for "manifest"
	Name         string
	TTL          string
	ClaimEmail   string

	CheckTTL func(time.Duration) error // of a lifetime that is given; nil takes any
}

// Resolve returns the complete manifest of a deploy: from the request's own fields,
// then the request's manifest or else the archive's, then what the source shows. root
// is the unpacked archive; singleRoot is the name of its only folder, or "". All faults
// are reported together in one Unprocessable *stack.Error, a line each.
func Resolve(root fs.FS, singleRoot string, req Request) (*stack.Manifest, error) {
	f := &faults{}
	m := resolve(root, singleRoot, req, f)
	if err := f.err(); err != nil {
		return nil, err
	}
	return m, nil
}

// Check is like Resolve without a deploy: it returns what could be resolved, which may
// be nothing, and the faults of the rest.
func Check(root fs.FS, singleRoot string, req Request) (*stack.Manifest, []string) {
	f := &faults{}
	m := resolve(root, singleRoot, req, f)
	return m, f.all()
}

// CheckRequest checks a request by itself, before there is a source to resolve it with.
// The error is like that of Resolve.
func CheckRequest(req Request) error {
	f := &faults{}
	if d := readDraft(req.Manifest, cmp.Or(req.ManifestName, "manifest"), req, f); d != nil {
		det := &detector{faults: f}
		for i := range d.services {
			det.checkKind(&d.services[i])
		}
		if !d.broken {
			checkTogether(d.specs(), f)
		}
		req.checkTTL(d.manifest.TTL, f)
	}
	return f.err()
}

func resolve(root fs.FS, singleRoot string, req Request, f *faults) *stack.Manifest {
	data, name := req.Manifest, req.ManifestName
	if data == nil {
		data, name = archiveManifest(root, f)
	}
	name = cmp.Or(name, "manifest")
	d := readDraft(data, name, req, f)
	if d == nil {
		return &stack.Manifest{}
	}
	m := d.manifest
	det := &detector{root: root, manifest: name, single: singleRoot, faults: f}
	if d.broken {
		for i := range d.services {
			det.checkKind(&d.services[i])
		}
	} else {
		m.Services = det.services(d.services)
		checkTogether(m.Services, f)
		det.hint(m.Services)
	}
	req.checkTTL(m.TTL, f)
	m.Name = firstName(m.Name, singleRoot, det.name, "stack")
	return &m
}

// checkTogether lets services depend on the databases that they use, and faults what they
// would get of each other.
func checkTogether(services []stack.Spec, f *faults) {
	stack.DependOnDatabases(services)
	stack.CheckReferences(services, f.addLine)
	stack.CheckVariables(services, f.addLine)
}

// checkTTL faults a lifetime that is given, not 0, and not accepted.
func (req *Request) checkTTL(ttl time.Duration, f *faults) {
	if req.CheckTTL == nil || ttl == 0 {
		return
	}
	if err := req.CheckTTL(ttl); err != nil {
		f.addf("%v", err)
	}
}

// Files are the names that a manifest may have in the archive's root, in the order of
// the search.
var Files = []string{"stack.yaml", "stack.yml", "stack.json"}

// archiveManifest reads the manifest in the archive's root; nil if there is none.
func archiveManifest(root fs.FS, f *faults) ([]byte, string) {
	for _, name := range Files {
		info, err := fs.Stat(root, name)
		if err != nil {
			continue
		}
		if !info.Mode().IsRegular() {
			f.addf("%s is not a file", name)
			return nil, name
		}
		data, err := readUpTo(root, name, maxManifest+1)
		if err != nil {
			f.addf("%s cannot be read from the archive", name)
			return nil, name
		}
		return data, name
	}
	return nil, ""
}

// readUpTo reads at most n bytes of a file.
func readUpTo(root fs.FS, name string, n int64) ([]byte, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, n))
}

// draft is a manifest as written: checked field by field, without looking at the
// source.
type draft struct {
	manifest stack.Manifest // without services
	services []draftService
	broken   bool // what services says is not a list of as many as there may be
}

// specs returns as much of the services as checking references needs.
func (d *draft) specs() []stack.Spec {
	specs := make([]stack.Spec, len(d.services))
	for i, s := range d.services {
		specs[i] = stack.Spec{Name: s.name, Env: s.env, DependsOn: s.dependsOn}
		if def, _, ok := s.definition(); ok {
			specs[i].Runtime.Name = def.Name
		}
	}
	return specs
}

// draftService is one entry of services. A nil pointer is a field left out.
type draftService struct {
	name   string // right or wrong; "" if it has none
	label  string // how messages call it: "service web"
	broken bool   // it is not a mapping

	runtime, root, install, build, release, start, publish *string

	port        int
	health      string
	env         map[string]stack.Env
	dependsOn   []string
	strategy    stack.Strategy
	stopTimeout time.Duration
	spa         stack.SPA
	paths       map[string]stack.Path

	given map[string]*node // every known field that was written, valid or not
}

// readDraft reads a manifest and overrides it with the request's own fields; nil if it
// cannot be read.
func readDraft(data []byte, name string, req Request, f *faults) *draft {
	tree, err := parseManifest(data)
	if err != nil {
		f.addf("%s: %v", name, err)
		return nil
	}
	d := decodeManifest(tree, f)
	d.override(req, f)
	return d
}

// override replaces the manifest's fields with the request's own.
func (d *draft) override(req Request, f *faults) {
	if req.Name != "" {
		d.manifest.Name = checkName(req.Name, f)
	}
	if req.TTL != "" {
		d.manifest.TTL = checkTTL(req.TTL, f)
	}
	if req.ClaimEmail != "" {
		d.manifest.ClaimEmail = checkEmail(req.ClaimEmail, f)
	}
}

// faults collects all faults, so that a client learns everything at once.
type faults struct {
	lines []string
	more  int
}

const maxFaults = 40

func (f *faults) addLine(line string) {
	if len(f.lines) == maxFaults {
		f.more++
		return
	}
	f.lines = append(f.lines, line)
}

func (f *faults) addf(format string, args ...any) { f.addLine(fmt.Sprintf(format, args...)) }

// err returns nil if there is no fault.
func (f *faults) err() error {
	if len(f.lines) == 0 {
		return nil
	}
	return stack.NewError(stack.Unprocessable, strings.Join(f.all(), "\n"))
}

// all returns the recorded faults, and how many were not recorded.
func (f *faults) all() []string {
	if f.more == 0 {
		return f.lines
	}
	return append(f.lines, fmt.Sprintf("and %d more", f.more))
}
