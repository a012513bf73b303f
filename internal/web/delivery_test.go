package web

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// hooked makes a stack whose events are delivered.
func (e *env) hooked(b *visitor) (id string) {
	e.t.Helper()
	id = e.owned(b, "guestbook")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		s.Notify("https://example.com/hooks", "whsec_secret")
		return nil, nil
	})
	require.NoError(e.t, e.store.AddDeliveries(e.t.Context(), []store.Delivery{
		{StackID: id, EventID: 7, Type: "service.ready", At: time.Now(), Attempt: 1, Status: 302, Words: "<b>moved</b>", Duration: 120 * time.Millisecond},
		{StackID: id, EventID: 8, Type: "stack.live", At: time.Now(), Attempt: 4, Error: "there was no complete answer within 5s"},
		{StackID: id, EventID: -9, Type: "webhook.test", At: time.Now(), Status: 500, Error: "the receiver answered 500", Duration: 1500 * time.Millisecond},
	}))
	return id
}

func TestDeliveries_TellHowTheyWent(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.hooked(b)
	body := b.get("/dashboard/stacks/" + id).body
	for _, text := range []string{
		"https://example.com/hooks", "stack.live", "no response", "no complete answer within 5s", "deliveries/8",
		"service.ready", "302", "&lt;b&gt;moved", "120 ms", "delivery 7", "Send test event",
		"webhook.test", "500", `data-name="Duration">1.5 s`, `data-name="Attempt">manual`,
	} {
		require.Contains(t, body, text)
	}
	require.NotContains(t, body, "whsec_")
	require.NotContains(t, body, "deliveries/-9")
	b.follow("/dashboard/stacks/"+id+"/stream").part("deliveries", "delivery 8")
}

func TestDeliveries_AreSentAgainAndTried(t *testing.T) {
	e := newEnv(t)
	b, other := e.signedUp(ana), e.signedUp(bob)
	id := e.hooked(b)
	at := "/dashboard/stacks/" + id
	e.hooks.answer.Status = 204
	for path, told := range map[string]string{
		"/deliveries/7":    "Delivery 7 was sent again; the receiver answered 204.",
		"/deliveries/test": "A test event was sent; the receiver answered 204.",
	} {
		require.Equal(t, 404, other.post(at+path, nil).status)
		require.Equal(t, at, b.post(at+path, nil).header.Get("Location"))
		require.Contains(t, b.get(at).body, told)
	}
	require.ElementsMatch(t, []string{"resend " + id + " 7", "test " + id}, e.hooks.asked)
	require.Equal(t, 404, b.post(at+"/deliveries/x", nil).status)
	e.hooks.answer = store.Delivery{Error: "there was no answer"}
	require.Equal(t, 303, b.post(at+"/deliveries/7", nil).status)
	require.Contains(t, b.get(at).body, "Delivery 7 was sent again, and there was no answer.")
	e.hooks.err = stack.NewError(stack.NotFound, "the stack has no event 9")
	require.Equal(t, 303, b.post(at+"/deliveries/9", nil).status)
	require.Contains(t, b.get(at).body, "The stack has no event 9.")
}

func TestDeliveries_OfAStackWithoutAWebhook(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	body := b.get("/dashboard/stacks/" + e.owned(b, "guestbook")).body
	require.Contains(t, body, "notify.webhook")
	require.NotContains(t, body, "Send test event")
}
