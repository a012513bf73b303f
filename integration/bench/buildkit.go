package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
)

// dockerfile installs the packages in a separate layer, which an edit does not change.
const dockerfile = "FROM " + handBase + `
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci
COPY . .
CMD ["node", "server.js"]
`

// buildKit deploys edits of a Node program with the engine's own BuildKit and a
// Dockerfile, while the container of the edit before still runs. The source goes to the
// engine with the request, which takes less time than the session of docker build.
type buildKit struct {
	hand    *byHand
	project *project
	edits   int
	running string   // container of the last edit, by name; "" for none
	image   string   // its image, by id
	layers  []string // of the packages and everything below
	before  []string // what was in BuildKit's cache at the beginning, by id
}

// openBuildKit makes the image that the Dockerfile begins with. The caller must call
// close.
func openBuildKit(ctx context.Context, hand *byHand, base string, p *project) (*buildKit, error) {
	project := *p
	project.files = maps.Clone(p.files)
	project.files["Dockerfile"] = dockerfile
	delete(project.files, "stack.yaml")
	k := &buildKit{hand: hand, project: &project}
	hand.network = "bridge"
	var err error
	if k.before, err = k.cached(ctx); err != nil {
		return nil, err
	}
	if err := hand.trustingBase(ctx, base); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// edit builds the next edit and starts it, and returns how long that took up to its
// first answer, and how much of that the process took since it began. Then it removes
// the edit before.
func (k *buildKit) edit(ctx context.Context) (took, own time.Duration, err error) {
	k.edits++
	source, err := k.project.whole(k.edits)
	if err != nil {
		return 0, 0, err
	}
	name := []string{handRun, handNext}[k.edits%2]
	start := time.Now()
	if err := k.hand.buildImage(ctx, source); err != nil {
		return 0, 0, err
	}
	begun, live, err := k.hand.runImage(ctx, name, &container.Config{
		Image: handImage, Env: []string{"PORT=" + handPort, "HOST=0.0.0.0", "DATA_DIR=/data", "WEB_ORIGIN=*"},
	}, k.project.shows)
	if err != nil {
		return 0, 0, fmt.Errorf("by hand: %w", err)
	}
	return live.Sub(start), live.Sub(begun), k.replace(ctx, name)
}

// replace removes the container and the image of the edit before. It fails if the image
// of the new one does not share the layer of the packages with it.
func (k *buildKit) replace(ctx context.Context, name string) error {
	made, err := k.hand.engine.ImageInspect(ctx, handImage)
	if err != nil {
		return err
	}
	layers := made.RootFS.Layers[:len(made.RootFS.Layers)-1] // without that of the source
	if k.layers != nil && !slices.Equal(layers, k.layers) {
		return errors.New("by hand: BuildKit has installed the packages again")
	}
	if k.running != "" {
		err = k.hand.engine.ContainerRemove(ctx, k.running, container.RemoveOptions{Force: true, RemoveVolumes: true})
		_, err2 := k.hand.engine.ImageRemove(ctx, k.image, image.RemoveOptions{})
		err = errors.Join(err, err2)
	}
	k.running, k.image, k.layers = name, made.ID, layers
	return err
}

// close removes everything that was made, and what has come into BuildKit's cache since
// the beginning.
func (k *buildKit) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	k.hand.clean()
	for {
		ids, err := k.cached(ctx)
		if err != nil {
			return err
		}
		removed := 0
		for _, id := range ids {
			if slices.Contains(k.before, id) {
				continue
			}
			report, err := k.hand.engine.BuildCachePrune(ctx, build.CachePruneOptions{All: true, Filters: filters.NewArgs(filters.Arg("id", id))})
			if err != nil {
				return err
			}
			removed += len(report.CachesDeleted)
		}
		if removed == 0 { // in each pass goes what nothing else was made from
			return nil
		}
	}
}

// cached returns what is in BuildKit's cache, by id.
func (k *buildKit) cached(ctx context.Context) (ids []string, err error) {
	usage, err := k.hand.engine.DiskUsage(ctx, types.DiskUsageOptions{Types: []types.DiskUsageObject{types.BuildCacheObject}})
	for _, record := range usage.BuildCache {
		ids = append(ids, record.ID)
	}
	return ids, err
}

// buildImage builds the Dockerfile in an archive with BuildKit.
func (h *byHand) buildImage(ctx context.Context, source []byte) error {
	answer, err := h.engine.ImageBuild(ctx, bytes.NewReader(source), build.ImageBuildOptions{Version: build.BuilderBuildKit, Tags: []string{handImage}})
	if err != nil {
		return fmt.Errorf("by hand: %w", err)
	}
	defer answer.Body.Close()
	messages := json.NewDecoder(answer.Body)
	for {
		var message struct{ Error string }
		if err := messages.Decode(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("by hand: %w", err)
		}
		if message.Error != "" {
			return fmt.Errorf("by hand: build: %s", message.Error)
		}
	}
}

// trustingBase makes an image of a base image and this machine's settings for package
// hosts.
func (h *byHand) trustingBase(ctx context.Context, base string) error {
	env, err := packageHosts()
	if err != nil {
		return err
	}
	if _, err := h.engine.ContainerCreate(context.WithoutCancel(ctx), &container.Config{Image: base, Env: env}, nil, nil, nil, handBuild); err != nil {
		return fmt.Errorf("by hand: %w", err)
	}
	if err := h.copyCertificates(ctx); err != nil {
		return err
	}
	if _, err := h.engine.ContainerCommit(ctx, handBuild, container.CommitOptions{Reference: handBase}); err != nil {
		return fmt.Errorf("by hand: %w", err)
	}
	return h.engine.ContainerRemove(ctx, handBuild, container.RemoveOptions{})
}

// handCA is where the certificates are in containers by hand.
const handCA = "bench-ca.pem"

// copyCertificates copies the certificates that builds trust into the build's container.
func (h *byHand) copyCertificates(ctx context.Context) error {
	name := os.Getenv("BERTH_BUILD_CA_FILE")
	if name == "" {
		return nil
	}
	bundle, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return h.copyFiles(ctx, "/", map[string]string{handCA: string(bundle)})
}

// packageHosts returns the variables of this machine's settings for package hosts.
func packageHosts() (env []string, err error) {
	if name := os.Getenv("BERTH_BUILD_ENV_FILE"); name != "" {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		env = strings.Fields(string(text))
	}
	if os.Getenv("BERTH_BUILD_CA_FILE") != "" {
		env = append(env, "NODE_EXTRA_CA_CERTS=/"+handCA, "NPM_CONFIG_CAFILE=/"+handCA)
	}
	return env, nil
}
