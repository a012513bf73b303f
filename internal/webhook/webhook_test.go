package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	stripe "github.com/stripe/stripe-go/v82/webhook"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// trips is a transport without a network: it answers every request with the same status
// and records the requests.
type trips struct {
	status int
	hang   bool

	mu   sync.Mutex
	sent []arrival
}

func (r *trips) got() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

func (r *trips) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.sent = append(r.sent, arrival{request: req, body: readAll(req), at: time.Now()})
	r.mu.Unlock()
	if r.hang {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: r.status, Body: io.NopCloser(strings.NewReader("no"))}, nil
}

// standardConfig has the default times.
func standardConfig(s *store.Store) Config {
	c := config(s)
	c.Timeout, c.Retries = 5*time.Second, []time.Duration{time.Second, 5 * time.Second, 25 * time.Second}
	return c
}

func TestRetries_ComeAfter1And5And25Seconds(t *testing.T) {
	for name, r := range map[string]*trips{"at once": {status: 500}, "after the timeout": {hang: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				d := New(standardConfig(s))
				d.transport = r
				begin(t, d)
				k := hook(t, s, "https://example.com/hook")
				at := time.Now()
				e := record(t, s, k, extended())[0]
				time.Sleep(time.Hour)
				var took time.Duration
				if r.hang {
					took = d.cfg.Timeout
				}
				want := []time.Duration{0, took + time.Second, 2*took + 6*time.Second, 3*took + 31*time.Second}
				var got []time.Duration
				for _, a := range r.got() {
					got = append(got, a.at.Sub(at))
					checkSigned(t, a, e)
				}
				if !slices.Equal(got, want) {
					t.Errorf("attempts after %v, want %v", got, want)
				}
			})
		})
	}
}

// checkSigned asserts the headers of an attempt, and that its signature is for
// the time of the attempt and the whole secret.
func checkSigned(t *testing.T, a arrival, e stack.Event) {
	t.Helper()
	header := a.request.Header.Get("X-Service-Signature")
	var signed int64
	if _, err := fmt.Sscanf(header, "t=%d,v1=", &signed); err != nil || signed > a.at.Unix() || signed < a.at.Unix()-5 {
		t.Errorf("%s is not signed just before %d", header, a.at.Unix())
	}
	checkSignature(t, a)
	want := map[string]string{
		"Content-Type": "application/json", "X-Service-Event": string(e.Type), "X-Service-Delivery": strconv.FormatInt(e.ID, 10),
	}
	for name, value := range want {
		if got := a.request.Header.Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	body, err := e.MarshalJSON()
	if err != nil || string(body) != string(a.body) {
		t.Errorf("body %s, want %s", a.body, body)
	}
}

func checkSignature(t *testing.T, a arrival) {
	t.Helper()
	header := a.request.Header.Get("X-Service-Signature")
	if err := stripe.ValidatePayloadIgnoringTolerance(a.body, header, secret); err != nil {
		t.Errorf("%s: %v", header, err)
	}
}

func TestDispatcher_SendsWhatTheEventsEndpointShowsAndNothingElse(t *testing.T) {
	s := openStore(t)
	begin(t, New(config(s)))
	r := receive(t, func(w http.ResponseWriter, _ arrival) { w.Header().Set("Set-Cookie", "a=b") })
	k := hook(t, s, r.url+"?key=a%20b#fragment")
	record(t, s, k, stack.Event{Type: stack.EventFailed, Data: map[string]any{"error": "<b>&\u2028ü", "big": 12345678901}})
	r.await(t, 1)
	record(t, s, k, extended())
	shown, err := s.Events(t.Context(), k.ID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range r.await(t, 2) {
		checkSigned(t, a, shown[i])
		if a.request.Method != http.MethodPost || a.request.RequestURI != "/hook?key=a%20b" || a.request.ContentLength != int64(len(a.body)) {
			t.Errorf("%s %s with %d bytes", a.request.Method, a.request.RequestURI, a.request.ContentLength)
		}
		names := []string{}
		for name := range a.request.Header {
			names = append(names, name)
		}
		slices.Sort(names)
		want := []string{"Connection", "Content-Length", "Content-Type", "User-Agent", "X-Service-Delivery", "X-Service-Event", "X-Service-Signature"}
		if !slices.Equal(names, want) {
			t.Errorf("headers %v, want %v", names, want)
		}
	}
}

func TestDispatcher_DeliversOverTLSToAReceiverThatIsTrusted(t *testing.T) {
	s := openStore(t)
	d := New(config(s))
	bodies := make(chan []byte, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { bodies <- readAll(r) }))
	t.Cleanup(server.Close)
	d.transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	begin(t, d)
	k := hook(t, s, server.URL)
	record(t, s, k, extended())
	if a := attempts(t, s, k, 1)[0]; a.Status != 200 || a.Error != "" || len(<-bodies) == 0 {
		t.Errorf("%+v, want 200", a)
	}
}

func TestDispatcher_FollowsAllStacksThatHaveAWebhook(t *testing.T) {
	s := openStore(t)
	begin(t, New(config(s)))
	r := receive(t, nil)
	without := hook(t, s, "")
	record(t, s, without, extended(), extended())
	var want []string
	for range 3 {
		k := hook(t, s, r.url)
		for _, e := range record(t, s, k, extended(), extended(), extended()) {
			want = append(want, strconv.FormatInt(e.ID, 10))
		}
	}
	var got []string
	for _, a := range r.await(t, len(want)) {
		got = append(got, a.request.Header.Get("X-Service-Delivery"))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
}

func TestDispatcher_TheFirstWebhookOfARedeployGetsItsEvents(t *testing.T) {
	s := openStore(t)
	begin(t, New(config(s)))
	r := receive(t, nil)
	k := hook(t, s, "")
	record(t, s, k, extended())
	_, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Notify(r.url, secret)
		return []stack.Event{{Type: stack.EventRedeploying, Data: map[string]any{"generation": 2}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "stack.redeploying comes", func() bool {
		return slices.ContainsFunc(r.got(), func(a arrival) bool {
			return a.request.Header.Get("X-Service-Event") == string(stack.EventRedeploying)
		})
	})
}

func TestDispatcher_LaterAttemptsUseTheURLOfARedeploy(t *testing.T) {
	s := openStore(t)
	c := config(s)
	c.Retries = []time.Duration{5 * time.Second}
	begin(t, New(c))
	old := receive(t, func(w http.ResponseWriter, _ arrival) { w.WriteHeader(500) })
	moved := receive(t, nil)
	k := hook(t, s, old.url)
	e := record(t, s, k, extended())[0]
	old.await(t, 1)
	for _, url := range []string{moved.url, ""} { // none keeps the last one
		_, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			k.Notify(url, "whsec_another")
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	checkSigned(t, moved.await(t, 1)[0], e)
	attempts(t, s, k, 2)
	if n := len(old.got()); n != 1 {
		t.Errorf("the old URL got %d attempts, want 1", n)
	}
}

func TestDispatcher_DeliversTheLastEventsOfADeletedStackAndThenForgetsItsWebhook(t *testing.T) {
	s := openStore(t)
	begin(t, New(config(s)))
	hold, failed := make(chan struct{}), false
	r := receive(t, func(w http.ResponseWriter, a arrival) {
		switch {
		case a.request.Header.Get("X-Service-Event") == string(stack.EventExtended):
			<-hold
		case !failed:
			failed = true
			w.WriteHeader(500)
		}
	})
	k := hook(t, s, r.url)
	first := record(t, s, k, extended())[0]
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	got := r.await(t, 3) // both, and stack.deleted again
	if got[2].request.Header.Get("X-Service-Event") != string(stack.EventDeleted) {
		t.Errorf("the third was %s", got[2].request.Header.Get("X-Service-Event"))
	}
	events, err := s.Events(t.Context(), k.ID, first.ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	checkSigned(t, got[2], events[0])
	if _, ok, err := s.Webhook(t.Context(), k.ID); err != nil || !ok {
		t.Errorf("the webhook is forgotten while a delivery is under way: %v", err)
	}
	close(hold)
	eventually(t, "the webhook is forgotten", func() bool {
		hook, ok, err := s.Webhook(t.Context(), k.ID)
		return err == nil && !ok && hook == store.Webhook{}
	})
}

func TestDispatcher_AStartDropsRetriesAndSendsWhatWasNotAttempted(t *testing.T) {
	s := openStore(t)
	fails := receive(t, func(w http.ResponseWriter, _ arrival) { w.WriteHeader(500) })
	k, gone := hook(t, s, fails.url), hook(t, s, fails.url)
	c := config(s)
	c.Retries = []time.Duration{200 * time.Millisecond}
	first := New(c)
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	record(t, s, k, extended())
	attempts(t, s, k, 1)
	first.Close()
	before := len(fails.got())
	var want []string
	for range 3 { // by nobody's watch
		want = append(want, strconv.FormatInt(record(t, s, k, extended())[0].ID, 10))
	}
	if _, err := s.Update(t.Context(), gone.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	events, err := s.Events(t.Context(), gone.ID, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, strconv.FormatInt(events[0].ID, 10))

	next := config(s)
	next.Retries = nil
	begin(t, New(next))
	want = append(want, strconv.FormatInt(record(t, s, k, extended())[0].ID, 10))
	time.Sleep(2 * c.Retries[0]) // a retry that was not dropped would come now
	var got []string
	for _, a := range fails.await(t, before+len(want))[before:] {
		got = append(got, a.request.Header.Get("X-Service-Delivery"))
		checkSignature(t, a)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("after the start, the events %v were delivered, want %v", got, want)
	}
	eventually(t, "the webhook of the deleted stack is forgotten", func() bool {
		_, ok, err := s.Webhook(t.Context(), gone.ID)
		return err == nil && !ok
	})
}

func TestDispatcher_MakesTheRetriesThatAnotherOneLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		fails := &trips{status: 500}
		first := New(standardConfig(s))
		first.transport = fails
		if err := first.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		k := hook(t, s, "https://example.com/hook")
		at := time.Now()
		record(t, s, k, extended())
		time.Sleep(500 * time.Millisecond)
		c := standardConfig(s)
		if c.Left = first.Close(); len(c.Left) != 1 {
			t.Fatalf("it leaves %v", c.Left)
		}
		next := New(c)
		next.transport = fails
		begin(t, next)
		if n := pendingOf(next); n != 1 {
			t.Errorf("%d are pending", n)
		}
		time.Sleep(time.Hour)
		var got []time.Duration
		for _, a := range fails.got() {
			got = append(got, a.at.Sub(at))
		}
		if want := []time.Duration{0, time.Second, 6 * time.Second, 31 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("attempts after %v, want %v", got, want)
		}
		if n := pendingOf(next); n != 0 {
			t.Errorf("%d are pending at the end", n)
		}
	})
}

func TestDispatcher_FiftyReceiversThatHangDelayNobodyElse(t *testing.T) {
	s := openStore(t)
	d := New(config(s))
	begin(t, d)
	release := make(chan struct{})
	var hanging []*receiver
	for range 50 {
		r := receive(t, func(http.ResponseWriter, arrival) { <-release })
		hanging = append(hanging, r)
		k := hook(t, s, r.url)
		var events []stack.Event
		for range 40 {
			events = append(events, extended())
		}
		record(t, s, k, events...)
	}
	defer close(release)
	quick := receive(t, nil)
	k := hook(t, s, quick.url)
	for n := range 100 { // behind the others, none would come before the test's end
		record(t, s, k, extended())
		quick.await(t, n+1)
	}
	for _, r := range hanging {
		r.await(t, 1)
		if n := len(r.got()); n > standard.lane {
			t.Errorf("a receiver that hangs has %d requests, want 1 to %d", n, standard.lane)
		}
	}
}

func TestDispatcher_DropsWhatIsTooMuchAndGoesOn(t *testing.T) {
	s := openStore(t)
	d := New(config(s))
	d.ledger = newLedger(50, 20)
	begin(t, d)
	release := make(chan struct{})
	r := receive(t, func(http.ResponseWriter, arrival) { <-release })
	k := hook(t, s, r.url)
	var events []stack.Event
	for range 100 {
		events = append(events, extended())
	}
	record(t, s, k, events...)
	other := receive(t, nil)
	record(t, s, hook(t, s, other.url), extended())
	other.await(t, 1)
	close(release)
	attempts(t, s, k, 20)
	record(t, s, k, extended())
	attempts(t, s, k, 21)
	if n := len(r.got()); n != 21 {
		t.Errorf("%d of 101 were delivered, want the 20 that may be pending and one after them", n)
	}
}

func TestResend_MakesOneAttemptWithTheSameDelivery(t *testing.T) {
	s := openStore(t)
	d := New(config(s))
	begin(t, d)
	r := receive(t, func(w http.ResponseWriter, _ arrival) { w.WriteHeader(503); io.WriteString(w, "busy") })
	k := hook(t, s, r.url)
	e := record(t, s, k, extended())[0]
	attempts(t, s, k, 4)
	got, err := d.Resend(t.Context(), k.ID, e.ID)
	if err != nil {
		t.Fatal(err)
	}
	checkSigned(t, r.await(t, 5)[4], e)
	want := store.Delivery{
		StackID: k.ID, EventID: e.ID, Type: e.Type, At: got.At, Duration: got.Duration,
		Status: 503, Error: "the receiver answered 503", Words: "busy",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Resend:\n%s", diff)
	}
	last := attempts(t, s, k, 5)[4]
	want.Duration = last.Duration
	if diff := cmp.Diff(want, last); diff != "" {
		t.Errorf("written down:\n%s", diff)
	}
	if time.Sleep(2 * d.cfg.Retries[0]); len(r.got()) != 5 {
		t.Errorf("the receiver got %d attempts, want 5", len(r.got()))
	}
}

func TestResend_GoesBeforeWhatWaits(t *testing.T) {
	s := openStore(t)
	d := New(config(s))
	begin(t, d)
	release := make(chan struct{}, 1000)
	r := receive(t, func(http.ResponseWriter, arrival) { <-release })
	k := hook(t, s, r.url)
	var events []stack.Event
	for range standard.lane + 50 {
		events = append(events, extended())
	}
	record(t, s, k, events...)
	r.await(t, standard.lane)
	done := make(chan error, 1)
	go func() {
		_, err := d.Resend(t.Context(), k.ID, events[0].ID)
		done <- err
	}()
	eventually(t, "it waits in its lane", func() bool { return d.lanes.waitingOf(k.ID) == 51 })
	release <- struct{}{}
	first := strconv.FormatInt(events[0].ID, 10)
	if next := r.await(t, standard.lane+1)[standard.lane]; next.request.Header.Get("X-Service-Delivery") != first {
		t.Errorf("next came event %s, want %s", next.request.Header.Get("X-Service-Delivery"), first)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// waitingOf is how many jobs of a stack wait.
func (l *lanes) waitingOf(stack string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.by[stack].waiting)
}

func TestTest_SendsAnEventThatIsNotRecorded(t *testing.T) {
	s := openStore(t)
	d := New(config(s))
	begin(t, d)
	r := receive(t, nil)
	k := hook(t, s, r.url)
	got, err := d.Test(t.Context(), k.ID)
	if err != nil || got.Status != 200 || got.Type != eventTest || got.EventID >= 0 || got.Error != "" {
		t.Errorf("Test = %+v, %v", got, err)
	}
	a := r.await(t, 1)[0]
	if err := stripe.ValidatePayload(a.body, a.request.Header.Get("X-Service-Signature"), secret); err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(a.body), `"type":"webhook.test"`) || a.request.Header.Get("X-Service-Delivery") != strconv.FormatInt(got.EventID, 10) {
		t.Errorf("sent %s as %s", a.body, a.request.Header.Get("X-Service-Delivery"))
	}
	if events, err := s.Events(t.Context(), k.ID, -1<<60, 10); err != nil || len(events) != 0 {
		t.Errorf("recorded: %v, %v", events, err)
	}
	if found := attempts(t, s, k, 1); len(found) != 1 || found[0].Type != eventTest {
		t.Errorf("written down: %+v", found)
	}
}

func TestByHand_RefusesWhatItCannotSend(t *testing.T) {
	s := openStore(t)
	d := New(config(s))
	begin(t, d)
	r := receive(t, nil)
	with, without, gone := hook(t, s, r.url), hook(t, s, ""), hook(t, s, r.url)
	e := record(t, s, without, extended())[0]
	if _, err := s.Update(t.Context(), gone.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the webhook is forgotten", func() bool { _, ok, _ := s.Webhook(t.Context(), gone.ID); return !ok })
	test := func(id string) func() error {
		return func() error { _, err := d.Test(t.Context(), id); return err }
	}
	resend := func(id string, event int64) func() error {
		return func() error { _, err := d.Resend(t.Context(), id, event); return err }
	}
	for name, c := range map[string]struct {
		call func() error
		want stack.Kind
	}{
		"a test of no webhook":       {test(without.ID), stack.Conflict},
		"a test of a deleted stack":  {test(gone.ID), stack.Conflict},
		"a test of no stack":         {test("stk_000000000000"), stack.Conflict},
		"an event without a webhook": {resend(without.ID, e.ID), stack.Conflict},
		"an event of another stack":  {resend(with.ID, e.ID), stack.NotFound},
		"an event that there is not": {resend(with.ID, 999), stack.NotFound},
		"an id of a test event":      {resend(with.ID, -5), stack.NotFound},
	} {
		if err := c.call(); stack.KindOf(err) != c.want {
			t.Errorf("%s: %v, want kind %d", name, err, c.want)
		}
	}
	if n := len(r.got()); n != 1 {
		t.Errorf("the receiver got %d deliveries, want stack.deleted alone", n)
	}
}

func TestByHand_EndsWithTheCallerAndTheDispatcher(t *testing.T) {
	s := openStore(t)
	c := config(s)
	c.Timeout = 200 * time.Millisecond
	d := New(c)
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := hook(t, s, write("")(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Test(ctx, k.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("Test of a caller that left = %v", err)
	}
	d.Close()
	if _, err := d.Test(t.Context(), k.ID); stack.KindOf(err) != stack.Unavailable {
		t.Errorf("Test of a closed dispatcher = %v", err)
	}
	d.Close()
}

func TestDispatcher_ClosesWithoutHavingStarted(t *testing.T) {
	New(config(openStore(t))).Close()
}
