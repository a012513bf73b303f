package cluster

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/client"
	"golang.org/x/sync/errgroup"

	berth "github.com/berth-host/berth/images"
)

//go:embed images
var definitions embed.FS

// images are the references of the images from which machines are made.
type images struct{ node, services string }

// buildImages builds the images that the engine does not have. It fails if the engine has
// no Debian to build them from.
func buildImages(ctx context.Context, docker *client.Client, o Options) (images, error) {
	debian, err := docker.ImageInspect(ctx, berth.Debian)
	if err != nil {
		return images{}, fmt.Errorf("the engine has no %s: run make debian (%w)", berth.Debian, err)
	}
	var built images
	all, ctx := errgroup.WithContext(ctx)
	for name, ref := range map[string]*string{"node": &built.node, "services": &built.services} {
		all.Go(func() (err error) {
			*ref, err = buildImage(ctx, docker, o, debian.ID, name)
			return err
		})
	}
	return built, all.Wait()
}

// buildImage returns the reference of the image with a name, whose tag changes with its
// definition, and builds it unless the engine has it.
func buildImage(ctx context.Context, docker *client.Client, o Options, debian, name string) (string, error) {
	files, err := definition(o, name)
	if err != nil {
		return "", err
	}
	ref := "berth-lab/" + name + ":" + digest(debian, files)
	if _, err := docker.ImageInspect(ctx, ref); err == nil {
		return ref, nil
	}
	return ref, buildFiles(ctx, docker, o, ref, files)
}

// buildFiles builds an image from files, to which it adds this machine's certificates.
func buildFiles(ctx context.Context, docker *client.Client, o Options, ref string, files map[string][]byte) error {
	files["ca.crt"] = nil
	if o.CAFile != "" {
		var err error
		if files["ca.crt"], err = os.ReadFile(o.CAFile); err != nil {
			return err
		}
	}
	args, err := buildArgs(o.EnvFile)
	if err != nil {
		return err
	}
	res, err := docker.ImageBuild(ctx, pack(files), build.ImageBuildOptions{
		Version: build.BuilderV1, Tags: []string{ref}, BuildArgs: args, Remove: true, ForceRemove: true,
	})
	if err == nil {
		err = errors.Join(buildError(res.Body), res.Body.Close())
	}
	if err != nil {
		return fmt.Errorf("build the image %s: %w", ref, err)
	}
	return nil
}

// definition returns the files of an image's build by name. What depends on this machine,
// its certificates, is empty.
func definition(o Options, name string) (map[string][]byte, error) {
	install, err := os.ReadFile(filepath.Join(o.Checkout, "images", "common", "install.sh"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"install.sh": install, "ca.crt": nil}
	entries, err := definitions.ReadDir("images/" + name)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if files[e.Name()], err = definitions.ReadFile("images/" + name + "/" + e.Name()); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// digest returns a tag for an image from the id of its base and its files.
func digest(base string, files map[string][]byte) string {
	sum := sha256.New()
	fmt.Fprintln(sum, base)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(sum, "%s %d\n%s", name, len(files[name]), files[name])
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

func pack(files map[string][]byte) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		// Nothing that is written to memory fails.
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))})
		_, _ = w.Write(content)
	}
	_ = w.Close()
	return &b
}

// buildArgs reads a BERTH_BUILD_ENV_FILE.
func buildArgs(path string) (map[string]*string, error) {
	args := map[string]*string{}
	if path == "" {
		return args, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(name, "#") {
			args[name] = &value
		}
	}
	return args, lines.Err()
}

// buildError reads a build's output to its end and returns its error, with the output.
func buildError(output io.Reader) error {
	var said strings.Builder
	for messages := json.NewDecoder(output); ; {
		var m struct{ Stream, Error string }
		err := messages.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		said.WriteString(m.Stream)
		if m.Error != "" {
			return fmt.Errorf("%s\n%s", m.Error, said.String())
		}
	}
}
