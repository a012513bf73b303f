package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The requests that a server makes of the engine in the life of a stack, as
// method and path.
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

// lose drops the next answer to each of the requests.
func (p *engineProxy) lose(requests [][2]string) {
	p.clear()
	for _, request := range requests {
		p.add(request[0], request[1], 1, dropReply)
	}
}

// built is a manifest whose build has a command.
const built = `{services: [{name: web, runtime: node, build: echo it builds, release: 'echo x >>$DATA_DIR/released', start: node server.js}]}`

// A lost answer is noticed, asked for again where that does no harm, and leaves
// nothing behind in any case: the stack is live or failed with a reason, and the
// next deploy works.
func TestEngineReply_IsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		requests [][2]string
		fails    bool // what cannot be asked twice fails the deploy
	}{
		"containers":           {[][2]string{containerCreate, containerStart, containerStop, containerRemove}, false},
		"images":               {[][2]string{imageLook, commit, imageRemove}, false},
		"networks and volumes": {[][2]string{networkCreate, networkRemove, volumeCreate, volumeRemove}, false},
		"container look":       {[][2]string{containerLook}, false},
		"container copy":       {[][2]string{containerCopy}, true},
		"exec create and look": {[][2]string{execCreate, execLook}, false},
		"exec start":           {[][2]string{execStart}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t)
			h := start(t, through(p), asShipped)
			// The first answer is lost in the first deploy, one in the redeploy, one in
			// the delete, as far as they ask for it at all.
			p.lose(c.requests)
			st := h.deploy(t, program(t), manifest(built))
			require.Equal(t, c.fails, st.Status == "failed", st.reason())
			if c.fails {
				require.Contains(t, st.reason(), "not the fault of your source")
				h.keeps(t, st)
				h.begin(t, st, program(t), manifest(built))
				st = h.mustLive(t, st)
			}
			h.keeps(t, st, serving(st)...)
			require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
			require.Equal(t, "x\n", h.file(t, st, "web", "released"), "the release command ran more than once")

			p.lose(c.requests)
			h.begin(t, st, program(t).plus(Tree{"more": ""}), manifest(built))
			now := h.deployed(t, st)
			require.Equal(t, c.fails, now.DeployError != nil, now.deployError())
			if c.fails {
				require.Contains(t, now.deployError(), "not the fault of your source")
				require.Equal(t, st.Generation, now.Generation)
			}
			h.keeps(t, st, serving(now)...)
			require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
			require.Zero(t, count(h.events(t, st), "service.crashed"))

			p.lose(c.requests)
			require.Equal(t, http.StatusOK, h.delete(t, st).status)
			h.forgetStack(st.ID)
			require.Equal(t, objects{}, h.objects(t), "%v", h.files(t))
		})
	}
}

// serving is what the engine has of a live stack with the one service web.
func serving(st *Stack) []string {
	return []string{
		fmt.Sprintf("container web-g%d", st.Generation), fmt.Sprintf("image web:g%d", st.Generation), "volume web-data",
		fmt.Sprintf("network g%d", st.Generation),
	}
}

// An answer that is lost while the data of an expired stack is kept, or brought
// back, costs no byte of it.
func TestEngineReply_IsLostOverExpiryAndRestore(t *testing.T) {
	t.Parallel()
	for name, requests := range map[string][][2]string{
		"containers":         {containerCreate, containerStart, containerStop, containerRemove, containerLook},
		"images and volumes": {imageLook, commit, imageRemove, volumeCreate, volumeRemove},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t)
			h := start(t, through(p), asShipped, short)
			key := h.accountCreate(t, "ana@example.com")
			st := h.live(t, program(t), manifest(programManifest))
			h.put(t, st, "web", "kept", "the data")
			p.lose(requests)
			h.expire(t, st)
			h.keeps(t, st, "image web:g1", "image web:data")
			p.lose(requests)
			require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "").status)
			now := h.mustLive(t, st)
			require.Equal(t, "the data", h.file(t, st, "web", "kept"))
			require.Equal(t, 1, count(h.events(t, st), "stack.restored"))
			h.keeps(t, st, serving(now)...)
		})
	}
}

// With no event of the engine's at all, the look at all processes finds a crash.
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

// A stream of events that breaks while the engine goes on is opened again; what
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

// An engine that has an error of its own fails the deploy, not the server.
func TestEngineReply_AnErrorFailsTheDeploy(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	h := start(t, through(p))
	st := h.live(t, program(t), manifest(built))
	for _, request := range [][2]string{containerCreate, containerStart, commit, execCreate, networkCreate, volumeCreate} {
		p.add(request[0], request[1], 1, refuse)
		failed := h.deploy(t, program(t), manifest(built))
		require.Equal(t, "failed", failed.Status, request)
		require.Contains(t, failed.reason(), "not the fault of your source", request)
		require.NotContains(t, failed.reason(), "engine's own", request)
		h.keeps(t, failed)
		p.clear()
	}
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
}
