package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	stripe "github.com/stripe/stripe-go/v82/webhook"
)

// hook is a receiver of webhooks on the loopback.
type hook struct {
	url string

	mu     sync.Mutex
	got    []delivered
	answer func(delivered) int
}

// delivered is one attempt that a receiver got.
type delivered struct {
	header http.Header
	body   string
	at     time.Time
}

func (d delivered) event(t *testing.T) Event {
	t.Helper()
	var e Event
	require.NoError(t, json.Unmarshal([]byte(d.body), &e), d.body)
	return e
}

func (d delivered) id() string { return d.header.Get("X-Service-Delivery") }

// newHook starts a receiver that answers 200 until a test changes that.
func newHook(t *testing.T) *hook { return newHookAt(t, "127.0.0.1") }

func newHookAt(t *testing.T, address string) *hook {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	require.NoError(t, err)
	r := &hook{answer: func(delivered) int { return http.StatusOK }}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		w.WriteHeader(r.take(delivered{req.Header, string(body), time.Now()}))
	}))
	require.NoError(t, server.Listener.Close())
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *hook) take(d delivered) int {
	r.mu.Lock()
	r.got = append(r.got, d)
	answer := r.answer
	r.mu.Unlock()
	return answer(d)
}

func (r *hook) answers(answer func(delivered) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *hook) attempts() []delivered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// await waits for n attempts that want asks for, and returns them.
func (r *hook) await(t *testing.T, n int, want func(delivered) bool) []delivered {
	t.Helper()
	var found []delivered
	eventually(t, "the receiver gets its deliveries", func() error {
		found = slices.DeleteFunc(r.attempts(), func(d delivered) bool { return !want(d) })
		if len(found) < n {
			return fmt.Errorf("%d of %d came", len(found), n)
		}
		return nil
	})
	return found
}

func (r *hook) awaitType(t *testing.T, eventType string) delivered {
	t.Helper()
	return r.await(t, 1, ofType(eventType))[0]
}

func ofType(eventType string) func(delivered) bool {
	return func(d delivered) bool { return d.header.Get("X-Service-Event") == eventType }
}

// manifest is the manifest of a static site that notifies the receiver.
func (r *hook) manifest() Fields {
	return manifest("notify: {webhook: '" + r.url + "'}\nservices: [{name: web, runtime: static}]")
}

// reachesLoopback lets webhooks reach the receivers of these tests.
var reachesLoopback = with("BERTH_WEBHOOK_ALLOW", "127.0.0.0/8,::1")

// requireSigned checks a signature with somebody else's implementation.
func requireSigned(t *testing.T, st *Stack, d delivered) {
	t.Helper()
	require.True(t, strings.HasPrefix(st.WebhookSecret, "whsec_"))
	require.NoError(t, stripe.ValidatePayload([]byte(d.body), d.header.Get("X-Service-Signature"), st.WebhookSecret))
}

// rawEvents are the events of a stack as the events endpoint writes them, by id.
func (h *Host) rawEvents(t *testing.T, st *Stack) map[string]string {
	t.Helper()
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/events")
	var page struct{ Events []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(r.body), &page), r.body)
	raw := map[string]string{}
	for _, text := range page.Events {
		var e Event
		require.NoError(t, json.Unmarshal(text, &e))
		raw[strconv.FormatInt(e.ID, 10)] = string(text)
	}
	return raw
}

func TestWebhook_EveryEventIsDeliveredSignedAndByteForByte(t *testing.T) {
	t.Parallel()
	h := start(t, reachesLoopback)
	r := newHook(t)
	st := h.live(t, page("<&>"), r.manifest())
	h.extend(t, st, "2h")
	failing := h.postDeploy(t, st, page("x"), manifest("services: [{name: web, runtime: static, build: \"echo '<é&>'; exit 3\"}]"))
	require.Equal(t, http.StatusOK, failing.status, failing.body)
	h.deployed(t, st)
	raw := h.rawEvents(t, st)
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	gone := r.awaitType(t, "stack.deleted")
	require.Equal(t, map[string]any{}, gone.event(t).Data)
	got := r.await(t, len(raw)+1, func(delivered) bool { return true })
	require.Len(t, got, len(raw)+1)
	seen := map[string]bool{}
	for _, d := range got {
		requireSigned(t, st, d)
		require.Equal(t, "application/json", d.header.Get("Content-Type"))
		require.Equal(t, d.event(t).Type, d.header.Get("X-Service-Event"))
		require.Equal(t, strconv.FormatInt(d.event(t).ID, 10), d.id())
		require.False(t, seen[d.id()], "delivered twice")
		seen[d.id()] = true
		if d.id() != gone.id() {
			require.Equal(t, raw[d.id()], d.body)
		}
	}
}

func TestWebhook_RetriesKeepTheDeliveryAndSignAfresh(t *testing.T) {
	t.Parallel()
	h := start(t, reachesLoopback, with("BERTH_REDIS_URL", "embedded"), with("BERTH_WEBHOOK_RETRIES", "1s,200ms,400ms"))
	r := newHook(t)
	r.answers(func(delivered) int { return http.StatusServiceUnavailable })
	st := h.live(t, page("x"), r.manifest())
	got := r.await(t, 4, ofType("stack.live"))
	for i, gap := range []time.Duration{time.Second, 200 * time.Millisecond, 400 * time.Millisecond} {
		require.GreaterOrEqual(t, got[i+1].at.Sub(got[i].at), gap)
	}
	for _, d := range got {
		requireSigned(t, st, d)
		require.Equal(t, got[0].id(), d.id())
		require.Equal(t, got[0].body, d.body)
	}
	require.NotEqual(t, got[0].header.Get("X-Service-Signature"), got[3].header.Get("X-Service-Signature"))
	r.answers(func(delivered) int { return http.StatusTooManyRequests })
	h.extend(t, st, "2h")
	r.awaitType(t, "stack.extended")
	r.answers(func(delivered) int { return http.StatusOK })
	h.extend(t, st, "3h")
	r.await(t, 2, ofType("stack.extended"))
	require.Len(t, r.await(t, 4, ofType("stack.live")), 4, "a dropped event is delivered")
	require.Len(t, r.await(t, 2, ofType("stack.extended")), 2, "a 429 is retried")
	require.Len(t, h.events(t, st), 6, "a dropped event can be polled")
}

func TestWebhook_ReachesNothingOfThisHostButWhatIsAllowed(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_WEBHOOK_ALLOW", "127.0.0.2"), with("BERTH_WEBHOOK_RETRIES", "200ms"))
	forbidden, allowed := newHook(t), newHookAt(t, "127.0.0.2")
	allowed.answers(func(delivered) int { return http.StatusInternalServerError })
	st := h.live(t, page("x"), forbidden.manifest())
	h.live(t, page("x"), allowed.manifest())
	allowed.await(t, 2, ofType("stack.live")) // so the retries of the one before are over too
	h.stop(t)
	db := h.openStore(t)
	found, err := db.Deliveries(t.Context(), st.ID, 100)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Empty(t, forbidden.attempts())
	require.Len(t, found, 2*4)
	for _, d := range found {
		require.Zero(t, d.Status)
		require.Contains(t, d.Error, "there was no answer")
	}
}

func TestWebhook_ARestartDropsPendingRetries(t *testing.T) {
	t.Parallel()
	h := start(t, reachesLoopback, with("BERTH_WEBHOOK_RETRIES", "10s"))
	r := newHook(t)
	r.answers(func(delivered) int { return http.StatusInternalServerError })
	st := h.live(t, page("x"), r.manifest())
	r.awaitType(t, "stack.live")
	tried := time.Now()
	h.stop(t)
	before := len(r.attempts())
	r.answers(func(delivered) int { return http.StatusOK })
	h.run(t)
	r.awaitType(t, "stack.restored")
	h.extend(t, st, "2h")
	r.awaitType(t, "stack.extended")
	passes(t, unix(tried.Add(12*time.Second))) // a retry that was kept would come before
	after := r.attempts()[before:]
	for _, d := range after {
		require.Contains(t, []string{"stack.restored", "stack.extended"}, d.header.Get("X-Service-Event"))
	}
	require.Len(t, after, 2)
}

func TestWebhook_AKilledServersEventsAreSentAfterTheStart(t *testing.T) {
	t.Parallel()
	h := start(t, reachesLoopback, with("BERTH_WEBHOOK_TIMEOUT", "10m"))
	r := newHook(t)
	st := h.live(t, page("x"), r.manifest())
	r.awaitType(t, "stack.live")
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	r.answers(func(delivered) int { <-held; return http.StatusOK })
	for range 30 { // more than are sent at the same time
		h.extend(t, st, "2h")
	}
	r.await(t, 1, ofType("stack.extended"))
	raw := h.rawEvents(t, st)
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	h.kill(t)
	r.answers(func(delivered) int { return http.StatusOK })
	release()
	before := len(r.attempts())
	h.run(t)
	gone := r.awaitType(t, "stack.deleted")
	requireSigned(t, st, gone)
	for id, body := range raw {
		for _, d := range r.await(t, 1, func(d delivered) bool { return d.id() == id }) {
			require.Equal(t, body, d.body)
		}
	}
	require.GreaterOrEqual(t, len(r.attempts())-before, 30-12+1, "what the killed server did not begin to send")
}

func TestWebhook_GoesOnWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	h := start(t, reachesLoopback, with("BERTH_REDIS_URL", "redis://"+redis.Addr()), with("BERTH_WEBHOOK_RETRIES", "3s,100ms"))
	r := newHook(t)
	r.answers(func(delivered) int { return http.StatusBadGateway })
	st := h.live(t, page("x"), r.manifest())
	r.awaitType(t, "stack.live")
	redis.Close() // with a retry in it
	h.extend(t, st, "2h")
	r.await(t, 3, ofType("stack.live"))
	r.await(t, 3, ofType("stack.extended"))
}

func TestWebhook_FollowsTheManifestsOfRedeploys(t *testing.T) {
	t.Parallel()
	h := start(t, reachesLoopback)
	one, two := newHook(t), newHook(t)
	st := h.live(t, page("1"), nil)
	redeploy := func(fields Fields) Reply {
		r := h.postDeploy(t, st, page("again"), fields)
		require.Equal(t, http.StatusOK, r.status, r.body)
		h.deployed(t, st)
		return r
	}
	st.WebhookSecret = redeploy(one.manifest()).stack(t).WebhookSecret
	requireSigned(t, st, one.awaitType(t, "stack.redeploying"))
	one.awaitType(t, "stack.live")
	require.Empty(t, redeploy(two.manifest()).stack(t).WebhookSecret)
	requireSigned(t, st, two.awaitType(t, "stack.redeploying"))
	two.awaitType(t, "stack.live")
	redeploy(manifest("services: [{name: web, runtime: static}]"))
	requireSigned(t, st, two.await(t, 2, ofType("stack.live"))[1])
	require.Len(t, one.await(t, 1, ofType("stack.live")), 1)
}

func TestWebhook_OneThatHangsHoldsUpNeitherAStackNorAnotherWebhook(t *testing.T) {
	t.Parallel()
	h := start(t, reachesLoopback)
	hanging, quick := newHook(t), newHook(t)
	release := make(chan struct{})
	defer close(release)
	hanging.answers(func(delivered) int { <-release; return http.StatusOK })
	stuck := h.live(t, page("x"), hanging.manifest())
	st := h.live(t, page("x"), quick.manifest())
	quick.awaitType(t, "stack.live")
	for n := range 20 {
		h.extend(t, stuck, "2h")
		h.extend(t, st, "2h")
		quick.await(t, n+1, ofType("stack.extended"))
	}
}

func TestWebhook_UserinfoInTheURLIsRefused(t *testing.T) {
	t.Parallel()
	h := start(t)
	detail := h.post(t, archive(t, page("x")), manifest("notify: {webhook: 'https://user:hunter2@example.com/'}"), "").
		refused(t, http.StatusUnprocessableEntity)
	require.Contains(t, detail, "notify.webhook")
	require.NotContains(t, detail, "hunter2")
}

// The receivers of examples/webhooks run as stacks. What Berth delivers to the
// test goes on to them as it is, and their answer back to Berth.
func TestWebhook_ExamplesAcceptWhatIsSignedAndNothingElse(t *testing.T) {
	t.Parallel()
	h := start(t, reachesLoopback)
	for _, runtime := range []string{"go", "node", "python"} {
		t.Run(runtime, func(t *testing.T) {
			r := newHook(t)
			sender := h.live(t, page("x"), r.manifest())
			receiver := h.live(t, folder(t, "../examples/webhooks/"+runtime), manifest(
				"services: [{name: web, env: {WEBHOOK_SECRET: '"+sender.WebhookSecret+"'}}]"))
			r.awaitType(t, "stack.live")
			r.answers(func(d delivered) int { return h.passOn(t, receiver, d, d.body) })
			h.extend(t, sender, "2h")
			d := r.awaitType(t, "stack.extended")
			eventually(t, "the receiver accepts the delivery", func() error {
				log, want := h.logs(t, receiver, "service=web"), fmt.Sprintf("accepted %s stack.extended of %s", d.id(), sender.ID)
				if !strings.Contains(log, want) {
					return fmt.Errorf("not in its log:\n%s", log)
				}
				return nil
			})
			require.Equal(t, http.StatusNoContent, h.passOn(t, receiver, d, d.body))
			require.Equal(t, http.StatusUnauthorized, h.passOn(t, receiver, d, strings.Replace(d.body, "1", "2", 1)), "a changed body")
			for name, signature := range badSignatures(sender.WebhookSecret, d) {
				d.header.Set("X-Service-Signature", signature)
				require.Equal(t, http.StatusUnauthorized, h.passOn(t, receiver, d, d.body), name)
			}
		})
	}
}

// badSignatures are headers that a receiver must not accept.
func badSignatures(secret string, d delivered) map[string]string {
	sign := func(at time.Time, secret string) string {
		return fmt.Sprintf("t=%d,v1=%x", at.Unix(), stripe.ComputeSignature(at, []byte(d.body), secret))
	}
	now := time.Now()
	good := sign(now, secret)
	t, v1, _ := strings.Cut(good, ",")
	return map[string]string{
		"another secret": sign(now, secret+"x"),
		"an old time":    sign(now.Add(-10*time.Minute), secret),
		"a time to come": sign(now.Add(10*time.Minute), secret),
		"no time":        v1,
		"no signature":   t,
		"half of one":    good[:len(good)-32],
		"no hexadecimal": t + ",v1=" + strings.Repeat("z", 64),
		"no words":       "nonsense",
		"nothing":        "",
	}
}

// passOn hands a delivery with some body to a receiver's stack.
func (h *Host) passOn(t *testing.T, receiver *Stack, d delivered, body string) int {
	req, err := http.NewRequest(http.MethodPost, receiver.url("web", "/"), bytes.NewReader([]byte(body)))
	if err != nil {
		t.Error(err)
		return http.StatusInternalServerError
	}
	req.Header = d.header.Clone()
	res, err := h.client.Do(req)
	if err != nil {
		t.Error(err)
		return http.StatusInternalServerError
	}
	defer res.Body.Close()
	return res.StatusCode
}
