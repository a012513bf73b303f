package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/engine"
)

// byHand deploys with calls of the engine's API, one after the other, like someone with
// a single program and no host. Steps that create something are not interrupted: clean
// finds the result by its name.
type byHand struct {
	engine  *client.Client
	network container.NetworkMode // of the deploy being made
}

const (
	handBuild   = "berth-bench-build"
	handRun     = "berth-bench-run"
	handNext    = "berth-bench-next"
	handCopy    = "berth-bench-copy"
	handNetwork = "berth-bench"
	handVolume  = "berth-bench-copy"
	handImage   = "berth/bench:hand"
	handBase    = "berth/bench:base"
	handPort    = "3000"
)

func newByHand(ctx context.Context) (*byHand, error) {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, err
	}
	if _, err := c.Ping(ctx); err != nil {
		return nil, fmt.Errorf("no Docker engine: %w", err)
	}
	return &byHand{engine: c}, nil
}

// deploy builds and starts the program in archive, on the engine's default network or
// on a new one, and returns how long that took up to its first answer. It leaves
// nothing behind.
func (h *byHand) deploy(ctx context.Context, base string, archive []byte, ownNetwork bool) (time.Duration, error) {
	defer h.clean()
	start := time.Now()
	h.network = "bridge"
	if ownNetwork {
		h.network = handNetwork
		if _, err := h.engine.NetworkCreate(context.WithoutCancel(ctx), handNetwork, network.CreateOptions{Driver: "bridge"}); err != nil {
			return 0, fmt.Errorf("by hand: %w", err)
		}
	}
	if err := h.build(ctx, base, archive); err != nil {
		return 0, fmt.Errorf("by hand: %w", err)
	}
	_, live, err := h.runImage(ctx, handRun, &container.Config{
		Image: handImage, WorkingDir: "/app", Env: []string{"PORT=" + handPort},
		Cmd: []string{"sh", "-c", "node server.js"},
	}, "/")
	if err != nil {
		return 0, fmt.Errorf("by hand: %w", err)
	}
	return live.Sub(start), nil
}

// build builds an image of the program: copy, two commands, one commit.
func (h *byHand) build(ctx context.Context, base string, archive []byte) error {
	config := &container.Config{Image: base, WorkingDir: "/app", Cmd: []string{"sleep", "infinity"}}
	if _, err := h.engine.ContainerCreate(context.WithoutCancel(ctx), config, &container.HostConfig{NetworkMode: h.network}, nil, nil, handBuild); err != nil {
		return err
	}
	if err := h.engine.CopyToContainer(ctx, handBuild, "/app", bytes.NewReader(archive), container.CopyToContainerOptions{}); err != nil {
		return err
	}
	if err := h.engine.ContainerStart(ctx, handBuild, container.StartOptions{}); err != nil {
		return err
	}
	for range 2 {
		if _, err := h.run(ctx, "true", nil); err != nil {
			return err
		}
	}
	_, err := h.engine.ContainerCommit(ctx, handBuild, container.CommitOptions{Reference: handImage, Pause: true})
	return err
}

// runImage starts an image in a container and waits for its first answer at a path. It
// returns when the process began and when it answered.
func (h *byHand) runImage(ctx context.Context, name string, config *container.Config, path string) (begun, live time.Time, err error) {
	if _, err := h.engine.ContainerCreate(context.WithoutCancel(ctx), config, &container.HostConfig{NetworkMode: h.network}, nil, nil, name); err != nil {
		return begun, live, err
	}
	if err := h.engine.ContainerStart(ctx, name, container.StartOptions{}); err != nil {
		return begun, live, err
	}
	running, err := h.engine.ContainerInspect(ctx, name)
	if err != nil {
		return begun, live, err
	}
	if begun, err = time.Parse(time.RFC3339Nano, running.State.StartedAt); err != nil {
		return begun, live, err
	}
	for _, n := range running.NetworkSettings.Networks {
		live, err = poll(ctx, "http://"+n.IPAddress+":"+handPort+path, "localhost")
		return begun, live, err
	}
	return begun, live, errors.New("the container has no network")
}

// copyVolume copies the files of a volume to a new one with tar, and returns how long
// tar ran. It leaves nothing behind.
func (h *byHand) copyVolume(ctx context.Context, base, from string) (time.Duration, error) {
	defer h.clean()
	config := &container.Config{Image: base, Cmd: []string{"sh", "-c", "tar -C /from -cf - . | tar -C /to -xpf -"}}
	host := &container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{
		{Type: mount.TypeVolume, Source: from, Target: "/from", ReadOnly: true},
		{Type: mount.TypeVolume, Source: handVolume, Target: "/to"},
	}}
	if _, err := h.engine.ContainerCreate(context.WithoutCancel(ctx), config, host, nil, nil, handCopy); err != nil {
		return 0, fmt.Errorf("by hand: %w", err)
	}
	if err := h.engine.ContainerStart(ctx, handCopy, container.StartOptions{}); err != nil {
		return 0, fmt.Errorf("by hand: %w", err)
	}
	ended, failed := h.engine.ContainerWait(ctx, handCopy, container.WaitConditionNotRunning)
	select {
	case err := <-failed:
		return 0, fmt.Errorf("by hand: %w", err)
	case end := <-ended:
		if end.StatusCode != 0 {
			return 0, fmt.Errorf("by hand: tar exited with code %d", end.StatusCode)
		}
	}
	return h.ran(ctx, handCopy)
}

// ran returns how long a container that has ended ran.
func (h *byHand) ran(ctx context.Context, name string) (time.Duration, error) {
	c, err := h.engine.ContainerInspect(ctx, name)
	if err != nil {
		return 0, err
	}
	started, err1 := time.Parse(time.RFC3339Nano, c.State.StartedAt)
	finished, err2 := time.Parse(time.RFC3339Nano, c.State.FinishedAt)
	return finished.Sub(started), errors.Join(err1, err2)
}

// hasVolume reports whether there is a volume with that name.
func (h *byHand) hasVolume(ctx context.Context, name string) bool {
	_, err := h.engine.VolumeInspect(ctx, name)
	return err == nil
}

// clean removes everything that was made by hand.
func (h *byHand) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, name := range []string{handBuild, handRun, handNext, handCopy} {
		h.engine.ContainerRemove(ctx, name, container.RemoveOptions{Force: true, RemoveVolumes: true})
	}
	for _, name := range []string{handImage, handBase} {
		h.engine.ImageRemove(ctx, name, image.RemoveOptions{Force: true})
	}
	h.engine.NetworkRemove(ctx, handNetwork)
	h.engine.VolumeRemove(ctx, handVolume, true)
}

const (
	sweepTime   = 3 * time.Minute
	sweepPasses = 3 // what the engine was still busy with appears in the next
)

// sweep removes what the server with this data directory has left in the engine.
func (h *byHand) sweep(data string) {
	instance, err := os.ReadFile(datadir.Dir(data).Instance())
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	own := filters.NewArgs()
	for label, value := range (engine.Key{}).Labels(strings.TrimSpace(string(instance))) {
		own.Add("label", label+"="+value)
	}
	for range sweepPasses {
		if h.sweepOnce(ctx, own) == 0 {
			return
		}
	}
}

// sweepOnce removes the engine's objects with these labels, containers first, since
// they hold the others, and returns how many there were.
func (h *byHand) sweepOnce(ctx context.Context, own filters.Args) (count int) {
	all := func(n int, remove func(int) error) {
		count += n
		var group errgroup.Group
		group.SetLimit(atOnce)
		for i := range n {
			group.Go(func() error { return remove(i) })
		}
		group.Wait() //nolint:errcheck // what stays is there in the next pass
	}
	containers, _ := h.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: own})
	all(len(containers), func(i int) error {
		return h.engine.ContainerRemove(ctx, containers[i].ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	images, _ := h.engine.ImageList(ctx, image.ListOptions{Filters: own})
	all(len(images), func(i int) error {
		_, err := h.engine.ImageRemove(ctx, images[i].ID, image.RemoveOptions{Force: true})
		return err
	})
	networks, _ := h.engine.NetworkList(ctx, network.ListOptions{Filters: own})
	all(len(networks), func(i int) error { return h.engine.NetworkRemove(ctx, networks[i].ID) })
	volumes, _ := h.engine.VolumeList(ctx, volume.ListOptions{Filters: own})
	all(len(volumes.Volumes), func(i int) error { return h.engine.VolumeRemove(ctx, volumes.Volumes[i].Name, true) })
	return count
}
