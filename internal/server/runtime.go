package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/docker"
)

// gvisorNeeds are arguments without which stacks do not work under gVisor. By default
// it keeps what a container writes to its layer in its own memory, so a build's results
// would be lost, and its own network does not reach the engine's names.
var gvisorNeeds = []string{"--overlay2=none", "--network=host"}

// checkEngine refuses settings that the engine described by info cannot run stacks
// with. It accepts any limit of memory; with more cores for a service than it has, the
// engine would refuse each container.
func (c *Config) checkEngine(info docker.Info) error {
	if err := runtimeFault(c.ContainerRuntime, info); err != nil {
		return err
	}
	if c.ServiceCPUs > float64(info.CPUs) {
		return fmt.Errorf("BERTH_SERVICE_CPUS=%v: the engine has %d cores; write at most that", c.ServiceCPUs, info.CPUs)
	}
	return nil
}

// runtimeFault says in one line what is wrong with a runtime of an engine, and what to
// do about it. The empty name means the engine's default.
func runtimeFault(name string, info docker.Info) error {
	chosen := cmp.Or(name, info.DefaultRuntime)
	runtime, known := info.Runtimes[chosen]
	switch {
	case !known && (name == "" || strings.Contains(name, ".")):
		return nil // the name of a shim, which an engine need not be told of
	case !known:
		return fmt.Errorf("BERTH_CONTAINER_RUNTIME=%q: the engine has no such runtime, only %s; add it under \"runtimes\" in the engine's daemon.json (/etc/docker/daemon.json) and reload the engine",
			name, strings.Join(slices.Sorted(maps.Keys(info.Runtimes)), ", "))
	case filepath.Base(runtime.Path) != "runsc":
		return nil
	}
	lacks := lacking(runtime.Args)
	if len(lacks) == 0 {
		return nil
	}
	right, err := json.Marshal(map[string]any{chosen: map[string]any{"path": runtime.Path, "runtimeArgs": append(slices.Clone(runtime.Args), lacks...)}})
	if err != nil {
		return err
	}
	return fmt.Errorf("the runtime %s is gVisor without %s, which stacks need; write \"runtimes\": %s in the engine's daemon.json (/etc/docker/daemon.json) and reload the engine",
		chosen, strings.Join(lacks, " "), right)
}

// lacking returns those of gvisorNeeds that the arguments do not contain. A flag may
// have one dash or two, and its value in the same argument or in the next; the last one
// counts.
func lacking(args []string) []string {
	given := map[string]string{}
	for i := 0; i < len(args); i++ {
		flag, value, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !joined && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			value = args[i]
		}
		given[flag] = value
	}
	return slices.DeleteFunc(slices.Clone(gvisorNeeds), func(need string) bool {
		flag, value, _ := strings.Cut(strings.TrimLeft(need, "-"), "=")
		return given[flag] == value
	})
}
