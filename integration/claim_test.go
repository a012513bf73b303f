package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// accountCreate creates an account as an operator does while the server runs, and
// returns its API key.
func (h *Host) accountCreate(t *testing.T, email string) (key string) {
	t.Helper()
	out, err := h.berthd(t, "", "account", "create", email)
	require.NoError(t, err)
	key = strings.TrimSpace(out)
	require.True(t, strings.HasPrefix(key, "as_live_"), "%q", key)
	return key
}

// owned deploys a tree with an API key.
func (h *Host) owned(t *testing.T, key string, tree Tree) *Stack {
	t.Helper()
	r := h.post(t, archive(t, tree), nil, "", "Authorization", "Bearer "+key)
	require.Equal(t, http.StatusCreated, r.status, r.body)
	return h.mustLive(t, r.stack(t))
}

// claim sends a claim as it is.
func (h *Host) claim(t *testing.T, key, code, query string) Reply {
	t.Helper()
	body, err := json.Marshal(map[string]string{"claim_code": code})
	require.NoError(t, err)
	return h.do(t, h.request(t, http.MethodPost, "/v0/claim"+query, strings.NewReader(string(body)),
		"Content-Type", "application/json", "Authorization", "Bearer "+key))
}

func TestClaim_MovesAStackIntoAnAccountByAnySpelling(t *testing.T) {
	t.Parallel()
	h := start(t)
	key := h.accountCreate(t, "ana@example.com")
	for name, spell := range map[string]func(string) string{
		"as given":       func(c string) string { return c },
		"lower case":     strings.ToLower,
		"without dashes": func(c string) string { return strings.ReplaceAll(c, "-", "") },
		"without prefix": func(c string) string { return strings.TrimPrefix(c, "CLM-") },
		"bare": func(c string) string {
			return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(c, "CLM-"), "-", ""))
		},
	} {
		st := h.live(t, page("x"), nil)
		require.Regexp(t, `^CLM-[0-9A-Z]{4}-[0-9A-Z]{4}-[0-9A-Z]{4}$`, st.ClaimCode)
		require.Equal(t, "noindex", h.get(t, st.url("web", "/")).header.Get("X-Robots-Tag"))
		r := h.claim(t, key, spell(st.ClaimCode), "")
		require.Equal(t, http.StatusOK, r.status, "%s: %s", name, r.body)
		now := r.stack(t)
		require.True(t, now.Claimed)
		require.Equal(t, "live", now.Status)
		require.Nil(t, now.ExpiresAt)
		require.Equal(t, st.URLs, now.URLs)
		require.NotContains(t, r.body, "claim_code")
		events := h.events(t, st)
		require.Equal(t, "stack.claimed", events[len(events)-1].Type)
		require.Equal(t, map[string]any{"by": "ana@example.com"}, events[len(events)-1].Data)
		require.Equal(t, "owner", h.getAs(t, key, "/v0/stacks/"+st.ID).json(t)["role"])
		require.Equal(t, "agent", h.show(t, st, "").Role, "the manage token goes on working")
		require.Empty(t, h.get(t, st.url("web", "/")).header.Get("X-Robots-Tag"))
		h.patch(t, st, `{"ttl": "1h"}`).refused(t, http.StatusConflict)
		require.Equal(t, 2, h.redeploy(t, st, page("y"), nil).Generation)
		require.Contains(t, keys(last(t, h.events(t, st), "stack.live").Data), "expires_at")
		require.Nil(t, last(t, h.events(t, st), "stack.live").Data["expires_at"])
	}
}

func TestClaim_IsRefused(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_CLAIMS_PER_MINUTE", "1000"))
	ana, bob := h.accountCreate(t, "Ana@Example.com"), h.accountCreate(t, "bob@example.com")
	st := h.live(t, page("x"), Fields{"claim_email": "ana@example.COM"})
	for _, token := range []string{"as_live_wrong", "something"} {
		h.claim(t, token, st.ClaimCode, "").refused(t, http.StatusUnauthorized)
	}
	require.Contains(t, []int{401, 403}, h.claim(t, st.ManageToken, st.ClaimCode, "").status)
	h.do(t, h.request(t, http.MethodPost, "/v0/claim", strings.NewReader(`{"claim_code": "`+st.ClaimCode+`"}`))).refused(t, http.StatusUnauthorized)
	for _, body := range []string{"", "{}", "nonsense"} {
		r := h.do(t, h.request(t, http.MethodPost, "/v0/claim", strings.NewReader(body), "Authorization", "Bearer "+ana))
		require.NotEmpty(t, r.refused(t, http.StatusBadRequest))
	}
	for _, code := range []string{"CLM-0000-0000-0000", "nonsense", st.ClaimCode + "0", "CLM-"} {
		require.NotEmpty(t, h.claim(t, ana, code, "").refused(t, http.StatusNotFound), code)
	}
	require.NotContains(t, strings.ToLower(h.claim(t, bob, st.ClaimCode, "").refused(t, http.StatusForbidden)), "ana@")
	require.False(t, h.show(t, st, "").Claimed)
	require.Equal(t, http.StatusOK, h.claim(t, ana, st.ClaimCode, "").status, "emails are compared without regard to case")
	h.claim(t, ana, st.ClaimCode, "").refused(t, http.StatusNotFound)
	h.claim(t, bob, st.ClaimCode, "").refused(t, http.StatusNotFound)
	gone := h.live(t, page("x"), nil)
	require.Equal(t, http.StatusOK, h.delete(t, gone).status)
	h.claim(t, ana, gone.ClaimCode, "").refused(t, http.StatusNotFound)
	h.forgetStack(gone.ID)
}

func TestClaim_TenAMinute(t *testing.T) {
	t.Parallel()
	h := start(t)
	key := h.accountCreate(t, "ana@example.com")
	for range 10 {
		h.claim(t, key, "CLM-0000-0000-0000", "").refused(t, http.StatusNotFound)
	}
	r := h.claim(t, key, "CLM-0000-0000-0000", "")
	require.Equal(t, slowDown, r.refused(t, http.StatusTooManyRequests))
	require.Equal(t, "60", r.header.Get("Retry-After"))
}

func TestClaim_HundredAtOnceGiveOneSuccess(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_CLAIMS_PER_MINUTE", "1000"))
	accounts := []string{h.accountCreate(t, "ana@example.com"), h.accountCreate(t, "bob@example.com")}
	st := h.live(t, page("x"), nil)
	var next atomic.Int64
	count100 := atOnce(100, func() int { return h.claim(t, accounts[next.Add(1)%2], st.ClaimCode, "").status })
	require.Equal(t, map[int]int{200: 1, 404: 99}, count100)
	require.Equal(t, 1, count(h.events(t, st), "stack.claimed"))
	roles := map[int]int{}
	for _, key := range accounts {
		roles[h.getAs(t, key, "/v0/stacks/"+st.ID).status]++
	}
	require.Equal(t, map[int]int{200: 1, 403: 1}, roles)
}

// keeper fills its $DATA_DIR with files of every kind, and lists what is there:
// kind, mode, owner, time, size, target and digest.
var keeper = Tree{"index.js": `
const fs = require('fs'), path = require('path'), crypto = require('crypto'), dir = process.env.DATA_DIR;
const seed = () => {
  const at = (name) => path.join(dir, name);
  for (const d of ['empty', 'deep/er', 'closed', 'sticky']) fs.mkdirSync(at(d), { recursive: true });
  const large = crypto.createCipheriv('aes-128-ctr', Buffer.alloc(16, 1), Buffer.alloc(16, 2)).update(Buffer.alloc(50 << 20));
  fs.writeFileSync(at('large'), large);
  fs.writeFileSync(at('deep/er/file with ü and "quotes"'), 'text');
  fs.writeFileSync(at('run.sh'), '#!/bin/sh', { mode: 0o755 });
  fs.writeFileSync(at('secret'), 'none may read this');
  fs.writeFileSync(at('nothing'), '');
  fs.writeFileSync(at('closed/inside'), 'x', { mode: 0o600 });
  fs.symlinkSync('deep/er', at('link'));
  fs.symlinkSync('/nowhere/at/all', at('dangling'));
  fs.linkSync(at('large'), at('deep/same'));
  fs.utimesSync(at('run.sh'), 1e9, 1e9);
  fs.chmodSync(at('sticky'), 0o1770);
  fs.chmodSync(at('secret'), 0);
  fs.chmodSync(at('closed'), 0);
};
const list = () => {
  const all = {};
  const visit = (name) => {
    const file = path.join(dir, name), s = fs.lstatSync(file);
    const entry = { mode: s.mode.toString(8), uid: s.uid - process.getuid(), gid: s.gid - process.getgid(), links: s.nlink };
    all[name || '.'] = entry;
    if (s.isSymbolicLink()) { entry.target = fs.readlinkSync(file); return; }
    fs.chmodSync(file, 0o700);
    if (s.isDirectory()) { for (const child of fs.readdirSync(file)) visit(path.join(name, child)); } else {
      entry.mtime = Math.floor(s.mtimeMs / 1000);
      entry.sha256 = crypto.createHash('sha256').update(fs.readFileSync(file)).digest('hex');
      entry.size = s.size;
    }
    fs.chmodSync(file, s.mode);
  };
  visit('');
  return all;
};
require('http').createServer((req, res) => {
  if (req.url === '/seed') seed();
  if (req.url === '/break') fs.writeFileSync(path.join(dir, 'broken'), '');
  res.end(JSON.stringify(list()));
}).listen(process.env.PORT, () => { if (fs.existsSync(path.join(dir, 'broken'))) process.exit(6); });`}

func TestClaim_AnExpiredStackComesBackWithItsData(t *testing.T) {
	t.Parallel()
	h := start(t, short)
	key := h.accountCreate(t, "ana@example.com")
	tree := keeper.plus(Tree{"site/index.html": "the site"})
	st := h.live(t, tree, manifest(`services:
  - {name: web, runtime: node, start: node index.js, build: date > stamp}
  - {name: api, runtime: node, start: node index.js, depends_on: [web]}
  - {name: site, runtime: static, root: site}`))
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/seed")).status)
	files := h.get(t, st.url("web", "/")).body
	require.Contains(t, files, `"target":"/nowhere/at/all"`)
	require.Contains(t, files, `"size":52428800`)
	built := h.logs(t, st, "kind=build")
	h.expire(t, st)
	h.keeps(t, st, "image web", "image api", "image web:data", "image api:data")

	before := len(h.events(t, st))
	r := h.claim(t, key, st.ClaimCode, "")
	require.Equal(t, http.StatusOK, r.status, r.body)
	now := r.stack(t)
	require.Equal(t, "building", now.Status)
	require.True(t, now.Claimed)
	require.Nil(t, now.ExpiresAt)
	require.Nil(t, now.ExpiredAt)
	require.Nil(t, now.RetainedUntil)
	now = h.mustLive(t, st)
	require.Equal(t, 1, now.Generation)
	require.Equal(t, st.URLs, now.URLs)
	require.Equal(t, map[string]string{"web": "running", "api": "running", "site": "running"}, now.statuses())
	require.JSONEq(t, files, h.get(t, st.url("web", "/")).body)
	require.Equal(t, "the site", h.get(t, st.url("site", "/")).body)
	after := h.after(t, st, before)
	require.Equal(t, "stack.claimed", after[0])
	require.ElementsMatch(t, []string{"service.ready web", "service.ready api", "service.ready site"}, after[1:4])
	require.Equal(t, []string{"stack.restored"}, after[4:])
	require.Equal(t, built, h.logs(t, st, "kind=build"), "something was built")
	all := []string{"container web-g1", "container api-g1", "image web", "image api", "volume web-data", "volume api-data", "network g1"}
	h.keeps(t, st, all...)
	// A snapshot that a killed server had restored and not removed.
	docker, err := engine()
	require.NoError(t, err)
	defer docker.Close()
	image := "berth/" + st.hex() + "-web:"
	require.NoError(t, docker.ImageTag(t.Context(), image+"g1", image+"restored"))
	h.restart(t)
	h.keeps(t, st, all...)
	require.JSONEq(t, files, h.get(t, st.url("web", "/")).body)
}

func TestClaim_WaitsForTheRestoreWhenAsked(t *testing.T) {
	t.Parallel()
	h := start(t, short)
	key := h.accountCreate(t, "ana@example.com")
	st := h.live(t, page("the site"), nil)
	h.expire(t, st)
	r := h.claim(t, key, st.ClaimCode, "?wait=true")
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, "live", r.stack(t).Status)
	require.Equal(t, "the site", h.get(t, st.url("web", "/")).body)
}

func TestMe_ListsTheStacksNewestFirst(t *testing.T) {
	t.Parallel()
	h := start(t)
	key, other := h.accountCreate(t, "ana@example.com"), h.accountCreate(t, "bob@example.com")
	me := func(key string) (string, []string) {
		r := h.getAs(t, key, "/v0/me")
		require.Equal(t, http.StatusOK, r.status, r.body)
		var v struct {
			Email  string
			Stacks []*Stack
		}
		require.NoError(t, json.Unmarshal([]byte(r.body), &v))
		ids := []string{}
		for _, st := range v.Stacks {
			ids = append(ids, st.ID)
			require.True(t, st.Claimed)
		}
		require.ElementsMatch(t, []string{"email", "stacks"}, keys(r.json(t)))
		return v.Email, ids
	}
	email, none := me(key)
	require.Equal(t, "ana@example.com", email)
	require.Empty(t, none)
	require.Contains(t, h.getAs(t, key, "/v0/me").body, `"stacks":[]`)
	claimed := h.live(t, page("x"), nil)
	first, second := h.owned(t, key, page("1")), h.owned(t, key, page("2"))
	require.Equal(t, http.StatusOK, h.claim(t, key, claimed.ClaimCode, "").status)
	_, ids := me(key)
	require.Equal(t, []string{second.ID, first.ID, claimed.ID}, ids)
	require.Equal(t, http.StatusOK, h.delete(t, second).status)
	h.forgetStack(second.ID)
	_, ids = me(key)
	require.Equal(t, []string{first.ID, claimed.ID}, ids)
	_, ids = me(other)
	require.Empty(t, ids)
	h.getAs(t, "as_live_wrong", "/v0/me").refused(t, http.StatusUnauthorized)
	h.get(t, "/v0/me").refused(t, http.StatusUnauthorized)
	require.Contains(t, []int{401, 403}, h.getAs(t, first.ManageToken, "/v0/me").status, fmt.Sprint(first.ID))
}
