package integration

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/md5"  //nolint:gosec // the index of RubyGems has it
	"crypto/sha1" //nolint:gosec // composer and yarn 1 ask for it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/dirhash"
)

// packages serves one package, greeting 1.0.0, to the installers of all runtimes.
type packages struct {
	url   string // without a slash at the end
	files map[string][]byte
}

// servePackages serves them where builds reach them: every address in the file of
// BERTH_BUILD_ENV_FILE is open to builds.
func servePackages(t *testing.T) *packages {
	docker, err := engine()
	require.NoError(t, err)
	defer docker.Close()
	bridge, err := docker.NetworkInspect(t.Context(), "bridge", network.InspectOptions{})
	require.NoError(t, err)
	subnet, err := netip.ParsePrefix(bridge.IPAM.Config[0].Subnet) // an engine that has just made it names no gateway
	require.NoError(t, err)
	listener, err := net.Listen("tcp", netip.AddrPortFrom(subnet.Masked().Addr().Next(), 0).String())
	require.NoError(t, err)
	p := &packages{url: "http://" + listener.Addr().String(), files: map[string][]byte{}}
	p.addNPM()
	p.addReader()
	p.addGo(t)
	p.addPython()
	p.addRuby()
	p.addPHP()
	p.addRust()
	p.addMaven()
	server := &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return p
}

func (p *packages) serve(w http.ResponseWriter, r *http.Request) {
	content, ok := p.files[strings.TrimSuffix(r.URL.Path, "/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if strings.Contains(r.URL.Path, "/simple/") && !strings.HasSuffix(r.URL.Path, ".whl") {
		w.Header().Set("Content-Type", "text/html")
	}
	_, _ = w.Write(content)
}

// asBuildEnv is an option of start that makes builds use the packages.
func (p *packages) asBuildEnv(t *testing.T) Option {
	env := map[string]string{
		"NPM_CONFIG_REGISTRY": p.url + "/npm/",
		"GOPROXY":             p.url + "/go",
		"GOSUMDB":             "off",
		"PIP_INDEX_URL":       p.url + "/simple/",
		"PIP_TRUSTED_HOST":    strings.TrimPrefix(p.url, "http://"),
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&text, "%s=%s\n", name, env[name])
	}
	file := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	return with("BERTH_BUILD_ENV_FILE", file)
}

// gzippedTar makes a tar of files, gzipped.
func gzippedTar(files map[string]string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		mode := int64(0o644)
		if strings.Contains(name, "/bin/") {
			mode = 0o755
		}
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(files[name]))})
		_, _ = io.WriteString(w, files[name])
	}
	_ = w.Close()
	_ = z.Close()
	return b.Bytes()
}

// zipOf makes a zip of files.
func zipOf(files map[string]string) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, _ := w.Create(name)
		_, _ = io.WriteString(f, files[name])
	}
	_ = w.Close()
	return b.Bytes()
}

func asJSON(value any) []byte {
	text, _ := json.Marshal(value)
	return text
}

// nodePackage is a package of npm with a program and a script that runs when it is
// installed and reads nothing of the project.
var nodePackage = gzippedTar(map[string]string{
	"package/package.json":   `{"name": "greeting", "version": "1.0.0", "main": "index.js", "bin": {"greet": "bin/greet.js"}}`,
	"package/index.js":       "module.exports = 'hello';\n",
	"package/bin/greet.js":   "#!/usr/bin/env node\nconsole.log(require('..'));\n",
	"package/lib/deep/er.js": "module.exports = 1;\n",
})

func (p *packages) nodeTarball() string { return p.url + "/npm/greeting/-/greeting-1.0.0.tgz" }

func nodeIntegrity() string {
	sum := sha512.Sum512(nodePackage)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (p *packages) addNPM() {
	p.files["/npm/greeting/-/greeting-1.0.0.tgz"] = nodePackage
	p.files["/npm/greeting"] = asJSON(map[string]any{
		"name":      "greeting",
		"dist-tags": map[string]string{"latest": "1.0.0"},
		"versions": map[string]any{"1.0.0": map[string]any{
			"name": "greeting", "version": "1.0.0", "bin": map[string]string{"greet": "bin/greet.js"},
			"dist": map[string]string{"tarball": p.nodeTarball(), "integrity": nodeIntegrity(), "shasum": fmt.Sprintf("%x", sha1.Sum(nodePackage))}, //nolint:gosec // see above
		}},
	})
}

// npmLock is a package-lock.json of a project that depends on greeting.
func (p *packages) npmLock() string {
	return string(asJSON(map[string]any{"name": "x", "lockfileVersion": 3, "requires": true, "packages": map[string]any{
		"": map[string]any{"name": "x", "dependencies": map[string]string{"greeting": "1.0.0"}},
		"node_modules/greeting": map[string]any{
			"version": "1.0.0", "resolved": p.nodeTarball(), "integrity": nodeIntegrity(), "bin": map[string]string{"greet": "bin/greet.js"},
		},
	}}))
}

// addReader adds a package of npm with a script that copies server.js of the project when
// it is installed. Version 1.0.0 does without it, 2.0.0 fails.
func (p *packages) addReader() {
	versions := map[string]any{}
	for version, otherwise := range map[string]string{"1.0.0": "", "2.0.0": "process.exitCode = 1"} {
		tarball := gzippedTar(map[string]string{
			"package/package.json": `{"name": "reader", "version": "` + version + `", "scripts": {"postinstall": "node read.js"}}`,
			"package/read.js": "let text = 'nothing';\ntry { text = require('fs').readFileSync(process.env.INIT_CWD + '/server.js', 'utf8'); } catch { " + otherwise + " }\n" +
				"require('fs').writeFileSync('index.js', 'module.exports = ' + JSON.stringify(text.split('\\n')[0]));\n",
		})
		p.files["/npm/reader/-/reader-"+version+".tgz"] = tarball
		versions[version] = map[string]any{
			"name": "reader", "version": version, "hasInstallScript": true,
			"dist": map[string]string{"tarball": p.url + "/npm/reader/-/reader-" + version + ".tgz", "shasum": fmt.Sprintf("%x", sha1.Sum(tarball))}, //nolint:gosec // see above
		}
	}
	p.files["/npm/reader"] = asJSON(map[string]any{"name": "reader", "dist-tags": map[string]string{"latest": "2.0.0"}, "versions": versions})
}

const goModule = "example.com/greeting"

var goModuleZip = zipOf(map[string]string{
	goModule + "@v1.0.0/go.mod":      "module " + goModule + "\n\ngo 1.26\n",
	goModule + "@v1.0.0/greeting.go": "package greeting\n\nconst Text = \"hello\"\n",
})

func (p *packages) addGo(t *testing.T) {
	at := "/go/" + goModule + "/@v/"
	p.files[at+"list"] = []byte("v1.0.0\n")
	p.files[at+"v1.0.0.info"] = asJSON(map[string]string{"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"})
	p.files[at+"v1.0.0.mod"] = []byte("module " + goModule + "\n\ngo 1.26\n")
	p.files[at+"v1.0.0.zip"] = goModuleZip
	require.NotEmpty(t, p.goSum(t))
}

// goSum is the go.sum of a module that depends on greeting.
func (p *packages) goSum(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "m.zip")
	require.NoError(t, os.WriteFile(file, goModuleZip, 0o600))
	whole, err := dirhash.HashZip(file, dirhash.Hash1)
	require.NoError(t, err)
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(p.files["/go/"+goModule+"/@v/v1.0.0.mod"])), nil
	})
	require.NoError(t, err)
	return fmt.Sprintf("%[1]s v1.0.0 %[2]s\n%[1]s v1.0.0/go.mod %[3]s\n", goModule, whole, mod)
}

func (p *packages) addPython() {
	files := map[string]string{
		"greeting/__init__.py":                      "TEXT = 'hello'\n",
		"greeting/data.txt":                         "data\n",
		"greeting-1.0.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0.0\n",
		"greeting-1.0.0.dist-info/WHEEL":            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"greeting-1.0.0.dist-info/entry_points.txt": "[console_scripts]\ngreet = greeting:TEXT\n",
	}
	var record strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256([]byte(files[name]))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[name]))
	}
	files["greeting-1.0.0.dist-info/RECORD"] = record.String() + "greeting-1.0.0.dist-info/RECORD,,\n"
	const wheel = "greeting-1.0.0-py3-none-any.whl"
	p.files["/simple/greeting/"+wheel] = zipOf(files)
	p.files["/simple/greeting"] = []byte(`<!DOCTYPE html><html><body><a href="` + wheel + `">` + wheel + `</a></body></html>`)
}

func zipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.Bytes()
}

// addRuby adds a gem to a compact index.
func (p *packages) addRuby() {
	spec := `--- !ruby/object:Gem::Specification
name: greeting
version: !ruby/object:Gem::Version
  version: 1.0.0
platform: ruby
authors: [test]
date: 2026-01-01 00:00:00.000000000 Z
dependencies: []
files: [lib/greeting.rb]
require_paths: [lib]
required_ruby_version: !ruby/object:Gem::Requirement
  requirements:
  - - ">="
    - !ruby/object:Gem::Version
      version: '0'
required_rubygems_version: !ruby/object:Gem::Requirement
  requirements:
  - - ">="
    - !ruby/object:Gem::Version
      version: '0'
rubygems_version: 3.3.0
specification_version: 4
summary: greets
`
	var gem bytes.Buffer
	w := tar.NewWriter(&gem)
	for _, f := range []struct {
		name string
		data []byte
	}{{"metadata.gz", zipped(spec)}, {"data.tar.gz", gzippedTar(map[string]string{"lib/greeting.rb": "GREETING = 'hello'\n"})}} {
		_ = w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o444, Size: int64(len(f.data))})
		_, _ = w.Write(f.data)
	}
	_ = w.Close()
	info := fmt.Sprintf("---\n1.0.0 |checksum:%x\n", sha256.Sum256(gem.Bytes()))
	p.files["/gems/gems/greeting-1.0.0.gem"] = gem.Bytes()
	p.files["/gems/info/greeting"] = []byte(info)
	p.files["/gems/names"] = []byte("---\ngreeting\n")
	p.files["/gems/versions"] = fmt.Appendf(nil, "created_at: 2026-01-01T00:00:00Z\n---\ngreeting 1.0.0 %x\n", md5.Sum([]byte(info))) //nolint:gosec // see above
}

var phpPackage = zipOf(map[string]string{
	"composer.json":    `{"name": "test/greeting", "autoload": {"psr-4": {"Test\\Greeting\\": "src/"}}, "bin": ["bin/greet"]}`,
	"src/Greeting.php": "<?php\nnamespace Test\\Greeting;\nclass Greeting { const TEXT = 'hello'; }\n",
	"bin/greet":        "#!/usr/bin/env php\n<?php echo 'hello';\n",
})

// phpEntry is what the index and a composer.lock say of the package.
func (p *packages) phpEntry() map[string]any {
	return map[string]any{
		"name": "test/greeting", "version": "1.0.0", "type": "library", "bin": []string{"bin/greet"},
		"dist":     map[string]string{"type": "zip", "url": p.url + "/php/greeting.zip", "shasum": fmt.Sprintf("%x", sha1.Sum(phpPackage))}, //nolint:gosec // see above
		"autoload": map[string]any{"psr-4": map[string]string{`Test\Greeting\`: "src/"}},
	}
}

func (p *packages) addPHP() {
	p.files["/php/greeting.zip"] = phpPackage
	p.files["/php/packages.json"] = asJSON(map[string]any{"packages": map[string]any{"test/greeting": map[string]any{"1.0.0": p.phpEntry()}}})
}

func (p *packages) composerLock() string {
	return string(asJSON(map[string]any{
		"content-hash": "0123456789abcdef0123456789abcdef", "packages": []any{p.phpEntry()}, "packages-dev": []any{},
		"aliases": []any{}, "minimum-stability": "stable", "stability-flags": map[string]any{}, "prefer-stable": false,
		"prefer-lowest": false, "platform": map[string]any{}, "platform-dev": map[string]any{},
	}))
}

var rustCrate = gzippedTar(map[string]string{
	"greeting-1.0.0/Cargo.toml": "[package]\nname = \"greeting\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
	"greeting-1.0.0/src/lib.rs": "pub const TEXT: &str = \"hello\";\n",
})

func (p *packages) addRust() {
	p.files["/crates/config.json"] = asJSON(map[string]string{"dl": p.url + "/crates/dl"})
	p.files["/crates/gr/ee/greeting"] = asJSON(map[string]any{
		"name": "greeting", "vers": "1.0.0", "deps": []any{}, "features": map[string]any{}, "yanked": false, "cksum": rustSum(),
	})
	p.files["/crates/dl/greeting/1.0.0/download"] = rustCrate
}

func rustSum() string { return fmt.Sprintf("%x", sha256.Sum256(rustCrate)) }
