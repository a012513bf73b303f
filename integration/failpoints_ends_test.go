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

// deploysOneData is hasOneData for a stack that has failed.
func deploysOneData(t *testing.T, e *ending) {
	e.h.redeploy(t, e.st, pairTree(t), manifest(pair))
	hasOneData(t, e)
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

// stoppedByOperator holds after a stop by the operator: nothing runs, the data is there, and a
// deploy brings the stack back.
func stoppedByOperator(t *testing.T, e *ending) {
	now := e.h.becomes(t, e.st, "failed")
	require.Contains(t, now.reason(), "it mines coins")
	entry := e.h.governs(t, "audit")["entries"].([]any)[0].(map[string]any)
	require.Contains(t, entry["command"], "stacks stop "+e.st.ID)
	require.Equal(t, "begun", entry["result"], "the server died before the end")
	e.h.keeps(t, e.st, "image web", "image api", "volume web-data", "volume api-data")
	e.h.redeploy(t, e.st, pairTree(t), manifest(pair))
	require.Equal(t, "data of api", e.h.get(t, e.st.url("api", "/read?name=kept")).body)
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
