package docker

import (
	"cmp"
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

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"

	"github.com/berth-host/berth/internal/engine"
)

// unit describes a container to make. It has no capabilities, except for helperCaps of the
// host's own that copies data, and cannot gain privileges. It runs under the system call
// filter of seccomp.go, sees no file of the kernel that shows anything of the machine or of
// others, has an init, an IPC namespace of its own and no published ports, dumps no core, is
// never restarted by the engine, and its log is bounded.
type unit struct {
	name    string
	config  *container.Config
	host    *container.HostConfig
	network *network.NetworkingConfig
}

func (d *Driver) unit(spec *engine.Spec) unit {
	return unit{spec.Name, config(spec, d.labels(spec.Key)), d.hostConfig(spec), networking(spec)}
}

// create makes a container and those of its volumes that are missing; see replace. The
// engine fills a new volume before the container can be seen, and adds nothing to a volume
// that has files. So each attempt has new volumes, and they go when the last one fails.
func (d *Driver) create(ctx context.Context, u unit, clear func(context.Context, string) error) (string, error) {
	made, err := d.ensureVolumes(ctx, u.host.Mounts)
	if err != nil {
		return "", err
	}
	id, err := d.replace(ctx, u, func(ctx context.Context, name string) error {
		if err := clear(ctx, name); err != nil {
			return err
		}
		if err := d.removeVolumes(ctx, made); err != nil {
			return err
		}
		_, err := d.ensureVolumes(ctx, made)
		return err
	})
	if err != nil {
		return "", errors.Join(err, d.removeVolumes(context.WithoutCancel(ctx), made))
	}
	return id, nil
}

// replace makes a container, in place of one of the same name that an earlier attempt, or
// a request whose answer was lost, left, and that clear removes.
func (d *Driver) replace(ctx context.Context, u unit, clear func(context.Context, string) error) (string, error) {
	longer, done := toFinish(ctx) // the caller learns the id of what the engine makes
	defer done()
	id, err := d.tryCreate(longer, u)
	if !errors.Is(err, errConflict) && !errors.Is(err, engine.ErrUnreachable) {
		return id, err
	}
	if err := clear(ctx, u.name); err != nil {
		return "", err
	}
	id, err = d.tryCreate(longer, u)
	return id, busy(err)
}

// ensureVolumes makes those volumes of a container that are missing, and returns them.
func (d *Driver) ensureVolumes(ctx context.Context, volumes []mount.Mount) (made []mount.Mount, err error) {
	for _, m := range volumes {
		isNew, err := d.ensureVolume(ctx, m.Source, m.VolumeOptions.Labels)
		if err != nil {
			return nil, err
		}
		if isNew {
			made = append(made, m)
		}
	}
	return made, nil
}

func (d *Driver) removeVolumes(ctx context.Context, volumes []mount.Mount) error {
	var errs []error
	for _, m := range volumes {
		errs = append(errs, busy(d.removeVolume(ctx, m.Source)))
	}
	return errors.Join(errs...)
}

// tryCreate makes a container and returns its id. A name that is taken is errConflict;
// with engine.ErrUnreachable there may be a container of that name, not started. A missing
// image or volume is engine.ErrNotFound. When the engine does not apply one of the
// container's limits, the container is removed again and the error names the option.
func (d *Driver) tryCreate(ctx context.Context, u unit) (string, error) {
	for _, m := range u.host.Mounts { // the engine would make a missing volume silently
		if _, err := d.volume(ctx, m.Source); err != nil {
			return "", err
		}
	}
	made, err := d.api.ContainerCreate(ctx, u.config, u.host, u.network, nil, u.name)
	if err != nil {
		return "", wrap(err, "create container %s from %s", u.name, u.config.Image)
	}
	if err := d.verify(ctx, made.ID, u.host); err != nil {
		return "", errors.Join(fmt.Errorf("docker: create container %s: %w", u.name, err), d.Remove(ctx, made.ID))
	}
	for _, warning := range made.Warnings {
		d.engine.log.Warn("engine warns about a container", "container", u.name, "warning", warning)
	}
	return made.ID, nil
}

// verify compares what was asked with what the engine made of it, since the engine drops
// an option that it does not support with no more than a warning.
func (d *Driver) verify(ctx context.Context, id string, want *container.HostConfig) error {
	found, err := d.inspect(ctx, id)
	if err != nil {
		return err
	}
	if options := dropped(want, found.HostConfig); len(options) > 0 {
		return fmt.Errorf("the engine does not apply %s", strings.Join(options, ", "))
	}
	return nil
}

// dropped returns the names of the options of want that got does not have.
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
		{"ulimits of core and fsize", slices.EqualFunc(want.Ulimits, got.Ulimits, same[container.Ulimit])},
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

func config(spec *engine.Spec, labels engine.Labels) *container.Config {
	c := &container.Config{
		Image:      spec.Image,
		User:       spec.User,
		WorkingDir: spec.Dir,
		Hostname:   spec.Hostname,
		Env:        spec.Env,
		Labels:     labels,
		Cmd:        spec.Cmd,
		Entrypoint: []string{}, // set but empty: nothing of the image's is put before Cmd
		StopSignal: spec.StopSignal,
	}
	if spec.StopTimeout > 0 {
		seconds := int(math.Ceil(spec.StopTimeout.Seconds()))
		c.StopTimeout = &seconds
	}
	return c
}

func (d *Driver) hostConfig(spec *engine.Spec) *container.HostConfig {
	yes := true
	return &container.HostConfig{
		CapDrop:       []string{"ALL"},
		SecurityOpt:   []string{"no-new-privileges", "seccomp=" + seccompProfile()},
		MaskedPaths:   maskedPaths(),
		ReadonlyPaths: readonlyPaths,
		Init:          &yes,
		IpcMode:       container.IPCModePrivate,
		NetworkMode:   container.NetworkMode(cmp.Or(spec.Network, none)),
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     logConfig(spec.LogMax),
		Runtime:       d.opts.Runtime,
		Mounts:        mounts(spec, d.labels(spec.Key.WithoutGeneration())),
		OomScoreAdj:   firstToGo,
		Resources:     resources(spec),
	}
}

// firstToGo makes the kernel end a container's processes before the engine, the server
// or anything else of the host's own when the machine's memory runs out.
const firstToGo = 500

// maskedPaths are files and folders of the kernel that a container finds empty: memory,
// keys, timers and interrupts of the whole machine, its firmware, its power meters and how
// hot it gets, from which others' secrets can be read. An engine of any age masks them and
// skips missing ones.
var maskedPaths = sync.OnceValue(func() []string {
	return append([]string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg",
		"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/bpf", "/sys/kernel/debug", "/sys/kernel/security",
		"/sys/kernel/tracing",
	}, throttles("/sys/devices/system/cpu")...)
})

// throttles returns the folders of a machine's processors that count how often each was
// slowed down for its heat.
func throttles(cpus string) []string {
	found, _ := filepath.Glob(cpus + "/cpu[0-9]*/thermal_throttle") // the pattern is not wrong
	return found
}

// readonlyPaths are folders of the kernel that nobody in a container can change.
var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

func resources(spec *engine.Spec) container.Resources {
	r := container.Resources{
		Memory:     spec.Memory,
		MemorySwap: spec.Memory, // equal: no swap on top
		NanoCPUs:   spec.NanoCPUs,
		CPUShares:  spec.CPUShares,
		Ulimits:    []*container.Ulimit{{Name: "core"}},
	}
	if spec.FileMax > 0 {
		r.Ulimits = append(r.Ulimits, &container.Ulimit{Name: "fsize", Soft: spec.FileMax, Hard: spec.FileMax})
	}
	if spec.Pids > 0 {
		r.PidsLimit = &spec.Pids
	}
	return r
}

// defaultLogMax is the log that is kept when engine.Spec.LogMax is 0, in bytes.
const defaultLogMax = 10_000_000

func logConfig(keep int64) container.LogConfig {
	keep = cmp.Or(keep, defaultLogMax)
	return container.LogConfig{Type: "json-file", Config: map[string]string{
		"max-size": strconv.FormatInt(max(keep/2, 1), 10),
		"max-file": "2",
	}}
}

// mounts returns the container's volumes. A volume that is removed while the engine makes
// the container is made again, with these labels, by which it can be found.
func mounts(spec *engine.Spec, labels engine.Labels) []mount.Mount {
	list := make([]mount.Mount, 0, len(spec.Volumes))
	for path, name := range spec.Volumes {
		list = append(list, mount.Mount{
			Type: mount.TypeVolume, Source: name, Target: path,
			VolumeOptions: &mount.VolumeOptions{Labels: labels},
		})
	}
	return list
}

func networking(spec *engine.Spec) *network.NetworkingConfig {
	if spec.Network == "" {
		return nil
	}
	return &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
		spec.Network: {Aliases: spec.Aliases},
	}}
}
