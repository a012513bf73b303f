package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/invariants"
	"github.com/berth-host/berth/internal/stack"
)

// ending is a server that is killed during an action.
type ending struct {
	h    *Host
	key  string  // of an account
	ana  *Person // whose account owns the stack; nil where nobody needs to
	st   *Stack  // that all is about; nil before it is created
	acks map[string]bool
	died time.Time // at the failpoint
}

// attempt sends a request about the stack, which the server may die under, and
// notes whether it was acknowledged.
func (e *ending) attempt(t *testing.T, what, token, method, path, body, contentType string) Reply {
	t.Helper()
	r := e.h.attempt(t, method, path, body, "Content-Type", contentType, "Authorization", "Bearer "+token)
	e.acks[what] = r.status >= 200 && r.status < 300
	return r
}

// pair is a stack with data, a site, and every command there is.
const pair = `{name: pair, services: [
  {name: web, runtime: node, install: echo installed, release: 'echo released >> $DATA_DIR/releases', start: node server.js, stop_timeout: 1s},
  {name: site, runtime: static, root: site, depends_on: [web]},
  {name: api, runtime: node, start: node server.js, depends_on: [web], stop_timeout: 1s}]}`

// layered is pair with what it installs in separate images: web is built from one, api
// runs from one.
var layered = strings.Replace(pair, "install: echo installed", "build: cp package.json built.json", 1)

// dependingTree is a tree for layered. Another version is installed again. It has no
// dependencies, but workspaces, which need no host of packages.
func dependingTree(t *testing.T, version string) Tree {
	return pairTree(t).plus(Tree{"package.json": `{"name": "pair", "version": "` + version + `", "workspaces": ["packages/*"]}`})
}

func pairTree(t *testing.T) Tree { return program(t).plus(Tree{"site/index.html": "a site"}) }

// create attempts a create.
func (e *ending) create(t *testing.T, tree Tree, fields Fields) {
	t.Helper()
	body, contentType := form(t, archive(t, tree), fields)
	r := e.h.attempt(t, http.MethodPost, "/v0/stacks", string(body), "Content-Type", contentType)
	if r.status == http.StatusCreated {
		e.st = r.stack(t)
		e.h.adoptStack(e.st)
	}
}

// redeploy attempts a redeploy.
func (e *ending) redeploy(t *testing.T, tree Tree, fields Fields) {
	t.Helper()
	e.redeployWith(t, "", tree, fields)
}

// redeployWith attempts a redeploy with a query.
func (e *ending) redeployWith(t *testing.T, query string, tree Tree, fields Fields) {
	t.Helper()
	body, contentType := form(t, archive(t, tree), fields)
	e.attempt(t, "deploy", e.st.ManageToken, http.MethodPost, "/v0/stacks/"+e.st.ID+"/deploy"+query, string(body), contentType)
}

// extend attempts to set the TTL.
func (e *ending) extend(t *testing.T, ttl string) {
	t.Helper()
	e.attempt(t, "extend", e.st.ManageToken, http.MethodPatch, "/v0/stacks/"+e.st.ID, `{"ttl": "`+ttl+`"}`, "application/json")
}

// claim attempts a claim.
func (e *ending) claim(t *testing.T) {
	t.Helper()
	e.attempt(t, "claim", e.key, http.MethodPost, "/v0/claim", `{"claim_code": "`+e.st.ClaimCode+`"}`, "application/json")
}

// delete attempts a delete.
func (e *ending) delete(t *testing.T) {
	t.Helper()
	e.attempt(t, "delete", e.st.ManageToken, http.MethodDelete, "/v0/stacks/"+e.st.ID, "", "")
}

// crash asks the service api to end.
func (e *ending) crash(t *testing.T) {
	t.Helper()
	_ = e.h.killProcess(t, e.st, "api", "KILL")
}

// The states in which an act begins.

func nothing(*testing.T, *ending) {}

// withData is a stack that is live, with data.
func withData(t *testing.T, e *ending) {
	e.st = e.h.live(t, pairTree(t), manifest(pair))
	e.h.put(t, e.st, "web", "kept", "data of web")
	e.h.put(t, e.st, "api", "kept", "data of api")
}

// withLayers is withData with dependencies.
func withLayers(t *testing.T, e *ending) {
	e.st = e.h.live(t, dependingTree(t, "1.0.0"), manifest(layered))
	e.h.put(t, e.st, "web", "kept", "data of web")
	e.h.put(t, e.st, "api", "kept", "data of api")
}

// withoutRoom is withData on a disk that has no room for a build from now on.
func withoutRoom(t *testing.T, e *ending) {
	withData(t, e)
	e.h.env["BERTH_DISK_FLOOR"] = "900000GB"
}

// ofAna is a stack that is live, with data, and has an owner.
func ofAna(t *testing.T, e *ending) {
	withData(t, e)
	e.ana = e.h.person(t, "ana@example.org")
	require.Equal(t, http.StatusOK, e.h.claim(t, e.ana.key, e.st.ClaimCode, "").status)
}

// kept is an expired stack with its data in snapshots.
func kept(t *testing.T, e *ending) {
	withData(t, e)
	e.h.expire(t, e.st)
}

// locked is a live stack whose service runs one process at a time.
func locked(t *testing.T, e *ending) {
	e.st = e.h.live(t, locking, manifest(recreates))
}

// crashedOnce is a live stack whose next crash is one too many.
func crashedOnce(t *testing.T, e *ending) {
	withData(t, e)
	e.crash(t)
	eventually(t, "it is restarted", func() error {
		if events := e.h.events(t, e.st); count(events, "service.restarted") == 0 {
			return fmt.Errorf("the events are %v", types(events))
		}
		return nil
	})
}

// The acts, which the server dies in.

func creates(t *testing.T, e *ending) { e.create(t, pairTree(t), manifest(pair)) }

func createsBroken(t *testing.T, e *ending) {
	e.create(t, pairTree(t), manifest(strings.ReplaceAll(pair, "echo installed", "exit 3")))
}

// redeploysLarge deploys a source that is worth a layer.
func redeploysLarge(t *testing.T, e *ending) {
	t.Helper()
	tree := pairTree(t)
	for i := range 600 {
		tree[fmt.Sprintf("assets/%d", i)] = "x"
	}
	e.redeploy(t, tree, manifest(pair))
}

func redeploys(t *testing.T, e *ending) {
	e.redeploy(t, pairTree(t).plus(Tree{"more": "x", "site/more": "x"}), manifest(pair))
}

func redeploysChanges(t *testing.T, e *ending) {
	e.redeploy(t, Tree{"more": "x", "site/more": "x"}, Fields{"base": "1"})
}

func redeploysDependencies(t *testing.T, e *ending) {
	e.redeploy(t, dependingTree(t, "2.0.0"), manifest(layered))
}

func redeploysFresh(t *testing.T, e *ending) {
	e.redeployWith(t, "?fresh=true", pairTree(t), manifest(pair))
}

func redeploysBroken(t *testing.T, e *ending) {
	e.redeploy(t, pairTree(t), manifest(strings.ReplaceAll(pair, "echo installed", "exit 3")))
}

func replacesBroken(t *testing.T, e *ending) {
	e.redeploy(t, Tree{"server.js": "process.exit(5)"}, manifest(recreates))
}

func setsVariables(t *testing.T, e *ending) {
	e.attempt(t, "env", e.st.ManageToken, http.MethodPatch, "/v0/stacks/"+e.st.ID+"/env", `{"all": {"ADDED": "value"}}`, "application/json")
}

// supersedes replaces a redeploy that would never become healthy.
func supersedes(t *testing.T, e *ending) {
	e.redeploy(t, Tree{"server.js": "setInterval(() => {}, 1000)"}, manifest(recreates))
	e.redeployWith(t, "?supersede=true", locking, manifest(recreates))
}

func extends(t *testing.T, e *ending) { e.extend(t, "2h") }
func expires(t *testing.T, e *ending) { e.extend(t, "1s") }
func claims(t *testing.T, e *ending)  { e.claim(t) }
func deletes(t *testing.T, e *ending) { e.delete(t) }
func crash(t *testing.T, e *ending)   { e.crash(t) }

func logs(t *testing.T, e *ending) {
	e.h.attempt(t, http.MethodGet, e.st.url("web", "/log?from=0&to=300"), "")
}

func restarts(t *testing.T, e *ending) {
	require.Equal(t, http.StatusSeeOther, e.ana.act(t, e.st, "restart/api").status)
}

// pushes attempts to replace the data of api.
func pushes(t *testing.T, e *ending) {
	data := dataArchive(t, file("kept", "pushed"))
	e.attempt(t, "push", e.st.ManageToken, http.MethodPut, dataPath(e.st, "api"), string(data), "application/gzip")
}

func pullsHalted(t *testing.T, e *ending) {
	e.attempt(t, "pull", e.st.ManageToken, http.MethodGet, dataPath(e.st, "api")+"?stop=true", "", "")
}

func revokes(t *testing.T, e *ending) {
	require.Equal(t, http.StatusSeeOther, e.ana.act(t, e.st, "revoke").status)
	e.st.ManageToken = e.ana.key // from here on, and for the test's end
	e.h.forgetStack(e.st.ID)
	e.h.adoptStack(e.st)
}

// The ends: what must hold once the server has recovered, besides what inOrder asserts.

// created holds after an attempted create: an acknowledged stack is there, live
// or failed with a reason to act on.
func created(t *testing.T, e *ending) {
	rows, err := e.h.rows(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, len(rows), 1)
	if e.st == nil {
		for _, r := range rows {
			e.h.forget(t, r.ID)
		}
		return
	}
	require.Equal(t, e.st.ID, rows[0].ID)
	now := e.h.show(t, e.st, "")
	if now.Status == "failed" {
		require.Contains(t, now.reason(), "upload the source again")
		return
	}
	require.Equal(t, "live", now.Status, now.reason())
	require.Equal(t, "hello from web", e.h.get(t, e.st.url("web", "/")).body)
}

// forget deletes a stack to which nobody has a token; otherwise it would stay until its
// TTL ends.
func (h *Host) forget(t *testing.T, id string) {
	t.Helper()
	h.stop(t)
	db := h.openStore(t)
	_, err := db.Update(t.Context(), id, func(st *stack.Stack) ([]stack.Event, error) { return st.Delete(stack.Now()) })
	require.NoError(t, err)
	require.NoError(t, db.Close())
	h.run(t)
}

// createdBroken must hold after a create that has to fail.
func createdBroken(t *testing.T, e *ending) {
	if e.st == nil {
		created(t, e)
		return
	}
	now := e.h.show(t, e.st, "")
	require.Equal(t, "failed", now.Status)
	require.NotEmpty(t, now.reason())
}

// servesOne must hold after an attempted redeploy: one of the two generations serves,
// with the data, and a redeploy that was lost is explained.
func servesOne(t *testing.T, e *ending) {
	now := e.h.show(t, e.st, "")
	require.Equal(t, "live", now.Status, now.reason())
	require.Equal(t, fmt.Sprint(now.Generation), e.h.served(t, e.st, "web"))
	require.Equal(t, "a site", e.h.get(t, e.st.url("site", "/")).body)
	e.data(t)
	if now.Generation == 1 && e.acks["deploy"] {
		require.NotEmpty(t, now.deployError(), "the redeploy is forgotten without a word")
	}
	e.h.begin(t, e.st, pairTree(t), manifest(pair))
	require.Equal(t, now.Generation+1, e.h.deployed(t, e.st).Generation, "the next redeploy")
	e.data(t)
}

// servesOneSource must hold after a redeploy of changes: the source that is kept is that
// of the generation that serves, and changes of it can be deployed.
func servesOneSource(t *testing.T, e *ending) {
	now, list := e.h.show(t, e.st, ""), e.h.source(t, e.st, e.st.ManageToken)
	require.Equal(t, now.Generation, list.Generation)
	require.Equal(t, now.Generation == 2, slices.Contains(list.paths(), "more"))
	require.Contains(t, list.paths(), "site/index.html")
	require.Equal(t, now.Generation+1, e.h.change(t, e.st, now.Generation, Tree{"again": "x"}, nil).Generation)
	require.Contains(t, e.h.source(t, e.st, e.st.ManageToken).paths(), "again")
	servesOne(t, e)
}

// servesOneLayer must hold after a redeploy of other dependencies: those that were
// installed are taken over by the next one.
func servesOneLayer(t *testing.T, e *ending) {
	now := e.h.show(t, e.st, "")
	e.h.begin(t, e.st, dependingTree(t, "2.0.0").plus(Tree{"more": "x"}), manifest(layered))
	require.Equal(t, now.Generation+1, e.h.deployed(t, e.st).Generation)
	require.Equal(t, "install: taken over from generation 2 (package.json unchanged)", e.h.installLine(t, e.st))
	servesOne(t, e)
}

// servesOneFresh must hold after a fresh redeploy: the build caches of before are gone.
func servesOneFresh(t *testing.T, e *ending) {
	e.h.loses(t, e.st, "volume web-cache")
	servesOne(t, e)
}

// reclaimed must hold after a redeploy for which there was no room: the build caches are
// gone, and there can be another one once there is room.
func reclaimed(t *testing.T, e *ending) {
	e.h.loses(t, e.st, "volume web-cache*")
	e.h.stop(t)
	delete(e.h.env, "BERTH_DISK_FLOOR")
	e.h.run(t)
	e.h.answers(t, e.st)
	servesOne(t, e)
}

// loses waits until the engine has nothing of a stack whose name matches a pattern.
func (h *Host) loses(t *testing.T, st *Stack, pattern string) {
	t.Helper()
	eventually(t, pattern+" is gone", func() error {
		all, err := h.inventory(t.Context())
		if slices.ContainsFunc(all[st.ID], func(name string) bool { return invariants.Matches(pattern, name) }) {
			return fmt.Errorf("there are %q", all[st.ID])
		}
		return err
	})
}

// servesOneSetting must hold after an attempted change of variables: the processes have
// what the list of the variables has, and the change can be made afterwards.
func servesOneSetting(t *testing.T, e *ending) {
	now := e.h.show(t, e.st, "")
	require.Equal(t, "live", now.Status, now.reason())
	listed := strings.Contains(e.h.getAs(t, e.st.ManageToken, "/v0/stacks/"+e.st.ID+"/env").body, "ADDED")
	require.Equal(t, now.Generation == 2, listed)
	require.Equal(t, listed, e.h.environ(t, e.st, "web")["ADDED"] == "value")
	require.Equal(t, listed, e.h.environ(t, e.st, "api")["ADDED"] == "value")
	e.data(t)
	e.h.sets(t, e.st, e.st.ManageToken, `{"all": {"ADDED": "value"}}`)
	require.Equal(t, "value", e.h.environ(t, e.st, "api")["ADDED"])
	servesOne(t, e)
}

// servesLocked must hold after a redeploy that fails and is rolled back.
func servesLocked(t *testing.T, e *ending) {
	now := e.h.show(t, e.st, "")
	require.Equal(t, "live", now.Status, now.reason())
	require.Equal(t, "generation 1", e.h.get(t, e.st.url("web", "/")).body)
	require.NotEmpty(t, now.deployError())
}

// restarted holds after a crash: the service is back, the crash counted at most
// once.
func restarted(t *testing.T, e *ending) {
	require.Equal(t, "live", e.h.show(t, e.st, "").Status)
	require.Equal(t, "hello from api", e.h.get(t, e.st.url("api", "/")).body)
	require.LessOrEqual(t, count(e.h.events(t, e.st), "service.crashed"), 1)
	e.data(t)
}

// replaced must hold after a restart that starts the new process beside the old one:
// only one of the two that ran when the server died serves.
func replaced(t *testing.T, e *ending) {
	eventually(t, "one process is left", func() error {
		has := e.h.has(t, e.st)
		if n := len(slices.DeleteFunc(has, func(name string) bool { return !strings.HasPrefix(name, "container api-") })); n != 1 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	started, err := time.Parse(time.RFC3339Nano, e.h.inspect(t, e.st, "api").State.StartedAt)
	require.NoError(t, err)
	require.True(t, started.Before(e.died), "another process was started")
	require.Equal(t, "hello from api", e.h.get(t, e.st.url("api", "/")).body)
	require.Equal(t, map[string]string{"web": "running", "site": "running", "api": "running"}, e.h.show(t, e.st, "").statuses())
	e.data(t)
}

// hasOneData holds after a replacement of data: the data is whole, the one or the other, and
// what is left over goes. The next replacement works.
func hasOneData(t *testing.T, e *ending) {
	data := awaitBody(t, e, "api", "/read?name=kept")
	require.Contains(t, []string{"data of api", "pushed"}, data)
	if e.acks["push"] {
		require.Equal(t, "pushed", data)
	}
	eventually(t, "one volume and one process are left", func() error {
		has := e.h.has(t, e.st)
		left := slices.DeleteFunc(has, func(name string) bool {
			return !strings.HasPrefix(name, "container api-") && !strings.HasPrefix(name, "volume api-data")
		})
		if len(left) != 2 {
			return fmt.Errorf("there are %q", left)
		}
		return nil
	})
	require.NotContains(t, e.h.eventTypes(t, e.st), "service.crashed")
	require.Equal(t, http.StatusOK, e.h.pushData(t, e.st, "api", e.st.ManageToken, dataArchive(t, file("kept", "data of api"))).status)
	e.data(t)
}

// awaitBody returns what a service answers once it serves.
func awaitBody(t *testing.T, e *ending, service, path string) (body string) {
	t.Helper()
	eventually(t, service+" serves", func() error {
		r := e.h.get(t, e.st.url(service, path))
		body = r.body
		if r.status != http.StatusOK {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
	return body
}

// revoked holds after the manage token was revoked: no build cache is left.
func revoked(t *testing.T, e *ending) {
	e.h.loses(t, e.st, "volume web-cache*")
	require.Equal(t, "hello from web", e.h.get(t, e.st.url("web", "/")).body)
	e.data(t)
}

// loops holds after one crash too many.
func loops(t *testing.T, e *ending) {
	now := e.h.show(t, e.st, "")
	require.Equal(t, "failed", now.Status)
	require.Contains(t, now.reason(), "api crashed 2 times")
	e.h.begin(t, e.st, pairTree(t), manifest(pair))
	e.h.mustLive(t, e.st)
	e.data(t)
}

// extended holds after an extension.
func extended(t *testing.T, e *ending) {
	now := e.h.show(t, e.st, "")
	if e.acks["extend"] {
		require.Equal(t, 1, count(e.h.events(t, e.st), "stack.extended"))
	}
	require.Equal(t, "live", now.Status)
	e.data(t)
}

// expired holds after an expiry: a claim brings everything back.
func expired(t *testing.T, e *ending) {
	e.h.becomes(t, e.st, "expired")
	require.Equal(t, 1, count(e.h.events(t, e.st), "stack.expired"))
	require.LessOrEqual(t, count(e.h.events(t, e.st), "stack.expiring"), 1)
	require.Equal(t, http.StatusOK, e.h.claim(t, e.key, e.st.ClaimCode, "?wait=true").status)
	e.data(t)
}

// claimed holds after an attempted claim.
func claimed(t *testing.T, e *ending) {
	if !e.h.show(t, e.st, "").Claimed {
		require.False(t, e.acks["claim"], "the claim is undone")
		require.Equal(t, http.StatusOK, e.h.claim(t, e.key, e.st.ClaimCode, "").status)
	}
	e.h.claim(t, e.key, e.st.ClaimCode, "").refused(t, http.StatusNotFound)
	e.h.mustLive(t, e.st)
	require.Equal(t, 1, count(e.h.events(t, e.st), "stack.claimed"))
	e.data(t)
}

// deleted holds after an attempted delete.
func deleted(t *testing.T, e *ending) {
	r := e.h.getAs(t, e.st.ManageToken, "/v0/stacks/"+e.st.ID)
	require.Equal(t, http.StatusNotFound, r.status, "the delete is undone")
	require.Equal(t, objects{}, e.h.objects(t))
	e.h.forgetStack(e.st.ID)
}

// logged holds after a rotation: what is left of the log has every line once.
func logged(t *testing.T, e *ending) {
	s := e.h.stream(t, e.st.ManageToken, "/v0/stacks/"+e.st.ID+"/logs?service=web", "Last-Event-ID", "web:0.0")
	var said strings.Builder
	for _, m := range s.until(t, saying("line 299")) {
		var line struct{ Line string }
		require.NoError(t, json.Unmarshal([]byte(m.data), &line))
		said.WriteString(line.Line + "\n")
	}
	_, left, _ := strings.Cut(said.String(), "line ")
	var from int
	_, err := fmt.Sscanf(left, "%d", &from)
	require.NoError(t, err)
	require.Equal(t, lines(from, 300), "line "+left)
	e.data(t)
}

// data asserts that the services have their data.
func (e *ending) data(t *testing.T) {
	t.Helper()
	for _, service := range []string{"web", "api"} {
		require.Equal(t, "data of "+service, e.h.file(t, e.st, service, "kept"))
	}
}

// answers waits until a stack, if it is live, serves: after a restart its
// services may still be on their way.
func (h *Host) answers(t *testing.T, st *Stack) {
	t.Helper()
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID)
	if r.status != http.StatusOK || r.stack(t).Status != "live" {
		return
	}
	for _, url := range r.stack(t).URLs {
		eventually(t, url+" answers", func() error {
			if r := h.get(t, url); r.status >= 500 {
				return fmt.Errorf("%s", r)
			}
			return nil
		})
	}
}

// showsNoSecret asserts that secrets, which are shown once, are not shown again.
func (h *Host) showsNoSecret(t *testing.T, st *Stack) {
	t.Helper()
	for _, path := range []string{"", "/events", "/logs", "/logs?kind=build"} {
		body := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+path).body
		for _, secret := range []string{st.ManageToken, st.ClaimCode, "manage_token", "claim_code", "webhook_secret"} {
			require.NotContains(t, body, secret)
		}
	}
}

// recoveries are the points at which the next server dies, in turn: before and
// after each step of taking over.
var recoveries = []string{"start-begun", "start-swept", "start-taken", "restore-committed", "process-started", "objects-removed"}

var recovery atomic.Int64

// brief makes lifetimes and waits short enough for a test.
func brief(h *Host) {
	short(h)
	quickly(h)
	with("BERTH_CRASH_LIMIT", "1")(h)
	with("BERTH_DRAIN", "1s")(h)
	with("BERTH_ORPHAN_GRACE", "1s")(h)
}

// fault is an action of the server with the points at which the server is killed during
// it.
type fault struct {
	name   string
	from   func(*testing.T, *ending)
	act    func(*testing.T, *ending)
	end    func(*testing.T, *ending)
	points []string
	opts   []Option
}

// faults are all of them.
var faults = []fault{
	{name: "a create", from: nothing, act: creates, end: created, points: []string{
		"upload-stored", "entry-extracted@2", "create-committed", "source-kept", "network-made",
		"build-container-made", "command-run", "image-committed", "layer-kept", "release-run", "process-started", "process-healthy",
		"site-linked", "process-started@2", "all-healthy", "live-committed", "create-uncommitted", "create-unanswered",
	}},
	{name: "a create that fails", from: nothing, act: createsBroken, end: createdBroken, points: []string{"deploy-failed", "failure-committed"}},
	{name: "a redeploy", from: withData, act: redeploys, end: servesOne, points: []string{
		"deploy-committed", "deploy-unanswered", "network-made", "build-container-made", "image-committed", "release-run", "process-started", "process-started@2",
		"all-healthy", "live-committed", "old-drained", "old-ended", "cache-trimmed",
	}},
	{name: "a redeploy of changes", from: withData, act: redeploysChanges, end: servesOneSource, points: []string{
		"overlay-unpacked", "overlay-laid", "deploy-committed", "live-committed", "old-drained",
	}},
	{name: "a change of variables", from: withData, act: setsVariables, end: servesOneSetting, points: []string{
		"env-committed", "env-unanswered", "layer-kept", "process-started", "live-committed", "old-drained",
	}},
	{name: "a redeploy of a large source", from: withData, act: redeploysLarge, end: servesOne, points: []string{"source-layer-made", "source-layer-kept"}},
	{name: "a redeploy of other dependencies", from: withLayers, act: redeploysDependencies, end: servesOneLayer, points: []string{"layer-kept", "replaced-dropped", "build-container-ready"}},
	{name: "a fresh redeploy", from: withData, act: redeploysFresh, end: servesOneFresh, points: []string{"deploy-committed", "live-committed"}},
	{name: "a redeploy without room", from: withoutRoom, act: redeploys, end: reclaimed, points: []string{"kept-dropped"}},
	{name: "a redeploy that fails", from: withData, act: redeploysBroken, end: servesOne, points: []string{"deploy-failed", "failure-committed", "deploy-undone"}},
	{name: "a rollback", from: locked, act: replacesBroken, end: servesLocked, points: []string{"old-halted", "half-rolled-back"}},
	{name: "a superseded redeploy", from: locked, act: supersedes, end: servesLocked, points: []string{"deploy-committed@2", "deploy-undone"}},
	{name: "a crash", from: withData, act: crash, end: restarted, points: []string{"crash-seen", "crash-counted", "backoff-over", "restart-healthy"}},
	{name: "a crash loop", from: crashedOnce, act: crash, end: loops, points: []string{"loop-committed", "half-taken-down"}},
	{name: "a restart", from: ofAna, act: restarts, end: replaced, points: []string{"next-named", "next-committed", "old-unnamed"}},
	{name: "a replacement of data", from: withData, act: pushes, end: hasOneData, points: []string{
		"data-filled", "data-halted", "data-started", "data-healthy", "next-committed", "data-discarded",
	}},
	{name: "a copy of data", from: withData, act: pullsHalted, end: hasOneData, points: []string{"data-halted"}},
	{name: "a revocation", from: ofAna, act: revokes, end: revoked, points: []string{"kept-dropped"}},
	{name: "a command", from: withData, act: commands, end: commanded, points: []string{"command-recorded", "command-run"}},
	{name: "a rotation of a log", from: withData, act: logs, end: logged, opts: []Option{with("BERTH_LOG_MAX", "7KB")}, points: []string{"log-moved"}},
	{name: "an extension", from: withData, act: extends, end: extended, points: []string{"extend-committed"}},
	{name: "an expiry", from: withData, act: expires, end: expired, points: []string{
		"extend-committed", "notice-committed", "expiry-stopped", "expiry-committed", "snapshot-copied", "snapshot-committed", "snapshot-committed@2",
	}},
	{name: "a claim", from: withData, act: claims, end: claimed, points: []string{"claim-committed"}},
	{name: "a restore", from: kept, act: claims, end: claimed, points: []string{
		"claim-committed", "data-restored", "snapshot-removed", "process-started", "service-restored", "service-restored@2", "restore-committed",
	}},
	{name: "a delete", from: withData, act: deletes, end: deleted, points: []string{"delete-committed", "container-removed", "objects-removed"}},
	{name: "a delete of an expired stack", from: kept, act: deletes, end: deleted, points: []string{"objects-removed"}},
	{
		name: "the end of the retention", from: withData, act: expires, end: deleted, opts: []Option{with("BERTH_RETENTION", "1s")},
		points: []string{"delete-committed", "objects-removed"},
	},
}

func TestFailpoints_KilledThereAndAgainInTheRecovery(t *testing.T) {
	t.Parallel()
	for _, c := range faults {
		for _, point := range c.points {
			t.Run(c.name+" "+point, func(t *testing.T) {
				t.Parallel()
				e := &ending{h: start(t, append([]Option{brief}, c.opts...)...), acks: map[string]bool{}}
				e.key = e.h.accountCreate(t, "ana@example.com")
				c.from(t, e)
				e.dieAt(t, point, c.act)
				before := e.h.history(t)
				e.dieAgain(t)
				e.h.run(t)
				e.h.inOrder(t, before)
				if e.st != nil {
					e.h.answers(t, e.st)
					e.h.showsNoSecret(t, e.st)
				}
				c.end(t, e)
				e.h.inOrder(t, before)
			})
		}
	}
}

// dieAt runs the server so that it is killed at a point, does what leads there, and
// waits for its death.
func (e *ending) dieAt(t *testing.T, point string, act func(*testing.T, *ending)) {
	t.Helper()
	e.h.stop(t)
	e.h.failAt(point)
	e.h.run(t)
	p := e.h.running()
	act(t, e)
	_ = p.wait(t)
	e.died = time.Now()
	name, _, _ := strings.Cut(point, "@")
	require.Contains(t, e.h.log.String(), "killed at the failpoint "+name)
}

// dieAgain kills the next server while it recovers: at a failpoint, or as soon
// as it answers when it does not get there.
func (e *ending) dieAgain(t *testing.T) {
	t.Helper()
	e.h.failAt(recoveries[recovery.Add(1)%int64(len(recoveries))])
	p := e.h.spawn(t)
	e.h.failAt("")
	eventually(t, "the server dies or answers", func() error {
		select {
		case <-p.exited:
			return nil
		default:
		}
		res, err := e.h.client.Get(e.h.base() + "/healthz")
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
	if e.h.alive() {
		e.h.kill(t)
	}
}
