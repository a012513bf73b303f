package api

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
)

func TestCreate_AnonymousGetsTheOneTimeFields(t *testing.T) {
	e := newEnv(t)
	body, contentType := makeForm(t, sourcePart(site(t)))
	r := e.send("POST", "/v0/stacks", "", body, "Content-Type", contentType)
	require.Equal(t, 201, r.status, r.body)
	v := r.json()
	require.ElementsMatch(t, append(stackFields, "manage_token", "claim_code", "claim_url", "note"), keys(v))
	id := v["id"].(string)
	require.Regexp(t, `^stk_[0-9a-f]{12}$`, id)
	require.Equal(t, "http://localhost:8080/v0/stacks/"+id, r.header.Get("Location"))
	require.Regexp(t, `^ast_anon_`, v["manage_token"])
	require.Regexp(t, `^CLM-[0-9A-Z]{4}-[0-9A-Z]{4}-[0-9A-Z]{4}$`, v["claim_code"])
	require.Equal(t, "http://localhost:8080/claim/"+v["claim_code"].(string), v["claim_url"])
	require.Contains(t, v["note"], "claim_url")
	require.Equal(t, false, v["claimed"])
	require.Equal(t, "building", v["status"])

	s, err := e.store.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, auth.Hash(v["manage_token"].(string)), s.ManageTokenHash)
	require.Equal(t, e.api.cfg.Key.HashClaimCode(v["claim_code"].(string)), s.ClaimCodeHash)
	require.Equal(t, s.CreatedAt.Add(time.Hour), s.ExpiresAt)
	page, err := os.ReadFile(filepath.Join(e.host.source(id), "index.html"))
	require.NoError(t, err)
	require.Equal(t, "<h1>hello</h1>", string(page))
	e.nothingLeft()
}

func TestCreate_WithAnAPIKeyIsOwned(t *testing.T) {
	e := newEnv(t)
	e.limiter.left = 0 // does not apply
	account, key := e.account("ana@example.com")
	v := e.create(key, sourcePart(site(t)), textPart("ttl", "5m"), textPart("claim_email", "bo@example.com"))
	require.ElementsMatch(t, append(stackFields, "manage_token"), keys(v))
	require.Equal(t, true, v["claimed"])
	require.Nil(t, v["expires_at"])
	s, err := e.store.Get(t.Context(), v["id"].(string))
	require.NoError(t, err)
	require.Equal(t, account, s.Owner)
	require.Empty(t, s.ClaimCodeHash)
	require.Empty(t, s.ClaimEmail)
	require.Empty(t, s.Network)
}

func TestCreate_WebhookGetsASecret(t *testing.T) {
	e := newEnv(t)
	v := e.create("", sourcePart(site(t)), textPart("manifest", "notify: {webhook: 'https://example.com/hook'}"))
	require.Regexp(t, `^whsec_`, v["webhook_secret"])
	s, err := e.store.Get(t.Context(), v["id"].(string))
	require.NoError(t, err)
	require.Equal(t, v["webhook_secret"], s.WebhookSecret)
	require.Equal(t, "https://example.com/hook", s.Webhook)
}

func TestCreate_FieldsGoBeforeTheManifest(t *testing.T) {
	e := newEnv(t)
	v := e.create("", sourcePart(site(t)),
		textPart("manifest", "{name: from-text, ttl: 3h}"),
		part{"manifest_file", "stack.yaml", []byte("{name: from-file, ttl: 4h, claim_email: a@example.com}")},
		textPart("claim_email", "b@example.com"))
	require.Equal(t, "from-file", v["name"])
	require.InDelta(t, v["created_at"].(float64)+4*3600, v["expires_at"], 1e-3)
	s, err := e.store.Get(t.Context(), v["id"].(string))
	require.NoError(t, err)
	require.Equal(t, "b@example.com", s.ClaimEmail)

	v = e.create("", textPart("name", "mine"), textPart("ttl", "30m"), textPart("manifest", "{name: from-text, ttl: 3h}"),
		part{"manifest_file", "none", nil}, sourcePart(site(t)))
	require.Equal(t, "mine", v["name"])
	require.InDelta(t, v["created_at"].(float64)+1800, v["expires_at"], 1e-3)
}

func TestCreate_TakesTheOnlyFolderAsTheProject(t *testing.T) {
	e := newEnv(t)
	v := e.create("", sourcePart(tarOf(t, "guestbook/index.html", "hello")))
	require.Equal(t, "guestbook", v["name"])
	require.FileExists(t, filepath.Join(e.host.source(v["id"].(string)), "index.html"))
	e.nothingLeft()
}

func TestCreate_BoundsTheLifetime(t *testing.T) {
	e := newEnv(t)
	short := e.refusedUpload(422, sourcePart(site(t)), textPart("ttl", "14m59s"))
	require.Contains(t, short, "15m")
	long := e.refusedUpload(422, sourcePart(site(t)), textPart("manifest", "ttl: 24h1s"))
	require.Contains(t, long, "24h ")
	require.Contains(t, long, stack.Now().Add(24*time.Hour).Format("2006-01-02T15:"))
	for _, fits := range []string{"15m", "24h"} {
		e.create("", sourcePart(site(t)), textPart("ttl", fits))
	}
}

func TestCreate_AnyOtherAuthorizationIs401BeforeTheUpload(t *testing.T) {
	e := newEnv(t)
	token := e.create("")["manage_token"].(string)
	for _, value := range []string{"", "Bearer", "Bearer ", "Bearer " + token, "Bearer " + auth.NewAPIKey(), "Basic x", "nonsense"} {
		w := e.dial()
		w.printf("POST /v0/stacks HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Type: multipart/form-data; boundary=b\r\n"+
			"Content-Length: 1000000000000\r\n\r\n%s", value, strings.Repeat("x", 8<<10))
		r := w.reply() // no byte of the body beyond the first block was asked for
		require.Equal(t, 401, r.status, "%q", value)
		require.Equal(t, "Bearer", r.header.Get("WWW-Authenticate"))
		require.Contains(t, r.detail(), "as_live_")
		w.closed()
	}
	require.Len(t, e.limiter.networks, 1, "counted as anonymous creates")
}

func TestCreate_RateLimit(t *testing.T) {
	e := newEnv(t)
	e.limiter.left = 0
	body, contentType := makeForm(t, sourcePart(site(t)))
	r := e.send("POST", "/v0/stacks", "", body, "Content-Type", contentType)
	require.Equal(t, 429, r.status)
	require.Equal(t, "3600", r.header.Get("Retry-After"))
	require.JSONEq(t, `{"detail":"too many requests; slow down and retry in a minute"}`, r.body)
	e.nothingLeft()
}

// This archive cannot be unpacked, so a fault of the manifest was found before
// unpacking.
func TestCreate_AManifestInTheRequestIsCheckedBeforeTheArchiveIsUnpacked(t *testing.T) {
	e := newEnv(t)
	st := e.creates("")
	damaged := sourcePart([]byte("no archive"))
	for manifest, want := range map[string]string{
		"services: [{name: web, buildCommand: x}]":                                                  `unknown field "buildCommand"; here it is "build"`,
		"services: [{name: web, runtime: static, start: x}]":                                        "a static service must not have a start command",
		"services: [{name: web, runtime: cobol}]":                                                   "unknown runtime",
		"services: [{name: web, env: {A: '${services.api.url}'}}]":                                  "names a service that does not exist; the services are web",
		"services: [{name: web, env: {A: '${services.site.host}'}}, {name: site, runtime: static}]": "a static service has no process inside the stack",
		"ttl: 1s": "1s is too short",
		"{":       "it is not YAML",
	} {
		require.Contains(t, e.refusedUpload(422, damaged, textPart("manifest", manifest)), want)
		require.Contains(t, e.refusedUpload(422, damaged, part{"manifest_file", "stack.yaml", []byte(manifest)}), want)
		if manifest == "ttl: 1s" {
			continue // does not count in a deploy
		}
		r := e.redeploy(st.id, st.token, damaged, textPart("manifest", manifest))
		require.Equal(t, 422, r.status)
		require.Contains(t, r.detail(), want)
	}
	require.Contains(t, e.refusedUpload(422, damaged, textPart("ttl", "1s")), "1s is too short")
	require.Contains(t, e.refusedUpload(422, damaged), "not a tar")
}

func TestCreate_RefusedCountsInAWindowOfItsOwn(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	large := make([]byte, testMaxUpload+1)
	e.limiter.left, e.refused.left = 2, 3
	e.refusedUpload(422, sourcePart([]byte("no archive")))
	e.refusedUpload(422, sourcePart(site(t)), textPart("ttl", "1s"))
	e.refusedUpload(400)
	require.Equal(t, 2, e.limiter.left, "a create that made no stack counts as one")
	require.Equal(t, 1, e.refused.left, "422 counts as refused, and 400 does not")
	e.create("")
	require.Equal(t, 1, e.limiter.left, "one that made a stack counts")
	require.Equal(t, 1, e.refused.left, "one that made a stack counts as refused")
	e.refusedUpload(413, sourcePart(large))
	require.Equal(t, 0, e.refused.left, "413 counts as refused")

	body, contentType := makeForm(t, sourcePart(site(t)))
	r := e.send("POST", "/v0/stacks", "", body, "Content-Type", contentType)
	require.Equal(t, 429, r.status, "a create that is in order")
	require.Equal(t, "3600", r.header.Get("Retry-After"))
	require.Equal(t, "0", r.header.Get("RateLimit-Remaining"))
	require.Contains(t, r.detail(), "too many requests; slow down and retry in a minute")
	require.Contains(t, r.detail(), "were refused with 413 or 422")
	require.Equal(t, 1, e.limiter.left, "what a limit refuses counts")
	e.create(key)
	require.Equal(t, 200, e.validates("", sourcePart(site(t))).status, "a validation has a limit of its own")
}

// A create under way may be valid, so it does not count as refused.
func TestCreate_OneUnderWayIsNotYetRefused(t *testing.T) {
	e := newEnv(t)
	e.refused.left = 1
	body, contentType := makeForm(t, sourcePart(site(t)))
	text, err := readAll(body)
	require.NoError(t, err)
	w := e.dial()
	w.printf("POST /v0/stacks HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		contentType, len(text), text[:len(text)-1])
	require.Eventually(t, func() bool { _, left, _ := e.limiter.Quota(t.Context(), ""); return left == 999 }, time.Minute, time.Millisecond)
	e.create("")
	w.printf("%s", text[len(text)-1:])
	require.Equal(t, http.StatusCreated, w.reply().status)
	e.refusedUpload(422, sourcePart([]byte("no archive")))
	e.refusedUpload(429, sourcePart(site(t)))
}

// panickingDir has a fault.
type panickingDir struct{ Dir }

func (panickingDir) TempDir() (string, error) { panic("no folder") }

func TestCreate_OneThatPanicsCountsNowhere(t *testing.T) {
	e := newEnv(t, func(c *Config) { c.Dir = panickingDir{c.Dir} })
	e.refusedUpload(500)
	require.Equal(t, 1000, e.limiter.left)
	require.Equal(t, 1000, e.refused.left)
}

func TestCreate_WhatALimitRefusesCountsNowhere(t *testing.T) {
	e := newEnv(t)
	for range 3 {
		e.create("")
	}
	e.limiter.left, e.refused.left = 1, 1
	e.refusedUpload(429, sourcePart(site(t)))
	require.Equal(t, 1, e.limiter.left, "a create that the cap refused counts")
	require.Equal(t, 1, e.refused.left, "a create that the cap refused counts as refused")
	e.limiter.left = 0
	e.refusedUpload(429, sourcePart(site(t)))
	require.Equal(t, 1, e.refused.left, "a create that the limit refused counts as refused")
}

func TestCreate_CountsByNetwork(t *testing.T) {
	e := newEnv(t)
	for address, network := range map[string]string{
		"192.0.2.7":          "192.0.2.7",
		"::ffff:192.0.2.7":   "192.0.2.7",
		"2001:db8:1:2:3::4":  "2001:db8:1:2::/64",
		"fe80::1%eth0":       "fe80::/64",
		"":                   "unknown",
		"192.0.2.7:1234":     "unknown",
		"192.0.2.7, 1.2.3.4": "unknown",
	} {
		e.limiter.networks = nil
		body, contentType := makeForm(t, sourcePart(nil))
		e.send("POST", "/v0/stacks", "", body, "Content-Type", contentType, "X-Test-Client", address)
		require.Equal(t, []string{network}, e.limiter.networks, address)
	}
}

func TestCreate_TheCapsRefusalIsPassedOn(t *testing.T) {
	e := newEnv(t)
	for _, ttl := range []string{"2h", "45m", "1h"} {
		e.create("", sourcePart(site(t)), textPart("ttl", ttl))
	}
	body, contentType := makeForm(t, sourcePart(site(t)))
	r := e.send("POST", "/v0/stacks", "", body, "Content-Type", contentType)
	require.Equal(t, 429, r.status)
	require.Regexp(t, `^3 unclaimed stacks are already running from your network \(limit 3\); destroy or claim one first\. `+
		`Stacks of others behind the same address count too; the first of all expires in 4[0-9]m([0-9]+s)?, at 20[-0-9]+T[0-9:]+Z$`, r.detail())
	wait, err := strconv.Atoi(r.header.Get("Retry-After"))
	require.NoError(t, err)
	require.InDelta(t, 45*60, wait, 5*60)
	e.nothingLeft()
}

func TestCreate_WaitHoldsUntilTheStackSettles(t *testing.T) {
	e := newEnv(t)
	body, contentType := makeForm(t, sourcePart(site(t)))
	answered := make(chan reply, 1)
	req := newRequest(t, "POST", "/v0/stacks?wait=true", "", body, "Content-Type", contentType)
	changed, stop := e.store.Watch("")
	defer stop()
	go func() {
		var r reply
		if res, err := e.client.Do(req); err == nil {
			r = readReply(t, res)
		}
		answered <- r
	}()
	<-changed
	stacks, err := e.store.All(t.Context())
	require.NoError(t, err)
	require.Len(t, stacks, 1)
	e.live(stacks[0].ID)
	r := <-answered
	require.Equal(t, 201, r.status)
	require.Equal(t, "live", r.json()["status"])
	require.NotEmpty(t, r.json()["manage_token"])
}

// brokenDir has no disk.
type brokenDir struct{ Dir }

func (brokenDir) TempDir() (string, error) { return "", errors.New("disk full") }

func TestCreate_AFaultOfOursIsHidden(t *testing.T) {
	e := newEnv(t, func(c *Config) { c.Dir = brokenDir{c.Dir} })
	body, contentType := makeForm(t, sourcePart(site(t)))
	r := e.send("POST", "/v0/stacks", "", body, "Content-Type", contentType, "X-Request-Id", "req-1")
	require.Equal(t, 500, r.status)
	require.Contains(t, r.detail(), "req-1")
	require.NotContains(t, r.body, "disk full")
	require.Contains(t, e.logged.String(), "disk full")
	require.Contains(t, e.logged.String(), "request=req-1")
}

func TestAdmit_RefusesBeforeAnythingIsReadOrCounted(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	token := e.create("", sourcePart(site(t)))
	e.live(token["id"].(string))
	send := func(path, bearer string) reply {
		body, contentType := makeForm(t, sourcePart(site(t)))
		return e.send("POST", path, bearer, body, "Content-Type", contentType)
	}
	deploy := "/v0/stacks/" + token["id"].(string) + "/deploy"
	counted := e.limiter.left

	e.host.noneAnonymous = stack.NewError(stack.Unavailable, "no strangers")
	require.Equal(t, "no strangers", send("/v0/stacks", "").detail())
	require.Equal(t, 201, send("/v0/stacks", key).status, "an account's stack does not count as a stranger's")
	require.Equal(t, "no strangers", send(deploy, token["manage_token"].(string)).detail())
	require.Equal(t, 403, send(deploy, "ast_anon_wrong").status, "who asks comes first")
	claimed := e.creates(key)
	require.Equal(t, 200, e.redeploy(claimed.id, claimed.token).status, "it is an account's")

	e.host.full = &stack.Error{Kind: stack.Unavailable, Detail: "no room", RetryAfter: time.Minute}
	e.host.noneAnonymous = nil
	for path, bearer := range map[string]string{"/v0/stacks": key, deploy: token["manage_token"].(string), "/v0/validate": ""} {
		r := send(path, bearer)
		require.Equal(t, 503, r.status, path)
		require.Equal(t, "no room", r.detail())
		require.Equal(t, "60", r.header.Get("Retry-After"))
	}
	require.Equal(t, 401, send("/v0/stacks", "as_live_wrong").status, "who asks comes first")
	require.Equal(t, 1000, e.checks.left, "a refused validation does not count")
	require.Equal(t, counted, e.limiter.left, "a refused create does not count")
	e.nothingLeft()
}

func TestShutdown_FinishesOpenRequests(t *testing.T) {
	e := newEnv(t)
	body, contentType := makeForm(t, sourcePart(site(t)))
	text, err := readAll(body)
	require.NoError(t, err)
	w := e.dial()
	w.printf("POST /v0/stacks?wait=true HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		contentType, len(text))
	require.Equal(t, http.StatusContinue, w.reply().status) // the server has the request
	w.printf("%s", text[:len(text)-1])
	changed, stop := e.store.Watch("")
	defer stop()
	down := make(chan error, 1)
	go func() { down <- e.api.Shutdown(t.Context()) }()
	w.printf("%s", text[len(text)-1:])
	r := w.reply()
	require.Equal(t, http.StatusCreated, r.status)
	require.Equal(t, "building", r.json()["status"])
	<-changed
	require.NoError(t, <-down)
}
