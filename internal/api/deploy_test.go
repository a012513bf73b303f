package api

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// made is a stack that a test created.
type made struct{ id, token, code string }

// creates makes a stack and ends its first build.
func (e *env) creates(key string, parts ...part) made {
	e.t.Helper()
	v := e.create(key, parts...)
	code, _ := v["claim_code"].(string)
	m := made{v["id"].(string), v["manage_token"].(string), code}
	e.live(m.id)
	return m
}

// redeploy sends a deploy; without parts, it deploys a page.
func (e *env) redeploy(id, token string, parts ...part) reply {
	e.t.Helper()
	if len(parts) == 0 {
		parts = []part{sourcePart(site(e.t))}
	}
	body, contentType := makeForm(e.t, parts...)
	return e.send("POST", "/v0/stacks/"+id+"/deploy", token, body, "Content-Type", contentType)
}

func webhookPart(url string) part {
	return textPart("manifest", fmt.Sprintf("notify: {webhook: %q}", url))
}

func TestDeploy_OfAStackThatTakesTooMuchOfTheDiskIsRefused(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	e.host.tooLarge = &stack.Error{Kind: stack.NoRoom, Detail: "delete data", RetryAfter: time.Minute}
	r := e.redeploy(m.id, m.token, sourcePart([]byte("never read")))
	require.Equal(t, 507, r.status, r.body)
	require.Equal(t, "delete data", r.detail())
	require.Equal(t, "60", r.header.Get("Retry-After"))
	e.nothingLeft()
}

func TestDeploy_BuildsTheNextGenerationBesideTheServedOne(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	r := e.redeploy(m.id, m.token, sourcePart(tarOf(t, "index.html", "second")))
	require.Equal(t, 200, r.status, r.body)
	v := r.json()
	require.ElementsMatch(t, stackFields, keys(v), "no role and no secret")
	require.Equal(t, "live", v["status"])
	require.EqualValues(t, 1, v["generation"])
	require.EqualValues(t, 2, v["deploying"])
	page, err := os.ReadFile(filepath.Join(e.host.source(m.id), "index.html"))
	require.NoError(t, err)
	require.Equal(t, "second", string(page))
	e.nothingLeft()

	e.fail(m.id)
	v = e.send("GET", "/v0/stacks/"+m.id, m.token, nil).json()
	require.Equal(t, "live", v["status"])
	require.Nil(t, v["deploying"])
	require.Nil(t, v["error"])
	require.Equal(t, "it broke", v["deploy_error"])
	v = e.redeploy(m.id, m.token).json()
	require.Nil(t, v["deploy_error"])
	e.live(m.id)
	require.EqualValues(t, 2, e.send("GET", "/v0/stacks/"+m.id, m.token, nil).json()["generation"])
}

func TestDeploy_AFailedStackIsBuildingAgain(t *testing.T) {
	e := newEnv(t)
	v := e.create("")
	id, token := v["id"].(string), v["manage_token"].(string)
	e.fail(id)
	require.Equal(t, "it broke", e.send("GET", "/v0/stacks/"+id, token, nil).json()["error"])
	v = e.redeploy(id, token, sourcePart(site(t)), textPart("manifest", "services: [{name: other, runtime: static}]")).json()
	require.Equal(t, "building", v["status"])
	require.Nil(t, v["error"])
	require.EqualValues(t, 2, v["deploying"])
	require.Contains(t, v["urls"], "other")
}

func TestDeploy_ByTheOwnersKey(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	m := e.creates(key)
	require.Equal(t, 200, e.redeploy(m.id, key).status)
}

func TestDeploy_WaitHoldsUntilTheStackSettles(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	body, contentType := makeForm(t, sourcePart(site(t)))
	req := newRequest(t, "POST", "/v0/stacks/"+m.id+"/deploy?wait=true", m.token, body, "Content-Type", contentType)
	changed, stop := e.store.Watch(m.id)
	defer stop()
	answered := make(chan reply, 1)
	go func() {
		var r reply
		if res, err := e.client.Do(req); err == nil {
			r = readReply(t, res)
		}
		answered <- r
	}()
	<-changed
	e.live(m.id)
	r := <-answered
	require.Equal(t, 200, r.status)
	require.EqualValues(t, 2, r.json()["generation"])
	require.Nil(t, r.json()["deploying"])
}

func TestDeploy_RefusesBeforeTheUpload(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	live, expired := e.creates(""), e.creates("")
	e.expire(expired.id)
	building := e.create("")
	busy := e.creates("")
	require.Equal(t, 200, e.redeploy(busy.id, busy.token).status)
	for _, tt := range []struct {
		id, token string
		status    int
		detail    string
	}{
		{live.id, "", 401, "manage_token"},
		{live.id, auth.NewAPIKey(), 401, "API key"},
		{"stk_000000000000", live.token, 404, "stk_000000000000"},
		{live.id, busy.token, 403, "does not grant access"},
		{live.id, key, 403, "does not grant access"},
		{expired.id, expired.token, 409, "claim it"},
		{building["id"].(string), building["manage_token"].(string), 409, "already running"},
		{busy.id, busy.token, 409, "already running"},
	} {
		authorization := ""
		if tt.token != "" {
			authorization = "Authorization: Bearer " + tt.token + "\r\n"
		}
		w := e.dial()
		w.printf("POST /v0/stacks/%s/deploy HTTP/1.1\r\nHost: a\r\n%sContent-Type: multipart/form-data; boundary=b\r\n"+
			"Content-Length: 1000000000000\r\n\r\n%s", tt.id, authorization, strings.Repeat("x", 8<<10))
		r := w.reply()
		require.Equal(t, tt.status, r.status, r.body)
		require.Contains(t, r.detail(), tt.detail)
		w.closed()
	}
	e.nothingLeft()
}

func TestDeploy_RefusesWhatIsFixedAtCreation(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	for _, field := range []string{"name", "ttl", "claim_email"} {
		r := e.redeploy(m.id, m.token, sourcePart(site(t)), textPart(field, "30m"))
		require.Equal(t, 422, r.status)
		require.Contains(t, r.detail(), field+" is fixed when the stack is created")
	}
	r := e.redeploy(m.id, m.token, sourcePart(site(t)), textPart("colour", "red"))
	require.Equal(t, 400, r.status)
	require.Contains(t, r.detail(), "source, manifest, manifest_file, base, delete, supersede, fresh.")
	require.Equal(t, 400, e.redeploy(m.id, m.token, textPart("manifest", "")).status, "no source")
	require.Equal(t, 422, e.redeploy(m.id, m.token, sourcePart([]byte("no archive at all, but \x00 bytes"))).status)
	require.Equal(t, 413, e.redeploy(m.id, m.token, sourcePart(make([]byte, testMaxUpload+1))).status)
	e.nothingLeft()

	before, err := e.store.Get(t.Context(), m.id)
	require.NoError(t, err)
	r = e.redeploy(m.id, m.token, sourcePart(site(t)), textPart("manifest", "{name: other, ttl: 5m, claim_email: bo@example.com}"))
	require.Equal(t, 200, r.status, "those of a manifest are left alone")
	after, err := e.store.Get(t.Context(), m.id)
	require.NoError(t, err)
	require.Equal(t, []any{before.Name, before.ExpiresAt, before.ClaimEmail}, []any{after.Name, after.ExpiresAt, after.ClaimEmail})
}

func TestDeploy_TheFirstWebhookBringsItsSecretOnce(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	deploy := func(parts ...part) (secret any, s *stack.Stack) {
		r := e.redeploy(m.id, m.token, append([]part{sourcePart(site(t))}, parts...)...)
		require.Equal(t, 200, r.status, r.body)
		e.live(m.id)
		s, err := e.store.Get(t.Context(), m.id)
		require.NoError(t, err)
		return r.json()["webhook_secret"], s
	}
	secret, s := deploy()
	require.Nil(t, secret)
	require.Empty(t, s.WebhookSecret)

	first, s := deploy(webhookPart("https://example.com/1"))
	require.Regexp(t, "^whsec_", first)
	require.Equal(t, first, s.WebhookSecret)

	secret, s = deploy(webhookPart("https://example.com/2"))
	require.Nil(t, secret, "shown a second time")
	require.Equal(t, first, s.WebhookSecret)
	require.Equal(t, "https://example.com/2", s.Webhook)

	secret, s = deploy()
	require.Nil(t, secret)
	require.Equal(t, "https://example.com/2", s.Webhook, "the last one stays")
}

// gatedHost lets deploys go on once all of them have their upload.
type gatedHost struct {
	Host
	all *sync.WaitGroup
}

func (h gatedHost) Deploy(ctx context.Context, id string, u source.Upload, receipt *store.Receipt) (*stack.Stack, error) {
	h.all.Done()
	h.all.Wait()
	return h.Host.Deploy(ctx, id, u, receipt)
}

func TestDeploy_OneOfManyAtOnceWinsAndGetsTheStoredSecret(t *testing.T) {
	const deploys = 8
	var all sync.WaitGroup
	all.Add(deploys)
	e := newEnv(t, func(c *Config) { c.Host = gatedHost{c.Host, &all} })
	m := e.creates("")
	replies := make(chan reply, deploys)
	for range deploys {
		body, contentType := makeForm(t, sourcePart(site(t)), webhookPart("https://example.com/1"))
		req := newRequest(t, "POST", "/v0/stacks/"+m.id+"/deploy", m.token, body, "Content-Type", contentType)
		go func() {
			var r reply
			if res, err := e.client.Do(req); err == nil {
				r = readReply(t, res)
			}
			replies <- r
		}()
	}
	won := 0
	for range deploys {
		r := <-replies
		if r.status != 200 {
			require.Equal(t, 409, r.status, r.body)
			require.Contains(t, r.detail(), "already running")
			continue
		}
		won++
		s, err := e.store.Get(t.Context(), m.id)
		require.NoError(t, err)
		require.Equal(t, s.WebhookSecret, r.json()["webhook_secret"])
	}
	require.Equal(t, 1, won)
	e.nothingLeft()
}

func TestDeploy_CutOffChangesNothing(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	body, contentType := makeForm(t, sourcePart(site(t)))
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	w := e.dial()
	w.printf("POST /v0/stacks/%s/deploy HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		m.id, m.token, contentType, len(text), text[:len(text)-30])
	require.NoError(t, w.conn.Close())
	require.NoError(t, e.api.Shutdown(t.Context()), "the request has ended")
	s, err := e.store.Get(t.Context(), m.id)
	require.NoError(t, err)
	require.True(t, s.Settled())
	e.nothingLeft()
}

// TestDeploy_UnpacksOnlyTheFirstOfSeveralUploads has two under way together. The
// second is not an archive, for which it would be refused if it were unpacked.
func TestDeploy_UnpacksOnlyTheFirstOfSeveralUploads(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	body, contentType := makeForm(t, sourcePart([]byte("no archive at all, and not text\x00")))
	text, err := readAll(body)
	require.NoError(t, err)
	w := e.dial()
	w.printf("POST /v0/stacks/%s/deploy HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		m.id, m.token, contentType, len(text))
	line, err := w.in.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "100 Continue")
	_, err = w.in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, 200, e.redeploy(m.id, m.token).status)
	w.printf("%s", text)
	r := w.reply()
	require.Equal(t, 409, r.status, r.body)
	require.Contains(t, r.detail(), "already running")
}
