package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/berth-host/berth/internal/build"
)

// byHand deploys over the engine's API, one call after the other, as someone
// would who has one program and no host.
type byHand struct {
	*client.Client
	network container.NetworkMode // of the deploy being made
}

const (
	handBuild   = "berth-bench-build"
	handRun     = "berth-bench-run"
	handNetwork = "berth-bench"
	handImage   = "berth/bench:hand"
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
	return &byHand{Client: c}, nil
}

// deploy builds and starts the program in archive, on the engine's default
// network or on one made for it, and returns how long that took up to its first
// answer. Nothing of it is left.
func (h *byHand) deploy(ctx context.Context, base string, archive []byte, ownNetwork bool) (time.Duration, error) {
	defer h.clean()
	start := time.Now()
	h.network = "bridge"
	if ownNetwork {
		h.network = handNetwork
		if _, err := h.NetworkCreate(ctx, handNetwork, network.CreateOptions{Driver: "bridge"}); err != nil {
			return 0, fmt.Errorf("by hand: %w", err)
		}
	}
	if err := h.build(ctx, base, archive); err != nil {
		return 0, fmt.Errorf("by hand: %w", err)
	}
	live, err := h.run(ctx)
	if err != nil {
		return 0, fmt.Errorf("by hand: %w", err)
	}
	return live.Sub(start), nil
}

// build makes an image of the program: copy, two commands, one commit.
func (h *byHand) build(ctx context.Context, base string, archive []byte) error {
	config := &container.Config{Image: base, WorkingDir: "/app", Cmd: []string{"sleep", "infinity"}}
	if _, err := h.ContainerCreate(ctx, config, &container.HostConfig{NetworkMode: h.network}, nil, nil, handBuild); err != nil {
		return err
	}
	if err := h.CopyToContainer(ctx, handBuild, "/app", bytes.NewReader(archive), container.CopyToContainerOptions{}); err != nil {
		return err
	}
	if err := h.ContainerStart(ctx, handBuild, container.StartOptions{}); err != nil {
		return err
	}
	for range 2 {
		if err := h.exec(ctx, "true"); err != nil {
			return err
		}
	}
	_, err := h.ContainerCommit(ctx, handBuild, container.CommitOptions{Reference: handImage, Pause: true})
	return err
}

// exec runs one command in the build's container and waits for its end.
func (h *byHand) exec(ctx context.Context, command string) error {
	made, err := h.ContainerExecCreate(ctx, handBuild, container.ExecOptions{
		Cmd: []string{"sh", "-c", command}, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return err
	}
	output, err := h.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer output.Close()
	if _, err := io.Copy(io.Discard, output.Reader); err != nil {
		return err
	}
	ended, err := h.ContainerExecInspect(ctx, made.ID)
	if err == nil && ended.ExitCode != 0 {
		err = fmt.Errorf("%s exited with code %d", command, ended.ExitCode)
	}
	return err
}

// run starts the image and waits for its first answer.
func (h *byHand) run(ctx context.Context) (time.Time, error) {
	config := &container.Config{
		Image: handImage, WorkingDir: "/app", Env: []string{"PORT=" + handPort},
		Cmd: []string{"sh", "-c", "node server.js"},
	}
	if _, err := h.ContainerCreate(ctx, config, &container.HostConfig{NetworkMode: h.network}, nil, nil, handRun); err != nil {
		return time.Time{}, err
	}
	if err := h.ContainerStart(ctx, handRun, container.StartOptions{}); err != nil {
		return time.Time{}, err
	}
	running, err := h.ContainerInspect(ctx, handRun)
	if err != nil {
		return time.Time{}, err
	}
	for _, n := range running.NetworkSettings.Networks {
		return poll(ctx, "http://"+n.IPAddress+":"+handPort+"/", "localhost")
	}
	return time.Time{}, errors.New("the container has no network")
}

// clean removes the containers and the image of a deploy by hand.
func (h *byHand) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, name := range []string{handBuild, handRun} {
		h.ContainerRemove(ctx, name, container.RemoveOptions{Force: true, RemoveVolumes: true})
	}
	h.ImageRemove(ctx, handImage, image.RemoveOptions{Force: true})
	h.NetworkRemove(ctx, handNetwork)
}

// sweep removes what the server whose data directory this was has left in the
// engine: nothing, unless a deploy failed half way.
func (h *byHand) sweep(data string) {
	instance, err := os.ReadFile(filepath.Join(data, "instance"))
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	own := filters.NewArgs(filters.Arg("label", build.LabelInstance+"="+strings.TrimSpace(string(instance))))
	containers, _ := h.ContainerList(ctx, container.ListOptions{All: true, Filters: own})
	for _, c := range containers {
		h.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
	}
	tagged, _ := h.ImageList(ctx, image.ListOptions{Filters: own})
	for _, i := range tagged {
		h.ImageRemove(ctx, i.ID, image.RemoveOptions{Force: true})
	}
	networks, _ := h.NetworkList(ctx, network.ListOptions{Filters: own})
	for _, n := range networks {
		h.NetworkRemove(ctx, n.ID)
	}
	volumes, _ := h.VolumeList(ctx, volume.ListOptions{Filters: own})
	for _, v := range volumes.Volumes {
		h.VolumeRemove(ctx, v.Name, true)
	}
}
