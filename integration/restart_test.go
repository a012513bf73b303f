package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// count returns the number of events of a type.
func count(events []Event, kind string) int {
	n := 0
	for _, e := range events {
		if e.Type == kind {
			n++
		}
	}
	return n
}

func TestRestart_AdoptsRunningContainersAsTheyAre(t *testing.T) {
	t.Parallel()
	h := start(t)
	tree := program(t).plus(Tree{"site/index.html": "the site"})
	st := h.live(t, tree, manifest(`services: [{name: api, runtime: node, start: node server.js}, {name: web, runtime: static, root: site}]`))
	other := h.live(t, page("only a site"), nil)
	failed := h.deploy(t, page("x"), manifest("services: [{name: web, runtime: node, build: exit 1, start: x}]"))
	require.Equal(t, 200, h.get(t, st.url("api", "/log?from=0&to=50")).status)
	h.logged(t, st, "service=api", "line 49\n")
	before := h.inspect(t, st, "api")

	h.stop(t)
	// What the service logs while the server is down is not lost.
	ip := ""
	for _, network := range before.NetworkSettings.Networks {
		ip = network.IPAddress
	}
	res, err := http.Get("http://" + ip + ":8080/log?from=50&to=100")
	require.NoError(t, err, "the container does not answer while the server is down")
	require.NoError(t, res.Body.Close())
	h.run(t)

	after := h.inspect(t, st, "api")
	require.Equal(t, before.ID, after.ID)
	require.Equal(t, before.State.Pid, after.State.Pid)
	require.Equal(t, before.State.StartedAt, after.State.StartedAt)
	require.Equal(t, "hello from api", h.get(t, st.url("api", "/")).body)
	require.Equal(t, "the site", h.get(t, st.url("web", "/")).body)
	require.Equal(t, "only a site", h.get(t, other.url("web", "/")).body)
	h.get(t, failed.url("web", "/")).refused(t, http.StatusServiceUnavailable)

	require.Equal(t, 200, h.get(t, st.url("api", "/log?from=100&to=150")).status)
	log := h.logged(t, st, "service=api", "line 149\n")
	require.Equal(t, "### api (run)\napi starts\n"+lines(0, 150), log, "lines are lost or doubled")

	for _, s := range []*Stack{st, other} {
		h.onceRestored(t, s, 1)
		events := h.events(t, s)
		require.Equal(t, "stack.restored", events[len(events)-1].Type)
		now := h.show(t, s, "")
		require.Equal(t, "live", now.Status)
		require.Equal(t, "running", now.Services[0].Status)
		urls := map[string]any{}
		for name, url := range now.URLs {
			urls[name] = url
		}
		require.Equal(t, map[string]any{"urls": urls}, events[len(events)-1].Data)
	}
	require.Zero(t, count(h.events(t, failed), "stack.restored"))
}

func TestRestart_TwiceLosesNoLine(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	for i := range 3 {
		require.Equal(t, 200, h.get(t, st.url("web", fmt.Sprintf("/log?from=%d&to=%d", 100*i, 100*i+100))).status)
		// Stopped and killed in turn, while lines are on their way.
		if i%2 == 0 {
			h.kill(t)
		} else {
			h.stop(t)
		}
		h.run(t)
		h.onceRestored(t, st, i+1)
	}
	h.logged(t, st, "", "line 299\n")
	require.Equal(t, "### web (run)\nweb starts\n"+lines(0, 300), h.logs(t, st, "tail=1000"), "lines are lost or doubled")
}

func TestRestart_OpenRequestsFinishBeforeTheServerEnds(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	type answer struct {
		body string
		err  error
	}
	got := make(chan answer, 1)
	ask := func(path string) {
		res, err := h.client.Get(st.url("web", path))
		if err != nil {
			got <- answer{err: err}
			return
		}
		body, err := io.ReadAll(res.Body)
		got <- answer{string(body), errors.Join(err, res.Body.Close())}
	}
	go ask("/hold")
	eventually(t, "the request is held", func() error {
		if n := h.get(t, st.url("web", "/held")).body; n != "1" {
			return fmt.Errorf("%s are", n)
		}
		return nil
	})
	ip := ""
	for _, network := range h.inspect(t, st, "web").NetworkSettings.Networks {
		ip = network.IPAddress
	}
	p := h.signal(t, syscall.SIGTERM)
	eventually(t, "the server takes no new connections", func() error {
		client := h.newClient()
		client.Timeout = 5 * time.Second
		defer client.CloseIdleConnections()
		res, err := client.Get(h.base() + "/healthz")
		if err != nil {
			return nil
		}
		return errors.Join(errors.New("it does"), res.Body.Close())
	})
	select {
	case <-p.exited:
		t.Fatal("the server ended with a request open")
	default:
	}
	res, err := http.Get("http://" + ip + ":8080/release")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, answer{body: "released"}, <-got)
	require.NoError(t, p.wait(t))
	h.run(t)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
}

func TestRestart_EndsWhatDoesNotFinishInTime(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_DRAIN", "300ms"))
	st := h.live(t, program(t), manifest(programManifest))
	res, err := h.client.Do(h.request(t, http.MethodGet, st.url("web", "/sse"), nil))
	require.NoError(t, err)
	defer res.Body.Close()
	asked := time.Now()
	h.stop(t)
	require.Less(t, time.Since(asked), 4*time.Minute)
	h.run(t)
}

func TestRestart_AWaitingRequestAnswersAtShutdown(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_WAIT", "10m"), with("BERTH_DRAIN", "10m"), with("BERTH_ADMIN_LISTEN", "127.0.0.1:"+strconv.Itoa(freePort(t))))
	st := h.create(t, page("x"), manifest("services: [{name: web, runtime: node, build: 'echo it builds; sleep 600', start: x}]"))
	h.logged(t, st, "kind=build", "\nit builds\n")
	const arrivals = `berth_arrivals_total{host="base"}`
	before := h.metric(t, arrivals)
	got := make(chan Reply, 1)
	go func() {
		got <- h.attempt(t, http.MethodGet, "/v0/stacks/"+st.ID+"?wait=true", "", "Authorization", "Bearer "+st.ManageToken)
	}()
	began := time.Now()
	eventually(t, "the request arrives", func() error {
		if h.metric(t, arrivals) == before {
			return errors.New("it has not")
		}
		return nil
	})
	// Other answers come while it goes on to where it waits.
	for range 20 {
		h.show(t, st, "")
	}
	h.stop(t)
	require.Less(t, time.Since(began), 4*time.Minute, "the shutdown waited for the build or the drain")
	r := <-got
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, "building", r.stack(t).Status)
	h.run(t)
	h.interrupted(t, st)
}

func TestRestart_AKilledBuildIsFailedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.create(t, page("x"), manifest("services: [{name: web, runtime: node, build: 'echo it builds; sleep 600', start: x}]"))
	h.logged(t, st, "kind=build", "\nit builds\n")
	require.Positive(t, h.objects(t).containers)
	h.kill(t)
	h.run(t)
	h.interrupted(t, st)
}

// cutOff asserts that a stack failed because its server ended.
func (h *Host) cutOff(t *testing.T, st *Stack) {
	t.Helper()
	now := h.settled(t, st)
	require.Equal(t, "failed", now.Status)
	require.Contains(t, now.reason(), "restarted")
	require.Contains(t, now.reason(), "again")
	require.Nil(t, now.Deploying)
	require.Equal(t, "stopped", now.Services[0].Status)
	events := h.events(t, st)
	require.Equal(t, "stack.failed", events[len(events)-1].Type)
	require.Zero(t, count(events, "stack.restored"))
}

// interrupted asserts that a stack, the only one of its server, failed because that ended, and
// that nothing of its build is left.
func (h *Host) interrupted(t *testing.T, st *Stack) {
	t.Helper()
	h.cutOff(t, st)
	eventually(t, "nothing of the build is left", func() error {
		if left := h.objects(t); left.containers+left.images > 0 {
			return fmt.Errorf("there is %+v", left)
		}
		if slices.ContainsFunc(h.files(t), func(path string) bool { return strings.Contains(path, "/sources/") }) {
			return errors.New("the source is left")
		}
		return nil
	})
}

func TestRestart_AfterAKillAdoptsToo(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	before := h.inspect(t, st, "web")
	h.kill(t)
	h.run(t)
	require.Equal(t, before.State.Pid, h.inspect(t, st, "web").State.Pid)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
	h.onceRestored(t, st, 1)
}

func TestRestart_StartsContainersThatEndedMeanwhile(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	require.Equal(t, 200, h.do(t, h.request(t, http.MethodPost, st.url("web", "/write?name=kept"), strings.NewReader("data"))).status)
	before := h.inspect(t, st, "web")
	h.stop(t)
	h.stopContainer(t, before.ID)
	h.run(t)
	eventually(t, "the service answers again", func() error {
		if r := h.get(t, st.url("web", "/")); r.body != "hello from web" {
			return fmt.Errorf("it answers %s", r)
		}
		return nil
	})
	require.NotEqual(t, before.State.Pid, h.inspect(t, st, "web").State.Pid)
	require.Equal(t, "data", h.get(t, st.url("web", "/read?name=kept")).body)
	now := h.settled(t, st)
	require.Equal(t, "live", now.Status)
	require.Equal(t, 1, now.Generation)
	eventually(t, "the restore is recorded", func() error { // it is routed to before that is committed
		if events := h.events(t, st); count(events, "stack.restored") != 1 {
			return fmt.Errorf("the events are %v", types(events))
		}
		return nil
	})
	eventually(t, "the log goes on", func() error { // it is read beside all that
		log := h.logs(t, st, "")
		if strings.Count(log, "### ") != 1 || strings.Count(log, "web starts\n") != 2 {
			return fmt.Errorf("it is\n%s", log)
		}
		return nil
	})
}

func TestRestart_TokensAndDataSurvive(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("hi"), nil)
	before := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).body
	h.restart(t)
	require.JSONEq(t, before, h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).body)
}

func TestRestart_TwoServersOnOneDirectoryAreRefused(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("hi"), nil)
	first := h.process
	second := h.spawn(t)
	require.Error(t, second.wait(t))
	h.process = first
	require.Contains(t, h.log.String(), "another server uses the data directory")
	require.Equal(t, "hi", h.get(t, st.url("web", "/")).body)
	require.Zero(t, count(h.events(t, st), "stack.restored"))
}
