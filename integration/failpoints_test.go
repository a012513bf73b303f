package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// stopped is withData that the operator has stopped.
func stopped(t *testing.T, e *ending) {
	withData(t, e)
	_, err := e.h.berthd(t, "", "stacks", "stop", e.st.ID, "--reason", "it mines coins")
	require.NoError(t, err)
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

// stopsByOperator attempts to stop the stack.
func stopsByOperator(t *testing.T, e *ending) {
	_, err := e.h.berthd(t, "", "stacks", "stop", e.st.ID, "--reason", "it mines coins")
	require.Error(t, err, "the server died before it answered")
}

func logs(t *testing.T, e *ending) {
	e.h.attempt(t, http.MethodGet, e.st.url("web", "/log?from=0&to=300"), "")
}

// press presses a button on the stack's page, and the server may die before it answers.
func (e *ending) press(t *testing.T, action string) {
	t.Helper()
	page := "/dashboard/stacks/" + e.st.ID
	res, err := e.ana.client.Do(e.ana.form(t, page, page+"/"+action, nil))
	if err != nil {
		return
	}
	defer res.Body.Close()
	require.Equal(t, http.StatusSeeOther, res.StatusCode)
}

func restarts(t *testing.T, e *ending) { e.press(t, "restart/api") }

// pushes attempts to replace the data of api.
func pushes(t *testing.T, e *ending) {
	data := dataArchive(t, file("kept", "pushed"))
	e.attempt(t, "push", e.st.ManageToken, http.MethodPut, dataPath(e.st, "api"), string(data), "application/gzip")
}

func pullsHalted(t *testing.T, e *ending) {
	e.attempt(t, "pull", e.st.ManageToken, http.MethodGet, dataPath(e.st, "api")+"?stop=true", "", "")
}

func revokes(t *testing.T, e *ending) {
	e.press(t, "revoke")
	e.st.ManageToken = e.ana.key // from here on, and for the test's end
	e.h.forgetStack(e.st.ID)
	e.h.adoptStack(e.st)
}

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
	{name: "a replacement of data of a failed stack", from: stopped, act: pushes, end: deploysOneData, points: []string{"data-filled", "data-recorded", "data-discarded"}},
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
	{name: "a stop by the operator", from: withData, act: stopsByOperator, end: stoppedByOperator, points: []string{"stop-committed"}},
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
