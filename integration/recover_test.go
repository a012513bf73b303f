package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
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
			t.Parallel()
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
			h.keeps(t, st, "container web-g1", "image web:g1", "volume web-data", "network g1")
			require.Equal(t, pid, h.inspect(t, st, "web").State.Pid, "%s: the old generation was not left alone", name)
			events := h.events(t, st)
			rising(t, events)
			require.Equal(t, []string{"stack.deploy_failed", "stack.restored"}, types(events)[len(events)-2:], name)
			require.Equal(t, http.StatusOK, h.delete(t, st).status)
			h.forgetStack(st.ID)
		}
	})
}

func TestRecover_InTheMiddleOfARecreate(t *testing.T) {
	bySignal(t, func(t *testing.T, down func(*Host)) {
		h := start(t)
		st := h.live(t, locking, manifest(recreates))
		h.begin(t, st, holding, manifest(recreates))
		h.logged(t, st, "", "it holds the lock")
		down(h)
		h.run(t)
		h.onceRestored(t, st, 1)
		require.Equal(t, "generation 1", h.get(t, st.url("web", "/")).body)
		require.Contains(t, h.show(t, st, "").deployError(), "restarted")
		h.keeps(t, st, "container web-g1", "image web:g1", "volume web-data", "network g1")
	})
}

// The end of a redeploy is told once the generation before serves again.
func TestRecover_ARecreateIsRolledBackBeforeItsEndIsTold(t *testing.T) {
	bySignal(t, func(t *testing.T, down func(*Host)) {
		h := start(t)
		slow := manifest(strings.Replace(recreates, "node server.js", "sleep 3; exec node server.js", 1))
		st := h.live(t, locking, slow)
		h.begin(t, st, holding, slow)
		h.logged(t, st, "", "it holds the lock")
		require.Equal(t, map[string]string{"web": "stopped"}, h.show(t, st, "").statuses())
		down(h)
		h.run(t)
		eventually(t, "the end of the redeploy is told", func() error {
			if events := h.events(t, st); count(events, "stack.deploy_failed") != 1 {
				return fmt.Errorf("the events are %v", types(events))
			}
			return nil
		})
		require.Equal(t, "generation 1", h.get(t, st.url("web", "/")).body)
		events := types(h.events(t, st))
		require.Equal(t, []string{"stack.deploy_failed", "stack.restored"}, events[len(events)-2:])
		now := h.show(t, st, "")
		require.Nil(t, now.Deploying)
		require.Contains(t, now.deployError(), "restarted while generation 2 was being built")
	})
}

func TestRecover_ARecreateThatCannotBeRolledBackFails(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, locking, manifest(recreates))
	poisons := Tree{"server.js": lock + `fs.writeFileSync(dir + '/poison', ''); console.log('it holds the lock'); setInterval(() => {}, 1000);`}
	h.begin(t, st, poisons, manifest(recreates))
	h.logged(t, st, "", "it holds the lock")
	h.kill(t)
	h.run(t)
	now := h.becomes(t, st, "failed")
	require.Regexp(t, `(?s)restarted while generation 2 was being built.*\nGeneration 1, which served before, could not be brought back: .*exited with code 8`, now.reason())
	require.Nil(t, now.Deploying)
	require.Zero(t, count(h.events(t, st), "stack.deploy_failed"))
	require.Equal(t, 1, count(h.events(t, st), "stack.failed"))
	h.keeps(t, st, "image web:g1", "volume web-data")
}

// A process that an earlier server asked to end has not crashed when it does.
func TestRecover_AProcessThatIsAskedToEndDoesNotCrash(t *testing.T) {
	t.Parallel()
	h := start(t)
	fields := manifest(`services: [{name: web, runtime: node, start: node index.js, strategy: recreate, stop_timeout: 20s}]`)
	st := h.live(t, stubborn, fields)
	h.begin(t, st, stubborn, fields)
	h.logged(t, st, "", "it is asked to end")
	before := h.inspect(t, st, "web").State.Pid
	h.kill(t)
	h.run(t)
	h.onceRestored(t, st, 1)
	require.NotEqual(t, before, h.inspect(t, st, "web").State.Pid)
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/")).status)
	require.Zero(t, count(h.events(t, st), "service.crashed"))
	h.keeps(t, st, "container web-g1", "image web:g1", "volume web-data", "network g1")
}

func TestRecover_InABackoff(t *testing.T) {
	bySignal(t, func(t *testing.T, down func(*Host)) {
		h := start(t, with("BERTH_BACKOFF", "1h"), with("BERTH_BACKOFF_MAX", "1h"))
		st := h.live(t, crasher, manifest(crashes))
		h.get(t, st.url("web", "/exit/3"))
		h.logged(t, st, "", "restarting in 1h0m0s")
		require.Equal(t, http.StatusBadGateway, h.get(t, st.url("web", "/")).status)
		down(h)
		h.run(t)
		h.onceRestored(t, st, 1)
		require.Equal(t, "web", h.get(t, st.url("web", "/")).body)
		require.Equal(t, 1, count(h.events(t, st), "service.crashed"))
		// The window goes on where it was.
		h.get(t, st.url("web", "/exit/3"))
		eventually(t, "the next crash is counted", func() error {
			if events := h.events(t, st); count(events, "service.crashed") < 2 {
				return fmt.Errorf("the events are %v", types(events))
			}
			return nil
		})
		require.EqualValues(t, 2, last(t, h.events(t, st), "service.crashed").Data["crashes"])
		down(h)
		h.run(t)
		h.onceRestored(t, st, 2)
		h.keeps(t, st, "container web-g1", "image web:g1", "volume web-data", "network g1")
	})
}

// stubborn does not end when it is asked to, and answers.
var stubborn = Tree{"index.js": `process.on('SIGTERM', () => console.log('it is asked to end'));
const fs = require('fs');
require('http').createServer((req, res) => {
  if (req.url === '/seed') fs.writeFileSync(process.env.DATA_DIR + '/large', Buffer.alloc(200 << 20, 'x'));
  res.end(String(fs.readdirSync(process.env.DATA_DIR)));
}).listen(process.env.PORT)`}

func TestRecover_InTheMiddleOfAnExpiry(t *testing.T) {
	bySignal(t, func(t *testing.T, down func(*Host)) {
		h := start(t, short)
		stops := h.live(t, stubborn, manifest(`services: [{name: web, runtime: node, start: node index.js, stop_timeout: 20s}]`))
		copies := h.live(t, stubborn, manifest(`services: [{name: web, runtime: node, start: node index.js, stop_timeout: 1s}]`))
		for _, st := range []*Stack{stops, copies} {
			require.Equal(t, "large", h.get(t, st.url("web", "/seed")).body)
		}
		h.extend(t, stops, "1s")
		h.logged(t, stops, "", "it is asked to end")
		h.extend(t, copies, "1s")
		h.waitFor(t, copies, "container web-snapshot")
		for range 2 {
			down(h)
			h.run(t)
		}
		key := h.accountCreate(t, "ana@example.com")
		for _, st := range []*Stack{stops, copies} {
			h.becomes(t, st, "expired")
			h.keeps(t, st, "image web:g1", "image web:data")
			events := h.events(t, st)
			rising(t, events)
			require.Equal(t, 1, count(events, "stack.expired"), types(events))
			require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "?wait=true").status)
			require.Equal(t, "large", h.get(t, st.url("web", "/")).body)
		}
	})
}

func TestRecover_InTheMiddleOfARestore(t *testing.T) {
	bySignal(t, func(t *testing.T, down func(*Host)) {
		h := start(t, short)
		key := h.accountCreate(t, "ana@example.com")
		// The first start after "slow" was written waits for ever.
		st := h.live(t, program(t), manifest(`services:
  - {name: web, runtime: node, start: 'if [ -e $DATA_DIR/slow ]; then rm $DATA_DIR/slow; echo it waits; sleep 600; fi; exec node server.js'}
  - {name: api, runtime: node, start: node server.js, depends_on: [web]}`))
		h.put(t, st, "api", "kept", "data of api")
		h.put(t, st, "web", "kept", "data of web")
		h.put(t, st, "web", "slow", "")
		h.expire(t, st)
		require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "").status)
		h.logged(t, st, "service=web", "it waits")
		down(h)
		h.run(t)
		require.True(t, h.show(t, st, "").Claimed, "the claim is undone")
		h.mustLive(t, st)
		require.Equal(t, "data of web", h.file(t, st, "web", "kept"))
		require.Equal(t, "data of api", h.file(t, st, "api", "kept"))
		h.onceRestored(t, st, 1)
		h.keeps(t, st, "container web-g1", "container api-g1", "image web:g1", "image api:g1", "volume web-data", "volume api-data", "network g1")
		events := h.events(t, st)
		rising(t, events)
		require.Equal(t, 1, count(events, "stack.claimed"))
	})
}

func TestRecover_InTheMiddleOfADelete(t *testing.T) {
	bySignal(t, func(t *testing.T, down func(*Host)) {
		h := start(t)
		st := h.live(t, program(t), manifest(`services: [{name: web, runtime: node, start: node server.js}, {name: api, runtime: node, build: echo x, start: node server.js}]`))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req := h.request(t, http.MethodDelete, "/v0/stacks/"+st.ID, nil, "Authorization", "Bearer "+st.ManageToken).WithContext(ctx)
		go func() {
			if res, err := h.client.Do(req); err == nil {
				_ = res.Body.Close()
			}
		}()
		eventually(t, "the delete is under way", func() error {
			if r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID); r.status != http.StatusNotFound {
				return fmt.Errorf("%s", r)
			}
			return nil
		})
		down(h)
		h.run(t)
		h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).refused(t, http.StatusNotFound)
		require.Equal(t, objects{}, h.objects(t), "%v", h.files(t))
		h.forgetStack(st.ID)
		events := h.recorded(t, st)
		require.Equal(t, "stack.deleted", events[len(events)-1])
	})
}

// A claim while a service is still on its way leaves alone what serves already.
func TestRecover_AClaimMeanwhileTouchesNoService(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t).plus(Tree{"site/index.html": "a site"}), manifest(`services:
  - {name: site, runtime: static, root: site}
  - {name: web, runtime: node, start: node server.js}
  - {name: late, runtime: node, start: 'sleep 5; exec node server.js'}`))
	key := h.accountCreate(t, "ana@example.com")
	h.kill(t)
	require.NoError(t, h.killProcess(t, st, "late", "KILL"))
	h.run(t)
	require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "").status)
	serve := func() {
		require.Equal(t, "a site", h.get(t, st.url("site", "/")).body)
		require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
	}
	serve()
	h.onceRestored(t, st, 1)
	serve()
	require.Empty(t, h.get(t, st.url("web", "/")).header.Get("X-Robots-Tag"))
	require.Equal(t, "hello from late", h.get(t, st.url("late", "/")).body)
}

// A server that is killed as a stack fails for its crashes ends the rest of it.
func TestRecover_AFailedStackRunsNothing(t *testing.T) {
	t.Parallel()
	h := start(t, quickly, with("BERTH_CRASH_LIMIT", "1"))
	fields := manifest(`services:
  - {name: web, runtime: node, start: node index.js, stop_timeout: 20s}
  - {name: bad, runtime: node, start: node bad.js}`)
	st := h.live(t, stubborn.plus(Tree{"bad.js": crasher["index.js"]}), fields)
	h.crash(t, st, "bad", "/exit/3", 1)
	h.get(t, st.url("bad", "/exit/3"))
	h.becomes(t, st, "failed")
	h.logged(t, st, "service=web", "it is asked to end")
	h.kill(t)
	h.run(t)
	require.Equal(t, "failed", h.show(t, st, "").Status)
	h.keeps(t, st, "image web:g1", "image bad:g1", "volume web-data", "volume bad-data")
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
	stray := foreign(t, name+"-stray", map[string]string{labelInstance: h.instance, "berth.stack": "stk_0123456789ab"})
	others := []func() int{
		foreign(t, name+"-other", map[string]string{labelInstance: h.instance + "-other", "berth.stack": "stk_0123456789ab"}),
		foreign(t, name+"-plain", map[string]string{"berth.stack": "stk_0123456789ab"}),
		foreign(t, name+"-named", nil),
	}
	begun := time.Now()
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
	h.keeps(t, st, "container web-g1", "image web:g1", "volume web-data", "network g1")
}
