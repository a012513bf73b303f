package cluster

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/stretchr/testify/require"
)

// ending is an owner's server that is killed while another node forwards a request to it.
type ending struct {
	c          *Cluster
	name       string // of the attempt
	owner, via *Host
	key        string // of an account
	st         *Stack // nil before it is created
	open       []byte // body of the create
	openType   string
	acked      bool // what was asked for was acknowledged
	refused    bool // the last answer was a clean error
}

// sends sends a request about the stack through the other node, whose answer is a true one or
// a clean error.
func (e *ending) sends(t *testing.T, token, method, path string, body []byte, contentType string) Reply {
	t.Helper()
	r := e.via.attempt(t, method, path, body, "Content-Type", contentType, "Authorization", "Bearer "+token)
	require.NotZero(t, r.status, "no answer: %s", r)
	require.NoError(t, unexpected(r))
	e.acked, e.refused = r.status < 300, r.status >= 500
	t.Logf("%s %s: %.150s", method, path, r)
	return r
}

// manages is sends for JSON, below the path of the stack.
func (e *ending) manages(t *testing.T, method, path, body string) Reply {
	t.Helper()
	return e.sends(t, e.st.ManageToken, method, "/v0/stacks/"+e.st.ID+path, []byte(body), "application/json")
}

// pair is a stack with every command that there is.
const pair = `{name: pair, services: [
  {name: web, runtime: node, install: echo installed, release: echo released, start: exec perl server.pl, stop_timeout: 1s},
  {name: site, runtime: static, root: site}]}`

// replacing is a stack whose process ends before the next one starts.
const replacing = `{name: replacing, services: [{name: web, runtime: node, start: exec perl server.pl, strategy: recreate, stop_timeout: 1s}]}`

var broken = strings.ReplaceAll(pair, "echo installed", "exit 3")

// The states in which an act begins.

func bare(*testing.T, *ending) {}

func withStack(t *testing.T, e *ending) {
	e.st = e.via.live(t, app, pair)
	e.via.write(t, e.st, "kept", "data")
}

func withApp(t *testing.T, e *ending) {
	e.st = e.via.live(t, app, appManifest)
	e.via.write(t, e.st, "kept", "data")
}

func withReplacing(t *testing.T, e *ending) {
	e.st = e.via.live(t, app, replacing)
	e.via.write(t, e.st, "kept", "data")
}

func withExpired(t *testing.T, e *ending) {
	withStack(t, e)
	require.Equal(t, http.StatusOK, e.via.extend(t, e.st, "1s").status)
	eventually(t, "its data is in a snapshot", func() error {
		left := slices.DeleteFunc(e.owner.has(t, e.st), func(name string) bool { return !strings.HasPrefix(name, "volume ") })
		if status := e.via.show(t, e.st).Status; status != "expired" || len(left) > 0 {
			return fmt.Errorf("it is %s and has %q", status, left)
		}
		return nil
	})
}

func withCrash(t *testing.T, e *ending) {
	withStack(t, e)
	process := e.via.get(t, e.st.url("web", "/process")).String()
	crashes(t, e)
	eventually(t, "it is restarted", func() error {
		if r := e.via.get(t, e.st.url("web", "/process")); r.status != http.StatusOK || r.String() == process {
			return fmt.Errorf("it answers %s", r)
		}
		return nil
	})
}

// The acts.

func creates(manifest string) func(*testing.T, *ending) {
	return func(t *testing.T, e *ending) {
		e.open, e.openType = form(t, app, manifest)
		e.create(t)
	}
}

// create sends the create, the same one each time.
func (e *ending) create(t *testing.T) Reply {
	t.Helper()
	r := e.via.attempt(t, http.MethodPost, "/v0/stacks", e.open, "Content-Type", e.openType, "Idempotency-Key", e.name)
	require.NotZero(t, r.status, "no answer: %s", r)
	require.NoError(t, unexpected(r))
	e.refused = r.status >= 500
	t.Logf("create: %.150s", r)
	if r.status == http.StatusCreated {
		if e.st == nil {
			e.c.adopt(r.stack(t))
		}
		e.acked, e.st = true, r.stack(t)
	}
	return r
}

func redeploys(tree Tree, manifest string) func(*testing.T, *ending) {
	return func(t *testing.T, e *ending) {
		body, contentType := form(t, tree, manifest)
		e.sends(t, e.st.ManageToken, http.MethodPost, "/v0/stacks/"+e.st.ID+"/deploy", body, contentType)
	}
}

// large is a tree that is worth a layer, unless a command reads all of it.
func large() Tree {
	tree := app
	for i := range 600 {
		tree = tree.plus(fmt.Sprintf("assets/%d", i), "x")
	}
	return tree
}

func changes(t *testing.T, e *ending) {
	e.manages(t, http.MethodPost, "/deploy", `{"base": 1, "files": {"site/more": "x"}}`)
}

func sets(t *testing.T, e *ending) {
	e.manages(t, http.MethodPatch, "/env", `{"all": {"ADDED": "value"}}`)
}

func runs(t *testing.T, e *ending) {
	e.manages(t, http.MethodPost, "/services/web/exec", `{"command": "echo ran"}`)
}

func restarts(t *testing.T, e *ending) { e.manages(t, http.MethodPost, "/restart?service=web", "") }
func extends(t *testing.T, e *ending)  { e.manages(t, http.MethodPatch, "", `{"ttl": "2h"}`) }
func expires(t *testing.T, e *ending)  { e.manages(t, http.MethodPatch, "", `{"ttl": "1s"}`) }
func deletes(t *testing.T, e *ending)  { e.manages(t, http.MethodDelete, "", "") }

func replacesData(t *testing.T, e *ending) {
	body := archive(t, Tree{"kept": "replaced"})
	e.sends(t, e.st.ManageToken, http.MethodPut, "/v0/stacks/"+e.st.ID+"/services/web/data", body, "application/gzip")
}

func crashes(t *testing.T, e *ending) { e.via.get(t, e.st.url("web", "/exit")) }
func prints(t *testing.T, e *ending)  { e.via.get(t, e.st.url("web", "/print?n=300")) }

func claims(t *testing.T, e *ending) {
	e.sends(t, e.key, http.MethodPost, "/v0/claim", []byte(`{"claim_code": "`+e.st.ClaimCode+`"}`), "application/json")
}

// The ends: what must hold once the owner's server is back, besides what inOrder asserts.

// created holds after an attempted create: sent again, it has made one stack.
func created(t *testing.T, e *ending) {
	var r Reply
	eventually(t, "the create is answered", func() error {
		r = e.create(t)
		return same("201", fmt.Sprint(r.status))
	})
	require.Equal(t, "1", e.c.sql(t, "SELECT count(*) FROM stacks WHERE status <> 'deleted'"))
	eventually(t, "it is settled", func() error {
		if s := e.via.show(t, e.st).Status; s != "live" && s != "failed" {
			return fmt.Errorf("it is %s", s)
		}
		return nil
	})
	now := e.via.show(t, e.st)
	if now.Status == "failed" {
		require.Regexp(t, "upload the source again|exit code 3|exited with code 3", now.reason())
		return
	}
	e.via.serves(t, e.st.url("web", "/"), "200 hello from web, generation 1")
}

// servesOne holds after an attempted deploy: one of two generations serves, a deploy that was
// lost is explained, and there can be another one.
func servesOne(t *testing.T, e *ending) {
	now := e.via.show(t, e.st)
	require.Equal(t, "live", now.Status, now.reason())
	if now.Generation == 1 && e.acked {
		require.NotEmpty(t, now.reason(), "the deploy is forgotten without a word")
	}
	e.via.serves(t, e.st.url("web", "/"), fmt.Sprintf("200 hello from web, generation %d", now.Generation))
	require.Equal(t, http.StatusOK, e.via.redeploy(t, e.st, app.plus("site/again", "x"), pair).status)
	require.Equal(t, now.Generation+1, e.via.mustLive(t, e.st).Generation)
	dataStays(t, e)
}

func dataStays(t *testing.T, e *ending) {
	e.via.serves(t, e.st.url("web", "/read?name=kept"), "200 data")
}

// oneData holds after an attempt to replace the data: it is the one or the other, and can be
// replaced again.
func oneData(t *testing.T, e *ending) {
	now := ""
	eventually(t, "the stack has its data", func() error {
		now = e.via.reads(t, e.st, "kept")
		if now != "200 data" && now != "200 replaced" {
			return fmt.Errorf("it answers %s", now)
		}
		return nil
	})
	require.True(t, now == "200 replaced" || !e.acked, "the replacement is undone")
	replacesData(t, e)
	require.True(t, e.acked)
	e.via.serves(t, e.st.url("web", "/read?name=kept"), "200 replaced")
}

func failedOnce(t *testing.T, e *ending) {
	now := e.via.show(t, e.st)
	require.Equal(t, "failed", now.Status)
	require.NotEmpty(t, now.reason())
	require.Equal(t, http.StatusOK, e.via.redeploy(t, e.st, app, pair).status)
	e.via.mustLive(t, e.st)
	dataStays(t, e)
}

// expired holds after an expiry: a claim brings everything back.
func expired(t *testing.T, e *ending) {
	eventually(t, "it expires", func() error { return same("expired", e.via.show(t, e.st).Status) })
	require.Equal(t, http.StatusOK, e.via.claim(t, e.key, e.st).status)
	e.via.mustLive(t, e.st)
	dataStays(t, e)
}

func claimed(t *testing.T, e *ending) {
	if !e.via.show(t, e.st).Claimed {
		require.False(t, e.acked, "the claim is undone")
		require.Equal(t, http.StatusOK, e.via.claim(t, e.key, e.st).status)
	}
	require.Equal(t, http.StatusNotFound, e.via.claim(t, e.key, e.st).status)
	e.via.mustLive(t, e.st)
	dataStays(t, e)
}

func deleted(t *testing.T, e *ending) {
	r := e.via.as(t, e.st.ManageToken, http.MethodGet, "/v0/stacks/"+e.st.ID, "")
	require.Equal(t, http.StatusNotFound, r.status, "the delete is undone")
	e.c.forget(e.st)
	e.owner.hasNothing(t)
}

// fault is an act with the points at which the owner's server is killed during it.
type fault struct {
	name           string
	from, act, end func(*testing.T, *ending)
	points         []string // with @2 if a start comes there, too
}

var faults = []fault{
	{"a create", bare, creates(pair), created, []string{
		"upload-stored", "entry-extracted", "create-uncommitted", "create-committed", "create-unanswered", "source-kept", "network-made@2",
		"build-container-made", "command-run", "image-committed", "layer-kept", "release-run", "process-started", "process-healthy",
		"site-linked", "all-healthy", "live-committed",
	}},
	{"a create that fails", bare, creates(broken), created, []string{"deploy-failed", "failure-committed"}},
	{"a redeploy", withStack, redeploys(app.plus("site/more", "x").plus("more", "x"), pair), servesOne, []string{
		"upload-stored", "deploy-committed", "deploy-unanswered", "image-committed", "process-started", "all-healthy", "live-committed",
		"old-drained", "old-ended", "cache-trimmed",
	}},
	{"a redeploy of changes", withStack, changes, servesOne, []string{"overlay-unpacked", "overlay-laid", "deploy-committed"}},
	{"a redeploy of a large source", withApp, redeploys(large(), appManifest), servesOne, []string{"source-layer-made", "source-layer-kept"}},
	{"a redeploy that fails", withStack, redeploys(app, broken), servesOne, []string{"deploy-failed", "failure-committed", "deploy-undone"}},
	{"a rollback", withReplacing, redeploys(Tree{"server.pl": "exit 5"}, replacing), servesOne, []string{"old-halted", "half-rolled-back"}},
	{"a change of variables", withStack, sets, servesOne, []string{"env-committed", "env-unanswered"}},
	{"a command", withStack, runs, dataStays, []string{"command-recorded", "command-run"}},
	{"a restart", withStack, restarts, dataStays, []string{"next-named", "next-committed", "old-unnamed"}},
	{"a replacement of data", withStack, replacesData, oneData, []string{
		"data-filled", "data-halted", "data-started", "data-healthy", "next-committed", "data-discarded",
	}},
	{"a crash", withStack, crashes, dataStays, []string{"crash-seen", "crash-counted", "backoff-over", "restart-healthy"}},
	{"a crash loop", withCrash, crashes, failedOnce, []string{"loop-committed", "half-taken-down"}},
	{"a rotation of a log", withStack, prints, dataStays, []string{"log-moved"}},
	{"an extension", withStack, extends, dataStays, []string{"extend-committed"}},
	{"an expiry", withStack, expires, expired, []string{
		"extend-committed", "notice-committed", "expiry-stopped", "snapshot-copied", "snapshot-committed", "expiry-committed",
	}},
	{"a claim", withStack, claims, claimed, []string{"claim-committed"}},
	{"a restore", withExpired, claims, claimed, []string{"claim-committed", "data-restored", "snapshot-removed", "service-restored", "restore-committed"}},
	{"a delete", withStack, deletes, deleted, []string{"delete-committed", "container-removed", "objects-removed"}},
}

// elsewhere are the points that no forwarded request leads to, or none in the lab.
var elsewhere = map[string]string{
	"build-container-ready": "needs an installation of packages",
	"replaced-dropped":      "needs an installation of packages",
	"data-recorded":         "a stack that has failed: TestFailpoints_KilledThereAndAgainInTheRecovery",
	"data-paused":           "a snapshot: TestCluster_SnapshotBreaksOff",
	"snapshot-put":          "a snapshot: TestCluster_SnapshotBreaksOff",
	"snapshot-recorded":     "a snapshot: TestCluster_SnapshotBreaksOff",
	"kept-dropped":          "a disk without room, or a button of the dashboard",
	"start-begun":           "a start",
	"start-swept":           "a start",
	"start-taken":           "a start",
	"store-begin":           "any write of the server",
	"store-commit":          "any write of the server",
	"store-read":            "any read of the server",
	"move-prepared":         "a move: TestCluster_MoveBreaksOff",
	"move-stopped":          "a move: TestCluster_MoveBreaksOff",
	"move-copied":           "a move: TestCluster_MoveBreaksOff",
	"move-started":          "a move: TestCluster_MoveBreaksOff",
	"move-switched":         "a move: TestCluster_MoveBreaksOff",
	"move-taken":            "a move: TestCluster_MoveBreaksOff",
	"lost-brought":          "a takeover: TestCluster_TakeoverBreaksOff",
	"lost-taken":            "a takeover: TestCluster_TakeoverBreaksOff",
	"stop-committed":        "the operator's socket, which no node forwards",
	"lost-deleted":          "the owner is lost: TestCluster_DeleteOfALostStackBreaksOff",
}

// The server of a stack's owner is killed at each point of what another node has asked it
// for: that node's client gets a true answer or a clean error, and the next server goes on
// from there.
func TestFailpoints_TheOwnerDiesWhileAnotherNodeForwards(t *testing.T) {
	long(t)
	c := start(t, clustered, with("BERTH_CRASH_LIMIT", "1"), with("BERTH_BACKOFF", "20ms"), with("BERTH_BACKOFF_MAX", "50ms"), with("BERTH_LOG_MAX", "7KB"),
		with("BERTH_DRAIN", "1s"), with("BERTH_EXPIRY_NOTICE", "1s"), with("BERTH_ORPHAN_GRACE", "1s"))
	owner, via := c.on("w1"), c.on("m1")
	defer c.avail(t, swarm.NodeAvailabilityActive, via, c.on("w2"))
	c.avail(t, swarm.NodeAvailabilityPause, via, c.on("w2"))
	for _, f := range faults {
		for _, point := range f.points {
			t.Run(f.name+" "+point, func(t *testing.T) {
				name := strings.NewReplacer(" ", "-", "@", "-").Replace(f.name + " " + point)
				e := &ending{c: c, name: name, owner: owner, via: via, key: via.account(t, name+"@example.com")}
				f.from(t, e)
				e.dieAt(t, point, f.act)
				before := c.history(t)
				owner.fails = ""
				owner.run(t)
				if e.open == nil {
					c.inOrder(t, before)
				}
				f.end(t, e)
				c.inOrder(t, before)
				for _, st := range c.undeleted() {
					eventually(t, "the stack is deleted", func() error { return same("200", fmt.Sprint(via.delete(t, st).status)) })
				}
			})
			if t.Failed() {
				return
			}
		}
	}
}

// dieAt runs the owner's server so that it is killed at a point, does what leads there, and
// waits for its death.
func (e *ending) dieAt(t *testing.T, point string, act func(*testing.T, *ending)) {
	t.Helper()
	if e.st != nil {
		require.Same(t, e.owner, e.c.owner(t, e.st), "the stack is on another node")
	}
	e.owner.kill(t)
	e.owner.fails = point
	e.owner.run(t)
	// The other node has just learned of this server.
	eventually(t, "the other node is in contact with it", func() error {
		return same("ready", e.via.members(t)[e.owner.node.Name].State)
	})
	act(t, e)
	for e.refused && e.owner.process.Alive() { // perhaps before it came there
		time.Sleep(time.Second)
		if e.owner.process.Alive() {
			act(t, e)
		}
	}
	select {
	case <-e.owner.process.Ended():
	case <-time.After(patience):
		t.Fatalf("the server never comes to %s", point)
	}
	name, _, _ := strings.Cut(point, "@")
	require.Contains(t, e.owner.log.String(), "killed at the failpoint "+name)
}

// Every failpoint is in the table above, or it is said why not.
func TestFailpoints_AreAllTried(t *testing.T) {
	var tried []string
	for _, f := range faults {
		for _, point := range f.points {
			name, _, _ := strings.Cut(point, "@")
			tried = append(tried, name)
		}
	}
	for _, point := range failpoints(t) {
		require.True(t, slices.Contains(tried, point) != (elsewhere[point] != ""), "%s: %q", point, elsewhere[point])
	}
}

// pointNames finds failpoints in the source: those with a name of their own, and the names
// that are given to a function.
var pointNames = regexp.MustCompile(`failpoint\.(?:Here|Error)\("([a-z-]+)"\)|"([a-z]+-(?:committed|unanswered))"`)

// failpoints returns the names of the points in the source at which a server can be killed.
func failpoints(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(filepath.Join(checkout, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range pointNames.FindAllStringSubmatch(string(text), -1) {
			all = append(all, found[1]+found[2])
		}
		return err
	})
	require.NoError(t, err)
	slices.Sort(all)
	return slices.Compact(all)
}
