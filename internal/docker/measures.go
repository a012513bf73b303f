package docker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/engine"
)

// group is the control group of a container, by the folders of its two controllers. They are
// the same one in the second version of control groups.
type group struct {
	cpu, memory string
	unified     bool // it is of the second version
}

// VolumeSize implements engine.Driver. It reads the volume's folder where the engine has it,
// without the engine.
func (d *Driver) VolumeSize(volume string, step func() error) (int64, error) {
	size, err := disk.Used(filepath.Join(d.info.RootDir, "volumes", volume, "_data"), step)
	if errors.Is(err, fs.ErrNotExist) {
		err = engine.ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("docker: size of volume %s: %w", volume, err)
	}
	return size, nil
}

// LayerSize implements engine.Driver. The engine is asked for the folder of the container's layer.
func (d *Driver) LayerSize(ctx context.Context, id string) (size func(step func() error) (int64, error), err error) {
	found, err := d.inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	layer := ""
	if found.ContainerJSONBase != nil {
		layer = found.GraphDriver.Data["UpperDir"] // of overlay2, the engine's default
	}
	if _, err := os.Stat(layer); err != nil {
		return nil, fmt.Errorf("docker: layer of container %s: %w", id, engine.ErrHidden)
	}
	return func(step func() error) (int64, error) {
		bytes, err := disk.Used(layer, step)
		if errors.Is(err, fs.ErrNotExist) {
			err = engine.ErrNotFound
		}
		if err != nil {
			err = fmt.Errorf("docker: layer of container %s: %w", id, err)
		}
		return bytes, err
	}, nil
}

// Measure implements engine.Driver. The engine is asked for the container's process, whose
// group the kernel names. After that only the group's files are read.
func (d *Driver) Measure(ctx context.Context, id string) (read func() (engine.Usage, error), err error) {
	found, err := d.inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	if !found.State.Running || found.State.Pid == 0 {
		return nil, fmt.Errorf("docker: measure container %s: %w", id, engine.ErrNotRunning)
	}
	g, ok := groupOf("/proc", found.State.Pid, found.ID)
	if !ok {
		return nil, fmt.Errorf("docker: measure container %s: control group: %w", id, engine.ErrHidden)
	}
	return g.read, nil
}

// groupOf returns the control group of a container's process. The group's name has the
// container's id; another name, or none, is that of something else that has the process's
// number here, as within a container of the server's own.
func groupOf(proc string, pid int, id string) (g group, ok bool) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return g, false
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "self", "mountinfo"))
	if err != nil {
		return g, false
	}
	paths := groupPaths(string(text))
	if path, has := paths["memory"]; has {
		cpu := paths["cpuacct"]
		g = group{groupFolder(string(mounts), "cpuacct", cpu), groupFolder(string(mounts), "memory", path), false}
	} else {
		folder := groupFolder(string(mounts), "", paths[""])
		g = group{folder, folder, true}
	}
	_, err = g.read()
	return g, err == nil && strings.Contains(g.cpu, id) && strings.Contains(g.memory, id)
}

// groupPaths returns the paths in /proc/<pid>/cgroup by their controllers; that of the second
// version has the controller "".
func groupPaths(text string) map[string]string {
	paths := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			paths[controller] = parts[2]
		}
	}
	return paths
}

// groupFolder returns the folder of a path of a controller, from the text of mountinfo: ""
// if the hierarchy is not mounted, or only a part of it without the path.
func groupFolder(mounts, controller, path string) string {
	const (
		root, point   = 3, 4
		kind, options = 0, 2 // after the dash
	)
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) <= point || len(rest) <= options {
			continue
		}
		isIt := rest[kind] == "cgroup2"
		if controller != "" {
			isIt = rest[kind] == "cgroup" && slices.Contains(strings.Split(rest[options], ","), controller)
		}
		below, inside := strings.CutPrefix(path, strings.TrimSuffix(fields[root], "/"))
		if isIt && inside && strings.HasPrefix(below, "/") {
			return filepath.Join(fields[point], below)
		}
	}
	return ""
}

// read returns what the group uses.
func (g group) read() (u engine.Usage, err error) {
	if g.cpu == "" || g.memory == "" {
		return u, engine.ErrHidden
	}
	if g.unified {
		return g.readUnified()
	}
	nanos, err := readNumber(g.cpu, "cpuacct.usage")
	if err != nil {
		return u, err
	}
	used, err := readNumber(g.memory, "memory.usage_in_bytes")
	if err != nil {
		return u, err
	}
	cached, err := readField(g.memory, "memory.stat", "total_inactive_file")
	return engine.Usage{CPU: time.Duration(nanos), Memory: max(used-cached, 0)}, err
}

func (g group) readUnified() (u engine.Usage, err error) {
	micros, err := readField(g.cpu, "cpu.stat", "usage_usec")
	if err != nil {
		return u, err
	}
	used, err := readNumber(g.memory, "memory.current")
	if err != nil {
		return u, err
	}
	cached, err := readField(g.memory, "memory.stat", "inactive_file")
	return engine.Usage{CPU: time.Duration(micros) * time.Microsecond, Memory: max(used-cached, 0)}, err
}

// readNumber reads a file that has one number.
func readNumber(folder, name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
}

// readField reads a field of a file with a name and a number in each line. A field that is
// missing is 0.
func readField(folder, name, field string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), " "); ok && key == field {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, nil
}
