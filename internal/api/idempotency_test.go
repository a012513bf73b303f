package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// keyed sends a form with an Idempotency-Key from an address.
func (e *env) keyed(path, token, key, address string, parts ...part) reply {
	e.t.Helper()
	if len(parts) == 0 {
		parts = []part{sourcePart(site(e.t))}
	}
	body, contentType := makeForm(e.t, parts...)
	return e.send("POST", path, token, body, "Content-Type", contentType,
		headerIdempotencyKey, key, "X-Test-Client", address)
}

func TestIdempotency_TheSameCreateGivesTheFirstAnswerAgain(t *testing.T) {
	e := newEnv(t)
	first := e.keyed("/v0/stacks", "", "key-1", "192.0.2.1", sourcePart(site(t)), textPart("name", "one"))
	require.Equal(t, 201, first.status, first.body)
	require.Empty(t, first.header.Get(headerReplayed))
	left := e.limiter.left
	// The parts in another order, with another boundary.
	second := e.keyed("/v0/stacks", "", "key-1", "192.0.2.1", textPart("name", "one"), sourcePart(site(t)))
	require.Equal(t, 201, second.status, second.body)
	require.Equal(t, first.body, second.body)
	require.Equal(t, first.header.Get("Location"), second.header.Get("Location"))
	require.Equal(t, first.header.Get("ETag"), second.header.Get("ETag"))
	require.Equal(t, "true", second.header.Get(headerReplayed))
	require.Equal(t, left, e.limiter.left, "a repeated create was counted")
	require.Len(t, e.stacks(), 1)
	e.nothingLeft()
	made := e.stacks()[0]
	e.live(made.ID)
	require.Equal(t, e.etag(made.ID, first.json()["manage_token"]), first.header.Get("ETag"))
}

// etag returns the ETag of a stack's source.
func (e *env) etag(id string, token any) string {
	e.t.Helper()
	r := e.send("HEAD", fmt.Sprintf("/v0/stacks/%s/source", id), fmt.Sprint(token), nil)
	require.Equal(e.t, 200, r.status)
	return r.header.Get("ETag")
}

// stacks is every stack there is.
func (e *env) stacks() []*stack.Stack {
	e.t.Helper()
	all, err := e.store.All(e.t.Context())
	require.NoError(e.t, err)
	return all
}

func TestIdempotency_AnotherBodyIsRefused(t *testing.T) {
	e := newEnv(t)
	require.Equal(t, 201, e.keyed("/v0/stacks", "", "key-1", "192.0.2.1").status)
	for name, parts := range map[string][]part{
		"another archive": {sourcePart(tarOf(t, "index.html", "other"))},
		"another name":    {sourcePart(site(t)), textPart("name", "two")},
	} {
		r := e.keyed("/v0/stacks", "", "key-1", "192.0.2.1", parts...)
		require.Equal(t, 422, r.status, name)
		require.Contains(t, r.detail(), "another body", name)
	}
	require.Equal(t, 998, e.refused.left, "each of them counts as a refused create")
	require.Len(t, e.stacks(), 1)
	e.nothingLeft()
}

func TestIdempotency_OneTimeFieldsAreForTheFirstAddressOnly(t *testing.T) {
	e := newEnv(t)
	first := e.keyed("/v0/stacks", "", "key-1", "2001:db8::1")
	require.Equal(t, 201, first.status, first.body)
	neighbour := e.keyed("/v0/stacks", "", "key-1", "2001:db8::2") // of the same network
	require.Equal(t, 201, neighbour.status, neighbour.body)
	require.Equal(t, first.json()["id"], neighbour.json()["id"])
	require.ElementsMatch(t, stackFields, keys(neighbour.json()))
}

func TestIdempotency_AKeyIsItsCallersOwn(t *testing.T) {
	e := newEnv(t)
	_, ana := e.account("ana@example.com")
	_, bo := e.account("bo@example.com")
	ids := map[any]bool{}
	for _, sender := range [][2]string{{"", "192.0.2.1"}, {"", "192.0.2.2"}, {ana, "192.0.2.1"}, {bo, "192.0.2.1"}} {
		r := e.keyed("/v0/stacks", sender[0], "key-1", sender[1])
		require.Equal(t, 201, r.status, r.body)
		require.Empty(t, r.header.Get(headerReplayed))
		ids[r.json()["id"]] = true
	}
	require.Len(t, ids, 4)
}

func TestIdempotency_ARefusedRequestFreesItsKey(t *testing.T) {
	e := newEnv(t)
	r := e.keyed("/v0/stacks", "", "key-1", "192.0.2.1", sourcePart(site(t)), textPart("ttl", "1s"))
	require.Equal(t, 422, r.status, r.body)
	require.Equal(t, 201, e.keyed("/v0/stacks", "", "key-1", "192.0.2.1").status)
}

func TestIdempotency_AKeyMustBeSane(t *testing.T) {
	e := newEnv(t)
	for _, key := range []string{"a b", strings.Repeat("k", 256), "k\u00e9y", ""} {
		r := e.keyed("/v0/stacks", "", key, "192.0.2.1")
		require.Equal(t, 400, r.status, key)
		require.Contains(t, r.detail(), "UUID")
	}
	require.Empty(t, e.stacks())
}

func TestIdempotency_ARequestThatRunsIsAConflict(t *testing.T) {
	e := newEnv(t)
	large := sourcePart(tarOf(t, "index.html", strings.Repeat("hello ", 1<<14))) // more than is read ahead
	body, contentType := makeForm(t, large)
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	w := e.dial()
	w.printf("POST /v0/stacks HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\nX-Test-Client: 192.0.2.1\r\nIdempotency-Key: key-1\r\n\r\n%s",
		contentType, len(text), text[:1<<15])
	require.Eventually(t, func() bool { return len(e.host.uploads(t)) == 1 }, time.Minute, time.Millisecond)
	r := e.keyed("/v0/stacks", "", "key-1", "192.0.2.1")
	require.Equal(t, 409, r.status, r.body)
	require.Equal(t, "5", r.header.Get("Retry-After"))
	require.Contains(t, r.detail(), "still running")
	w.printf("%s", text[1<<15:])
	first := w.reply()
	require.Equal(t, 201, first.status)
	require.Equal(t, first.body, e.keyed("/v0/stacks", "", "key-1", "192.0.2.1", large).body)
}

func TestIdempotency_ADeployRunsOnce(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	path := "/v0/stacks/" + m.id + "/deploy"
	parts := []part{sourcePart(tarOf(t, "index.html", "another")), webhookPart("https://example.com/hook")}
	first := e.keyed(path, m.token, "key-1", "192.0.2.1", parts...)
	require.Equal(t, 200, first.status, first.body)
	require.Contains(t, first.body, "whsec_")
	again := e.keyed(path, m.token, "key-1", "192.0.2.1", parts...)
	require.Equal(t, 200, again.status, again.body)
	require.Equal(t, first.body, again.body)
	require.Equal(t, first.header.Get("ETag"), again.header.Get("ETag"))
	require.NotEqual(t, first.header.Get("ETag"), e.etag(m.id, m.token))
	e.live(m.id)
	require.Equal(t, first.header.Get("ETag"), e.etag(m.id, m.token))
	waited := e.keyed(path+"?wait=true", m.token, "key-1", "192.0.2.1", parts...)
	require.Equal(t, 200, waited.status, waited.body)
	require.EqualValues(t, 2, waited.json()["generation"])
	require.Nil(t, waited.json()["deploying"])
	require.Equal(t, first.header.Get("ETag"), waited.header.Get("ETag"))
	require.Equal(t, 2, e.get(m.id).Generation.Number)

	second := e.keyed(path, m.token, "key-2", "192.0.2.1", parts...)
	require.Equal(t, 200, second.status, second.body)
	require.NotContains(t, second.body, "whsec_")
	require.NotContains(t, e.keyed(path, m.token, "key-2", "192.0.2.1", parts...).body, "whsec_")
	require.Equal(t, 403, e.keyed(path, "ast_anon_other", "key-1", "192.0.2.1", parts...).status)
}

func (e *env) get(id string) *stack.Stack {
	e.t.Helper()
	s, err := e.store.Get(e.t.Context(), id)
	require.NoError(e.t, err)
	return s
}

// cutHost commits, and then fails as if the server had died in between.
type cutHost struct{ Host }

func (h cutHost) Create(ctx context.Context, s *stack.Stack, src *source.Source, receipt *store.Receipt) error {
	if err := h.Host.Create(ctx, s, src, receipt); err != nil {
		return err
	}
	panic(errors.New("power cut"))
}

func TestIdempotency_ACreateThatWasNeverAnsweredIsNotMadeAgain(t *testing.T) {
	e := newEnv(t, func(c *Config) { c.Host = cutHost{c.Host} })
	require.Equal(t, 500, e.keyed("/v0/stacks", "", "key-1", "192.0.2.1").status)
	r := e.keyed("/v0/stacks", "", "key-1", "192.0.2.1")
	require.Equal(t, 201, r.status, r.body)
	v := r.json()
	require.Equal(t, "building", v["status"])
	require.Regexp(t, `^"[0-9a-f]{64}"$`, r.header.Get("ETag"))
	require.Len(t, e.stacks(), 1)
	show := e.send("GET", "/v0/stacks/"+fmt.Sprint(v["id"]), v["manage_token"].(string), nil)
	require.Equal(t, 200, show.status, "the token that was shown late does not work")
}

func TestIdempotency_ABrokenRepetitionIsAnErrorOfItsOwn(t *testing.T) {
	e := newEnv(t)
	require.Equal(t, 201, e.keyed("/v0/stacks", "", "key-1", "192.0.2.1").status)
	r := e.send("POST", "/v0/stacks", "", bytes.NewReader(nil), headerIdempotencyKey, "key-1", "X-Test-Client", "192.0.2.1")
	require.Equal(t, 400, r.status, r.body)
}
