package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/invariants"
)

// belief is what an agent knows of one stack, from answers alone.
type belief struct {
	st           *Stack
	site         string // begins what its site says
	claimed      bool
	maybeClaimed bool // or a claim was not answered
	deleted      bool
	doomed       bool // a deletion was not answered
	mortal       bool // a short TTL was asked for

	deploys   int                // how many were accepted
	texts     map[int]string     // of the site, by generation
	perhaps   []string           // texts of deploys that were not answered
	files     map[string]written // in its data
	left      map[string]written // in data that a node kept since it lost the stack
	writes    int                // how many were tried
	sightings sightings
}

// written is a file that the service web said it wrote.
type written struct {
	content string
	at      time.Time
}

// vague reports whether what was asked for may have been done or not.
func (r Reply) vague() bool { return r.status == 0 || r.status >= 500 }

// mayBeGone reports whether the stack may have been deleted.
func (b *belief) mayBeGone() bool { return b.deleted || b.doomed || b.mayExpire() }

func (b *belief) mayExpire() bool { return b.mortal && !b.claimed }

// mayAnswer returns an error if the address of a service may not give such an answer: what it
// says when it serves, or a page with the reason why it does not.
func (b *belief) mayAnswer(r Reply) error {
	ok := false
	switch r.status {
	case 0, http.StatusOK:
		return nil
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		ok = true
	case http.StatusNotFound:
		ok = b.mayBeGone()
	case http.StatusGone:
		ok = b.mayExpire()
	}
	if ok && strings.TrimSpace(r.body) != "" {
		return nil
	}
	return errors.New("an answer that must not be: " + r.String())
}

// compare asserts that all that was acknowledged is so, and returns how many stacks have which
// status.
func (a *agent) compare(t *testing.T, history []invariants.Occurrence) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, b := range a.mine {
		if err := b.sightings.check(b.st, a.chaos.owners); err != nil {
			t.Errorf("stack %s: %v", b.st.ID, err)
		}
		found[a.compareOne(t, b, history)]++
	}
	return found
}

func (a *agent) compareOne(t *testing.T, b *belief, history []invariants.Occurrence) (status string) {
	t.Helper()
	r := a.any().as(t, b.st.ManageToken, http.MethodGet, "/v0/stacks/"+b.st.ID, "")
	if r.status == http.StatusNotFound {
		a.wasDeleted(t, b, invariants.Kinds(history, b.st.ID))
		return "deleted"
	}
	require.False(t, b.deleted, "the delete of %s is undone: %s", b.st.ID, r)
	require.Equal(t, http.StatusOK, r.status, "stack %s: %s", b.st.ID, r)
	now := r.stack(t)
	b.doomed = false // the deletion that was not answered has not been taken
	require.False(t, b.claimed && !now.Claimed, "the claim of stack %s is undone", b.st.ID)
	require.False(t, now.Claimed && !b.maybeClaimed, "stack %s was never claimed", b.st.ID)
	b.claimed = now.Claimed
	a.deploysHold(t, b, now)
	switch now.Status {
	case "live":
		a.serves(t, b, now)
		a.dataHolds(t, b)
	case "failed":
		require.NotEmpty(t, now.reason(), "stack %s has failed", b.st.ID)
	case "expired":
		require.True(t, b.mayExpire(), "stack %s has expired", b.st.ID)
	default:
		t.Errorf("stack %s is %s", b.st.ID, now.Status)
	}
	return now.Status
}

// wasDeleted asserts that somebody has asked for the deletion of a stack that is not there, or
// that it has expired before.
func (a *agent) wasDeleted(t *testing.T, b *belief, events []string) {
	t.Helper()
	require.Equal(t, "stack.deleted", last(append([]string{"none"}, events...)), "stack %s is not there: %q", b.st.ID, events)
	expired := slices.Contains(events, "stack.expired") && b.mayExpire()
	require.True(t, b.deleted || b.doomed || expired, "nobody has deleted stack %s: %q", b.st.ID, events)
	b.deleted = true
	a.chaos.c.forget(b.st)
}

// deploysHold asserts that no deploy is forgotten that was accepted, and none undone that
// served. inOrder asserts that each has come to an end.
func (a *agent) deploysHold(t *testing.T, b *belief, now *Stack) {
	t.Helper()
	begun, lived := 0, 0
	for _, e := range a.any().events(t, b.st) {
		generation, _ := e.Data["generation"].(float64)
		switch e.Type {
		case "stack.redeploying":
			begun++
		case "stack.live":
			lived = max(lived, int(generation))
		}
	}
	require.GreaterOrEqual(t, begun, b.deploys, "a deploy of %s is forgotten", b.st.ID)
	require.GreaterOrEqual(t, now.Generation, lived, "a deploy of %s is undone", b.st.ID)
}

// serves asserts that a live stack serves its generation through every node.
func (a *agent) serves(t *testing.T, b *belief, now *Stack) {
	t.Helper()
	texts := append([]string{b.texts[now.Generation]}, b.perhaps...)
	for _, h := range a.chaos.c.hosts {
		h.serves(t, b.st.url("web", "/"), fmt.Sprintf("200 hello from web, generation %d", now.Generation))
		eventually(t, "the site of "+b.st.ID+" serves through "+h.node.Name, func() error {
			r := h.get(t, b.st.url("site", "/"))
			if r.status != http.StatusOK || !slices.Contains(texts, r.body) {
				return fmt.Errorf("generation %d answers %s instead of one of %q", now.Generation, r, texts)
			}
			return nil
		})
	}
}

// emptyLife is how long before the end of its lease a node may have seen that a stack has no
// data.
const emptyLife = 10 * time.Second

// dataHolds asserts that every file which a live stack wrote is in its data, or, if it was
// written just before its node was lost or is in no snapshot that was restored, in what that node
// has kept ever since.
func (a *agent) dataHolds(t *testing.T, b *belief) {
	t.Helper()
	restored := a.chaos.c.env["BERTH_NODE_LOST"] == "restore"
	for name, file := range b.files {
		got := a.any().reads(t, b.st, name)
		if got == "200 "+file.content {
			continue
		}
		require.Equal(t, "200 no such file", got, "%s of stack %s", name, b.st.ID)
		justBefore := func(r reign) bool { return restored || file.at.After(r.lease.Add(-emptyLife)) }
		require.True(t, slices.ContainsFunc(a.chaos.owners.taken(b.st.ID), justBefore),
			"%s of stack %s, written at %s, is lost: %+v", name, b.st.ID, file.at.Format(time.StampMilli), a.chaos.owners.of(b.st.ID))
		a.chaos.count("file left on a lost node")
		delete(b.files, name)
		b.left[name] = file
	}
	for name, file := range b.left {
		require.Contains(t, a.chaos.c.leftOf(t, b.st, name), file.content, "%s of stack %s is left nowhere", name, b.st.ID)
	}
}

// leftOf returns what there is under a name in data of a stack that nodes have kept, since
// others took the stack.
func (c *Cluster) leftOf(t *testing.T, st *Stack, name string) (contents []string) {
	t.Helper()
	marked, err := c.marked(context.Background())
	require.NoError(t, err)
	for _, h := range c.hosts {
		for _, volume := range marked[h.id(t)][st.ID] {
			// A folder without the file has an empty text.
			text, err := h.node.Machine.Run(t.Context(), "", "sh", "-c", `cat "/var/lib/docker/volumes/$0/_data/$1" 2>/dev/null || true`, volume, name)
			require.NoError(t, err)
			contents = append(contents, text)
		}
	}
	return contents
}
