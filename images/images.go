// Package images holds the definitions of the base images for stacks: one folder for
// each runtime, with a Dockerfile, the files that it copies and one <version>.args file
// for each version, which pins downloads and their checksums. A new runtime is a new
// folder; nothing here changes.
//
// All base images start from debian:trixie-slim, which debian.sh builds if no registry
// answers. The context of every build contains the folder's files, those of common/ and
// a bundle of certificates named ca.crt. Code in this package reads only the files that
// are embedded in it; it neither builds images nor calls an engine.
package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/engine"
)

// Debian is the image that every base image is built from.
const Debian = "debian:trixie-slim"

const (
	common     = "common"
	argsSuffix = ".args"
)

//go:embed debian.sh */*
var files embed.FS

// Image is the definition of one base image: a runtime in one version.
type Image struct {
	Name    string // name of the folder: node
	Version string // name of the .args file: 22
}

// Lookup returns the base image of a version of a runtime. The error lists the existing
// versions, or the runtimes.
func Lookup(runtime, version string) (Image, error) {
	var runtimes, versions []string
	for _, image := range All() {
		if image == (Image{runtime, version}) {
			return image, nil
		}
		if image.Name == runtime {
			versions = append(versions, image.Version)
		}
		runtimes = append(runtimes, image.Name)
	}
	if versions != nil {
		return Image{}, fmt.Errorf("no base image for %s@%s: the versions of %s are %s",
			runtime, version, runtime, strings.Join(versions, ", "))
	}
	return Image{}, fmt.Errorf("no base image for %s: there is one for %s",
		runtime, strings.Join(slices.Compact(runtimes), ", "))
}

// All returns every base image, by runtime and version.
func All() []Image {
	var all []Image
	for _, name := range glob("*/*" + argsSuffix) {
		all = append(all, Image{path.Dir(name), strings.TrimSuffix(path.Base(name), argsSuffix)})
	}
	return all
}

// DebianScript returns the shell script that builds the image Debian; its first comment
// describes how to call it.
func DebianScript() []byte { return read("debian.sh") }

// Ref returns the reference of the image in an engine. Its tag changes with every byte of
// the definition, including its arguments.
func (i Image) Ref() string {
	sum := sha256.New()
	for _, name := range append(i.files(), i.argsFile()) {
		content := read(name)
		fmt.Fprintf(sum, "%s %d\n%s", name, len(content), content)
	}
	return engine.BaseImage(i.Name, i.Version, hex.EncodeToString(sum.Sum(nil)))
}

// Args returns the build arguments that pin what the image downloads: versions and
// checksums. They do not include the hosts to download from: a build also needs
// NPM_CONFIG_REGISTRY or GOPROXY, and accepts DEBIAN_MIRROR and the usual proxy
// variables.
func (i Image) Args() map[string]string {
	args := map[string]string{}
	for line := range strings.Lines(string(read(i.argsFile()))) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			args[key] = value
		}
	}
	return args
}

// Context returns the build's context as a tar, with the Dockerfile at the root. The
// same ca gives the same bytes, so that the engine's cache can be used. ca holds
// certificates in PEM that downloads trust besides the system's, and may be nil; the
// finished image does not trust them.
func (i Image) Context(ca []byte) io.Reader {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	write(w, "ca.crt", ca)
	for _, name := range i.files() {
		write(w, path.Base(name), read(name))
	}
	check(w.Close())
	return &out
}

// files returns the embedded files of the build's context.
func (i Image) files() []string {
	return slices.DeleteFunc(append(glob(common+"/*"), glob(i.Name+"/*")...), func(name string) bool {
		return path.Ext(name) == argsSuffix
	})
}

func (i Image) argsFile() string { return path.Join(i.Name, i.Version+argsSuffix) }

func write(w *tar.Writer, name string, content []byte) {
	check(w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
	_, err := w.Write(content)
	check(err)
}

func read(name string) []byte {
	content, err := files.ReadFile(name)
	check(err)
	return content
}

func glob(pattern string) []string {
	names, err := fs.Glob(files, pattern)
	check(err)
	return names
}

// check panics on a failure. What is read is embedded, and what is written goes to
// memory: a failure is a bug of this package.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
