package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The requests of a server to the engine in the life of a stack, as method and path.
var (
	containerCreate = [2]string{http.MethodPost, "/containers/create"}
	containerStart  = [2]string{http.MethodPost, "/containers/[^/]+/start"}
	containerStop   = [2]string{http.MethodPost, "/containers/[^/]+/stop"}
	containerRemove = [2]string{http.MethodDelete, "/containers/[^/]+"}
	containerLook   = [2]string{http.MethodGet, "/containers/[^/]+/json"}
	containerCopy   = [2]string{http.MethodPut, "/containers/[^/]+/archive"}
	commit          = [2]string{http.MethodPost, "/commit"}
	execCreate      = [2]string{http.MethodPost, "/containers/[^/]+/exec"}
	execStart       = [2]string{http.MethodPost, "/exec/[^/]+/start"}
	execLook        = [2]string{http.MethodGet, "/exec/[^/]+/json"}
	networkCreate   = [2]string{http.MethodPost, "/networks/create"}
	networkRemove   = [2]string{http.MethodDelete, "/networks/[^/]+"}
	volumeCreate    = [2]string{http.MethodPost, "/volumes/create"}
	volumeRemove    = [2]string{http.MethodDelete, "/volumes/[^/]+"}
	imageLook       = [2]string{http.MethodGet, "/images/.+/json"}
	imageRemove     = [2]string{http.MethodDelete, "/images/.+"}
)

// built is a manifest whose build has a command.
const built = `{services: [{name: web, runtime: node, build: echo it builds, release: 'echo x >>$DATA_DIR/released', start: node server.js}]}`

// serving lists the engine's objects of a live stack with one service, web.
func serving(st *Stack) []string {
	return []string{
		fmt.Sprintf("container web-g%d", st.Generation), "image web", "volume web-data",
		fmt.Sprintf("network g%d", st.Generation),
	}
}

// Without any event from the engine, the periodic check of all processes finds a crash.
func TestEngineReply_ACrashIsSeenWithoutEvents(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	silent := p.add(http.MethodGet, "/events", -1, hang)
	h := start(t, through(p), quickly)
	st := h.live(t, crasher, manifest(crashes))
	for n := 1; n <= 2; n++ {
		h.crash(t, st, "web", "/exit/3", n)
		require.EqualValues(t, 3, last(t, h.events(t, st), "service.crashed").Data["exit_code"])
		require.Equal(t, "web", h.get(t, st.url("web", "/")).body)
	}
	require.Equal(t, 1, p.count(silent))
	require.Zero(t, count(h.events(t, st), "stack.restored"))
}

// A stream of events that breaks while the engine runs is opened again; a process that
// ended meanwhile has crashed.
func TestEngineReply_BrokenEventsAreNoRestore(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	broken := p.add(http.MethodGet, "/events", 3, breakOff)
	h := start(t, through(p), quickly)
	st := h.live(t, crasher, manifest(crashes))
	h.crash(t, st, "web", "/exit/3", 1)
	require.Equal(t, 3, p.count(broken))
	require.Equal(t, 1, count(h.events(t, st), "service.crashed"))
	require.Zero(t, count(h.events(t, st), "stack.restored"))
}

// An internal error of the engine fails the deploy, not the server.
func TestEngineReply_AnErrorFailsTheDeploy(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	h := start(t, through(p))
	st := h.live(t, program(t), manifest(built))
	for _, request := range [][2]string{containerCreate, containerStart, commit, execCreate, networkCreate, volumeCreate} {
		p.add(request[0], request[1], -1, refuse) // each: containers are started for other work, too
		failed := h.deploy(t, program(t), manifest(built))
		require.Equal(t, "failed", failed.Status, request)
		require.Contains(t, failed.reason(), "not the fault of your source", request)
		require.NotContains(t, failed.reason(), "engine's own", request)
		h.keeps(t, failed)
		p.clear()
	}
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
}
