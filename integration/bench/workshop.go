package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-host/berth/runtimes"
)

// workshop is a container in which the build command of a project runs alone, again and
// again: its packages are installed and its caches are warm.
type workshop struct {
	hand    *byHand
	project *project
	command string
	env     []string
	edits   int
}

// openWorkshop starts the container, installs the packages and builds once. The caller
// must call the clean of hand.
func openWorkshop(ctx context.Context, hand *byHand, runtime, base string, p *project, install, command string) (*workshop, error) {
	w := &workshop{hand: hand, project: p, command: command}
	var err error
	if w.env, err = buildEnv(runtime); err != nil {
		return nil, err
	}
	config := &container.Config{Image: base, WorkingDir: "/app", Cmd: []string{"sleep", "infinity"}}
	if _, err := hand.engine.ContainerCreate(context.WithoutCancel(ctx), config, &container.HostConfig{NetworkMode: "bridge"}, nil, nil, handBuild); err != nil {
		return nil, fmt.Errorf("by hand: %w", err)
	}
	source, err := p.whole(0)
	if err != nil {
		return nil, err
	}
	err1 := hand.copyCertificates(ctx)
	err2 := hand.copyArchive(ctx, "/app", source)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := hand.engine.ContainerStart(ctx, handBuild, container.StartOptions{}); err != nil {
		return nil, fmt.Errorf("by hand: %w", err)
	}
	_, err = hand.run(ctx, install+" && "+command, w.env)
	return w, err
}

// buildEnv returns the environment of a build command of a runtime.
func buildEnv(runtime string) ([]string, error) {
	env, err := packageHosts()
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(runtime, "@")
	definition, ok := runtimes.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("there is no runtime %s", runtime)
	}
	own := definition.Environ("/app", true)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		env = append(env, name+"="+own[name])
	}
	return env, nil
}

// edit changes the line and returns how long the build command then runs, measured in
// the container.
func (w *workshop) edit(ctx context.Context) (time.Duration, error) {
	w.edits++
	source, err := w.project.overlay(w.edits)
	if err != nil {
		return 0, err
	}
	if err := w.hand.copyArchive(ctx, "/app", source); err != nil {
		return 0, err
	}
	const clock = "date +%s%N"
	quiet := w.command + " >/tmp/output 2>&1 || { cat /tmp/output; exit 1; }"
	out, err := w.hand.run(ctx, strings.Join([]string{"rm -rf dist bin", clock, quiet, clock}, "\n"), w.env)
	if err != nil {
		return 0, err
	}
	times := strings.Fields(out)
	if len(times) != 2 {
		return 0, fmt.Errorf("by hand: the times of the build are %q", out)
	}
	begun, err1 := strconv.ParseInt(times[0], 10, 64)
	ended, err2 := strconv.ParseInt(times[1], 10, 64)
	return time.Duration(ended - begun), errors.Join(err1, err2)
}

// copyFiles copies files into a folder of the build's container.
func (h *byHand) copyFiles(ctx context.Context, folder string, files map[string]string) error {
	packed, err := archive(files)
	if err != nil {
		return err
	}
	return h.copyArchive(ctx, folder, packed)
}

// copyArchive unpacks an archive in a folder of the build's container.
func (h *byHand) copyArchive(ctx context.Context, folder string, packed []byte) error {
	if err := h.engine.CopyToContainer(ctx, handBuild, folder, bytes.NewReader(packed), container.CopyToContainerOptions{}); err != nil {
		return fmt.Errorf("by hand: %w", err)
	}
	return nil
}

// run runs one command in the build's container, waits for its end and returns its
// output.
func (h *byHand) run(ctx context.Context, command string, env []string) (string, error) {
	made, err := h.engine.ContainerExecCreate(ctx, handBuild, container.ExecOptions{
		Cmd: []string{"sh", "-c", command}, Env: env, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return "", err
	}
	output, err := h.engine.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return "", err
	}
	defer output.Close()
	var text bytes.Buffer
	if _, err := stdcopy.StdCopy(&text, &text, output.Reader); err != nil {
		return "", err
	}
	ended, err := h.engine.ContainerExecInspect(ctx, made.ID)
	if err == nil && ended.ExitCode != 0 {
		err = fmt.Errorf("%s exited with code %d: %s", command, ended.ExitCode, text.String())
	}
	return text.String(), err
}
