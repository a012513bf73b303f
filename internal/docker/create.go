package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
)

// ContainerSpec describes a container to create. Whatever it says, the
// container has no capabilities but Caps and cannot gain privileges, runs under
// the system call filter of seccomp.go, sees no file of the kernel that tells of
// the machine or of others, has an init, its own IPC namespace and no published
// ports, dumps no core, is never restarted by the engine, and its log is bounded.
type ContainerSpec struct {
	Name     string
	Image    string
	User     string   // uid:gid
	Dir      string   // working directory; "" is the image's
	Hostname string   // "" is the container's id
	Cmd      []string // replaces the image's entrypoint and command; nil keeps both
	Env      []string // KEY=value
	Labels   Labels

	Network string   // "" is none at all, not even the engine's default bridge
	Aliases []string // names on Network, beside the container's own

	// Volumes gives each path in the container the name of an existing volume.
	// create fills an empty one with what the image has at that path, its
	// directory's owner and mode included.
	Volumes map[string]string

	Memory    int64 // bytes, swap included; 0 is no limit
	NanoCPUs  int64 // billionths of a CPU; 0 is no limit
	CPUShares int64 // weight against other containers; 0 is the engine's default, 1024
	Pids      int64 // processes and threads; 0 is no limit

	Caps        []string      // capabilities that the host's own helpers keep; none for a tenant's code
	Runtime     string        // OCI runtime, as in runsc; "" is the engine's
	LogMax      int64         // bytes of log that the engine keeps, in two files; 0 is 10 MB
	StopTimeout time.Duration // between SIGTERM and SIGKILL, rounded up to seconds; 0 is the engine's, 10 s
}

// defaultLogMax is the log kept when ContainerSpec.LogMax is 0, in bytes.
const defaultLogMax = 10_000_000

// create makes a container and returns its id; it does not start it. A name
// that is taken is ErrConflict; with engine.ErrUnreachable there may be a container of
// that name, not started. A missing image or volume is engine.ErrNotFound, as is
// a missing network when it starts. When the engine does not apply one of the container's limits,
// the container is removed again and the error names the option.
func (e *Engine) create(ctx context.Context, spec ContainerSpec) (string, error) {
	for path, name := range spec.Volumes {
		// The engine would make a missing volume silently.
		err := again(ctx, func() error {
			_, err := e.api.VolumeInspect(ctx, name)
			return wrap(err, "create container %s: volume %s at %s", spec.Name, name, path)
		})
		if err != nil {
			return "", err
		}
	}
	host := hostConfig(&spec)
	made, err := e.api.ContainerCreate(ctx, config(&spec), host, networking(&spec), nil, spec.Name)
	if err != nil {
		return "", wrap(err, "create container %s from %s", spec.Name, spec.Image)
	}
	if err := e.verify(ctx, made.ID, host); err != nil {
		removed := e.remove(context.WithoutCancel(ctx), made.ID)
		return "", errors.Join(fmt.Errorf("docker: create container %s: %w", spec.Name, err), removed)
	}
	for _, warning := range made.Warnings {
		e.log.Warn("engine warns about a container", "container", spec.Name, "warning", warning)
	}
	return made.ID, nil
}

// verify compares what was asked with what the engine made of it: an option
// that it does not support it drops with no more than a warning.
func (e *Engine) verify(ctx context.Context, id string, want *container.HostConfig) error {
	found, err := e.rawInspect(ctx, id)
	if err != nil {
		return err
	}
	if options := dropped(want, found.HostConfig); len(options) > 0 {
		return fmt.Errorf("the engine does not apply %s", strings.Join(options, ", "))
	}
	return nil
}

// dropped names the options of want that got does not have.
func dropped(want, got *container.HostConfig) []string {
	var names []string
	for _, option := range []struct {
		name string
		kept bool
	}{
		{"dropping of all capabilities", slices.Equal(want.CapDrop, got.CapDrop) && len(want.CapAdd) == len(got.CapAdd)},
		{"security options (no-new-privileges, seccomp)", slices.Equal(want.SecurityOpt, got.SecurityOpt)},
		{"masked paths", slices.Equal(want.MaskedPaths, got.MaskedPaths)},
		{"read-only paths", slices.Equal(want.ReadonlyPaths, got.ReadonlyPaths)},
		{"init", same(want.Init, got.Init)},
		{"private IPC namespace", want.IpcMode == got.IpcMode},
		{"process limit", want.PidsLimit == nil || same(want.PidsLimit, got.PidsLimit)},
		{"memory limit", want.Memory == got.Memory},
		{"CPU limit", want.NanoCPUs == got.NanoCPUs},
		{"CPU shares", want.CPUShares == got.CPUShares},
		{"readiness to be killed when memory runs out", want.OomScoreAdj == got.OomScoreAdj},
		{"core ulimit", slices.EqualFunc(want.Ulimits, got.Ulimits, same[container.Ulimit])},
		{"bounded log", maps.Equal(want.LogConfig.Config, got.LogConfig.Config)},
		{"network", want.NetworkMode == got.NetworkMode},
		{"runtime", want.Runtime == "" || want.Runtime == got.Runtime},
	} {
		if !option.kept {
			names = append(names, option.name)
		}
	}
	return names
}

func same[T comparable](a, b *T) bool { return a != nil && b != nil && *a == *b }

func config(spec *ContainerSpec) *container.Config {
	c := &container.Config{
		Image:      spec.Image,
		User:       spec.User,
		WorkingDir: spec.Dir,
		Hostname:   spec.Hostname,
		Env:        spec.Env,
		Labels:     spec.Labels,
	}
	if spec.Cmd != nil {
		c.Cmd = spec.Cmd
		c.Entrypoint = []string{} // set but empty: nothing of the image's is put before Cmd
	}
	if spec.StopTimeout > 0 {
		seconds := int(math.Ceil(spec.StopTimeout.Seconds()))
		c.StopTimeout = &seconds
	}
	return c
}

func hostConfig(spec *ContainerSpec) *container.HostConfig {
	yes := true
	h := &container.HostConfig{
		CapDrop:       []string{"ALL"},
		CapAdd:        spec.Caps,
		SecurityOpt:   []string{"no-new-privileges", "seccomp=" + seccompProfile()},
		MaskedPaths:   maskedPaths(),
		ReadonlyPaths: readonlyPaths,
		Init:          &yes,
		IpcMode:       container.IPCModePrivate,
		NetworkMode:   none,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     logConfig(spec.LogMax),
		Runtime:       spec.Runtime,
		Mounts:        mounts(spec),
		OomScoreAdj:   firstToGo,
		Resources:     resources(spec),
	}
	if spec.Network != "" {
		h.NetworkMode = container.NetworkMode(spec.Network)
	}
	return h
}

// firstToGo makes the kernel, when the machine's memory runs out, end a
// container's processes before the engine, the server or anything else of the
// host's own.
const firstToGo = 500

// maskedPaths are files and folders of the kernel that a container finds empty:
// memory, keys, timers and interrupts of the whole machine, its firmware, its
// power meters and how hot it gets, from which others' secrets can be read. An
// engine of any age masks these; one that is not there is skipped.
var maskedPaths = sync.OnceValue(func() []string {
	return append([]string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg",
		"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/bpf", "/sys/kernel/debug", "/sys/kernel/security",
		"/sys/kernel/tracing",
	}, throttles("/sys/devices/system/cpu")...)
})

// throttles are the folders of a machine's processors that count how often each
// was slowed down for its heat.
func throttles(cpus string) []string {
	found, err := filepath.Glob(cpus + "/cpu[0-9]*/thermal_throttle")
	if err != nil {
		panic("docker: " + err.Error()) // the pattern is a constant
	}
	return found
}

// readonlyPaths are folders of the kernel that nobody in a container changes.
var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

func resources(spec *ContainerSpec) container.Resources {
	r := container.Resources{
		Memory:     spec.Memory,
		MemorySwap: spec.Memory, // equal: no swap on top
		NanoCPUs:   spec.NanoCPUs,
		CPUShares:  spec.CPUShares,
		Ulimits:    []*container.Ulimit{{Name: "core"}},
	}
	if spec.Pids > 0 {
		r.PidsLimit = &spec.Pids
	}
	return r
}

func logConfig(keep int64) container.LogConfig {
	if keep <= 0 {
		keep = defaultLogMax
	}
	return container.LogConfig{Type: "json-file", Config: map[string]string{
		"max-size": strconv.FormatInt(max(keep/2, 1), 10),
		"max-file": "2",
	}}
}

// mounts are the container's volumes. The labels are for one that is removed while
// the engine makes the container, and so is made again: it can be found by them.
func mounts(spec *ContainerSpec) []mount.Mount {
	list := make([]mount.Mount, 0, len(spec.Volumes))
	for path, name := range spec.Volumes {
		list = append(list, mount.Mount{
			Type: mount.TypeVolume, Source: name, Target: path,
			VolumeOptions: &mount.VolumeOptions{Labels: spec.Labels},
		})
	}
	return list
}

func networking(spec *ContainerSpec) *network.NetworkingConfig {
	if spec.Network == "" {
		return nil
	}
	return &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
		spec.Network: {Aliases: spec.Aliases},
	}}
}
