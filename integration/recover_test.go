package integration

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/require"
)

// bySignal runs a test for a server that is killed and one that is stopped.
func bySignal(t *testing.T, test func(t *testing.T, down func(*Host))) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"kill": syscall.SIGKILL, "term": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			test(t, func(h *Host) { _ = h.signal(t, sig).wait(t) })
		})
	}
}

// waitFor waits until the engine has an object of a stack.
func (h *Host) waitFor(t *testing.T, st *Stack, what string) {
	t.Helper()
	eventually(t, "there is "+what, func() error {
		if has := h.has(t, st); !set(has)[what] {
			return fmt.Errorf("there is %q", has)
		}
		return nil
	})
}

// onceRestored asserts that a live stack serves and was restored n times.
func (h *Host) onceRestored(t *testing.T, st *Stack, n int) {
	t.Helper()
	eventually(t, "the stack is restored", func() error {
		if events := h.events(t, st); count(events, "stack.restored") != n {
			return fmt.Errorf("the events are %v", types(events))
		}
		return nil
	})
	now := h.show(t, st, "")
	require.Equal(t, "live", now.Status)
	require.Nil(t, now.Deploying)
	for name, status := range now.statuses() {
		require.Equal(t, "running", status, name)
	}
}

// rising asserts that no event is recorded twice or out of order.
func rising(t *testing.T, events []Event) {
	t.Helper()
	for i := 1; i < len(events); i++ {
		require.Greater(t, events[i].ID, events[i-1].ID)
	}
}

func TestRecover_InTheMiddleOfARedeploy(t *testing.T) {
	cases := map[string]struct {
		fields Fields
		until  func(*testing.T, *Host, *Stack)
	}{
		"build": {
			manifest(`services: [{name: web, runtime: node, build: 'echo it builds; sleep 600', start: node server.js}]`),
			func(t *testing.T, h *Host, st *Stack) { h.logged(t, st, "kind=build", "\nit builds\n") },
		},
		"release": {
			manifest(`services: [{name: web, runtime: node, release: 'echo it migrates; sleep 600', start: node server.js}]`),
			func(t *testing.T, h *Host, st *Stack) { h.logged(t, st, "kind=build", "\nit migrates\n") },
		},
		"health": {
			manifest(gated),
			func(t *testing.T, h *Host, st *Stack) { h.waitFor(t, st, "container web-g2") },
		},
	}
	bySignal(t, func(t *testing.T, down func(*Host)) {
		h := start(t)
		for name, c := range cases {
			st := h.live(t, program(t), manifest(programManifest))
			pid := h.inspect(t, st, "web").State.Pid
			h.begin(t, st, program(t).plus(Tree{"more": name}), c.fields)
			c.until(t, h, st)
			down(h)
			h.run(t)
			h.onceRestored(t, st, 1)
			now := h.show(t, st, "")
			require.Equal(t, 1, now.Generation, name)
			require.Contains(t, now.deployError(), "restarted while generation 2 was being built")
			require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
			h.keeps(t, st, "container web-g1", "image web", "volume web-data", "network g1")
			require.Equal(t, pid, h.inspect(t, st, "web").State.Pid, "%s: the old generation was not left alone", name)
			events := h.events(t, st)
			rising(t, events)
			require.Equal(t, []string{"stack.deploy_failed", "stack.restored"}, types(events)[len(events)-2:], name)
			require.Equal(t, http.StatusOK, h.delete(t, st).status)
			h.forgetStack(st.ID)
		}
	})
}

// foreign makes a container, a volume and a network with the labels.
func foreign(t *testing.T, name string, labels map[string]string) (there func() int) {
	t.Helper()
	docker, err := engine()
	require.NoError(t, err)
	ctx := context.Background()
	c, err := docker.ContainerCreate(ctx, &container.Config{Image: baseImage, Cmd: []string{"sleep", "600"}, Labels: labels}, nil, nil, nil, name)
	require.NoError(t, err)
	_, err = docker.VolumeCreate(ctx, volume.CreateOptions{Name: name, Labels: labels})
	require.NoError(t, err)
	_, err = docker.NetworkCreate(ctx, name, network.CreateOptions{Labels: labels, IPAM: &network.IPAM{
		Config: []network.IPAMConfig{{Subnet: fmt.Sprintf("10.214.%d.0/28", nextPort.Add(1)%256)}},
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = docker.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true})
		_ = docker.VolumeRemove(ctx, name, true)
		_ = docker.NetworkRemove(ctx, name)
		_ = docker.Close()
	})
	return func() int {
		n := 0
		if _, err := docker.ContainerInspect(ctx, c.ID); err == nil {
			n++
		}
		if _, err := docker.VolumeInspect(ctx, name); err == nil {
			n++
		}
		if _, err := docker.NetworkInspect(ctx, name, network.InspectOptions{}); err == nil {
			n++
		}
		return n
	}
}

func TestRecover_OrphansGoAfterAWhileAndOthersStay(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_ORPHAN_GRACE", "1s"))
	st := h.live(t, program(t), manifest(programManifest))
	name := "berth-test-" + h.instance
	begun := time.Now()
	stray := foreign(t, name+"-stray", map[string]string{labelInstance: h.instance, "berth.stack": "stk_0123456789ab"})
	others := []func() int{
		foreign(t, name+"-other", map[string]string{labelInstance: h.instance + "-other", "berth.stack": "stk_0123456789ab"}),
		foreign(t, name+"-plain", map[string]string{"berth.stack": "stk_0123456789ab"}),
		foreign(t, name+"-named", nil),
	}
	eventually(t, "the container and the network are removed", func() error {
		if n := stray(); n > 1 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
	require.Contains(t, h.log.String(), name+"-stray", "the volume is not named")
	require.Equal(t, 1, stray(), "the volume is gone")
	require.Greater(t, time.Since(begun), 4*time.Second, "there is no grace period")
	for i, there := range others {
		require.Equal(t, 3, there(), "objects of others, %d", i)
	}
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
	h.keeps(t, st, "container web-g1", "image web", "volume web-data", "network g1")
}
