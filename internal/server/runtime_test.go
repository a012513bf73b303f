package server

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/docker"
)

func TestRuntime_OneThatTheEngineDoesNotHaveIsNamedWithThoseItHas(t *testing.T) {
	info := docker.Info{DefaultRuntime: "runc", Runtimes: map[string]docker.Runtime{"runc": {Path: "runc"}, "crun": {Path: "/usr/bin/crun"}}}
	require.EqualError(t, runtimeFault("runsc", info), `BERTH_CONTAINER_RUNTIME="runsc": the engine has no such runtime, only crun, runc; `+
		`add it under "runtimes" in the engine's daemon.json (/etc/docker/daemon.json) and reload the engine`)
	for _, name := range []string{"", "runc", "crun", "io.containerd.kata.v2"} {
		assert.NoError(t, runtimeFault(name, info), name)
	}
}

func TestRuntime_GVisorNeedsItsArguments(t *testing.T) {
	with := func(args ...string) docker.Info {
		return docker.Info{DefaultRuntime: "gvisor", Runtimes: map[string]docker.Runtime{"gvisor": {Path: "/usr/local/bin/runsc", Args: args}}}
	}
	for _, right := range [][]string{
		{"--overlay2=none", "--network=host"},
		{"-network=host", "--debug", "-overlay2=none"},
		{"--overlay2", "none", "--network", "host"},
		{"--network=sandbox", "--overlay2=none", "--network=host"},
	} {
		assert.NoError(t, runtimeFault("gvisor", with(right...)), right)
	}
	for _, wrong := range [][]string{
		nil,
		{"--overlay2=none"},
		{"--overlay2=root:self", "--network=host"},
		{"--overlay2=none", "--network=host", "--network=sandbox"},
		{"--overlay2=none", "--network"},
	} {
		assert.Error(t, runtimeFault("gvisor", with(wrong...)), wrong)
		assert.Error(t, runtimeFault("", with(wrong...)), "it is the engine's own")
	}
	require.EqualError(t, runtimeFault("gvisor", with("--network=host", "--debug")), `the runtime gvisor is gVisor without --overlay2=none, which stacks need; `+
		`write "runtimes": {"gvisor":{"path":"/usr/local/bin/runsc","runtimeArgs":["--network=host","--debug","--overlay2=none"]}} `+
		`in the engine's daemon.json (/etc/docker/daemon.json) and reload the engine`)
}

func TestCeilings_MoreCoresThanTheEngineHasAreNamed(t *testing.T) {
	info := docker.Info{CPUs: 2}
	for _, cores := range []float64{0, 2} {
		cfg := Config{ServiceCPUs: cores}
		assert.NoError(t, cfg.checkEngine(info), cores)
	}
	cfg := Config{ServiceCPUs: 2.5}
	assert.EqualError(t, cfg.checkEngine(info), "BERTH_SERVICE_CPUS=2.5: the engine has 2 cores; write at most that")
}
