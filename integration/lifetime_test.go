package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// short lets stacks live for as long as a test says.
func short(h *Host) { with("BERTH_TTL_MIN", "1s")(h) }

// patch sends a PATCH of a stack as it is.
func (h *Host) patch(t *testing.T, st *Stack, body string) Reply {
	t.Helper()
	return h.do(t, h.request(t, http.MethodPatch, "/v0/stacks/"+st.ID, strings.NewReader(body),
		"Content-Type", "application/json", "Authorization", "Bearer "+st.ManageToken))
}

// extend sets the time that a stack has left.
func (h *Host) extend(t *testing.T, st *Stack, ttl string) *Stack {
	t.Helper()
	r := h.patch(t, st, `{"ttl": "`+ttl+`"}`)
	require.Equal(t, http.StatusOK, r.status, r.body)
	return r.stack(t)
}

// becomes waits for a status.
func (h *Host) becomes(t *testing.T, st *Stack, status string) *Stack {
	t.Helper()
	var now *Stack
	eventually(t, "the stack is "+status, func() error {
		if now = h.show(t, st, ""); now.Status != status {
			return fmt.Errorf("it is %s: %s", now.Status, now.reason())
		}
		return nil
	})
	return now
}

// expire ends the time of a stack and waits until its data is kept.
func (h *Host) expire(t *testing.T, st *Stack) *Stack {
	t.Helper()
	h.extend(t, st, "1s")
	now := h.becomes(t, st, "expired")
	eventually(t, "nothing of it runs", func() error {
		for _, what := range h.has(t, st) {
			if !strings.HasPrefix(what, "image ") {
				return fmt.Errorf("there is %s", what)
			}
		}
		return nil
	})
	return now
}

// passes waits for a moment.
func passes(t *testing.T, at float64) {
	t.Helper()
	eventually(t, "the moment passes", func() error {
		if left := time.Until(time.UnixMicro(int64(at * 1e6))); left >= 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
}

func unix(at time.Time) float64 { return float64(at.UnixMicro()) / 1e6 }

func TestLifetime_AnExtensionReplacesTheExpiry(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("x"), nil)
	require.InDelta(t, st.CreatedAt+3600, *st.ExpiresAt, 0.01)
	for _, ttl := range []time.Duration{15 * time.Minute, 2 * time.Hour} {
		asked := unix(time.Now())
		now := h.extend(t, st, strings.Replace(ttl.String(), "m0s", "m", 1))
		require.InDelta(t, asked+ttl.Seconds(), *now.ExpiresAt, 60)
		require.Equal(t, map[string]any{"expires_at": *now.ExpiresAt}, last(t, h.events(t, st), "stack.extended").Data)
		require.Equal(t, *now.ExpiresAt, *h.show(t, st, "").ExpiresAt)
	}
	before := h.show(t, st, "")
	for body, status := range map[string]int{
		``: 400, `{}`: 400, `{"ttl": 30}`: 422, `{"ttl": "soon"}`: 422, `{"ttl": "-1h"}`: 422, `{"ttl": "14m59s"}`: 422, `{"ttl": "25h"}`: 422,
	} {
		require.NotEmpty(t, h.patch(t, st, body).refused(t, status), body)
	}
	require.Contains(t, h.patch(t, st, `{"ttl": "1m"}`).refused(t, 422), "15m")
	latest := time.UnixMicro(int64(st.CreatedAt * 1e6)).Add(24 * time.Hour).UTC().Format(time.RFC3339)
	require.Contains(t, h.patch(t, st, `{"ttl": "24h"}`).refused(t, 422), latest)
	require.Equal(t, before, h.show(t, st, ""))
	require.Equal(t, 2, count(h.events(t, st), "stack.extended"))

	failed := h.deploy(t, page("x"), manifest("services: [{name: web, runtime: node, build: exit 1, start: x}]"))
	require.Equal(t, "failed", h.extend(t, failed, "3h").Status)
	building := h.create(t, page("x"), manifest("services: [{name: web, runtime: node, build: sleep 600, start: x}]"))
	require.Equal(t, "building", h.extend(t, building, "3h").Status)
	owned := h.owned(t, h.accountCreate(t, "ana@example.com"), page("x"))
	require.Contains(t, h.patch(t, owned, `{"ttl": "1h"}`).refused(t, http.StatusConflict), "claimed")
}

func TestLifetime_AnExpiredStackKeepsItsDataAsAnImage(t *testing.T) {
	t.Parallel()
	h := start(t, short, with("BERTH_EXPIRY_NOTICE", "1ms"))
	tree := program(t).plus(Tree{"site/index.html": "the site"})
	st := h.live(t, tree, manifest(`services: [{name: web, runtime: node, start: node server.js}, {name: site, runtime: static, root: site}]`))
	h.put(t, st, "web", "kept", "data")
	now := h.expire(t, st)
	require.NotNil(t, now.ExpiredAt)
	require.InDelta(t, *now.ExpiredAt+7*24*3600, *now.RetainedUntil, 0.01)
	require.GreaterOrEqual(t, *now.ExpiredAt, *now.ExpiresAt)
	require.Equal(t, map[string]string{"web": "stopped", "site": "stopped"}, now.statuses())
	events := h.events(t, st)
	require.Equal(t, "stack.expired", events[len(events)-1].Type)
	require.Equal(t, map[string]any{"retained_until": *now.RetainedUntil, "claim_url": h.base() + "/claim"}, events[len(events)-1].Data)
	h.keeps(t, st, "image web", "image web:data")
	require.Contains(t, h.logs(t, st, ""), "web starts\n")
	for _, service := range []string{"web", "site"} {
		text := h.get(t, st.url(service, "/"), "Accept", "application/json").refused(t, http.StatusGone)
		require.Contains(t, text, h.base()+"/claim")
	}
	require.Contains(t, h.patch(t, st, `{"ttl": "1h"}`).refused(t, http.StatusConflict), "expired")
	require.Contains(t, h.postDeploy(t, st, page("x"), nil).refused(t, http.StatusConflict), "claim it")
	h.restart(t)
	require.Equal(t, 1, count(h.events(t, st), "stack.expired"))
	require.Zero(t, count(h.events(t, st), "stack.restored"))
	h.keeps(t, st, "image web", "image web:data")
}

func TestLifetime_AnExtensionOutlivesTheServer(t *testing.T) {
	t.Parallel()
	h := start(t, short)
	st := h.live(t, page("x"), nil)
	h.extend(t, st, "1m")
	now := h.extend(t, st, "1h")
	h.kill(t)
	h.run(t)
	require.Equal(t, *now.ExpiresAt, *h.show(t, st, "").ExpiresAt)
	require.Equal(t, "live", h.show(t, st, "").Status)
}
