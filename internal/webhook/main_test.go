package webhook

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// TestMain fails when a test leaves a goroutine behind: of an attempt, a loop
// or a connection.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for an expected event; a passing test never waits
// that long.
const patience = time.Minute

// loopback is the address on which the tests' receivers listen.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// pool is the stacks' network pool of the tests.
var pool = netip.MustParsePrefix("10.213.0.0/16")

// due is a retry queue in memory.
type due struct {
	mu      sync.Mutex
	members map[string]time.Time
}

func (q *due) Add(_ context.Context, member string, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.members == nil {
		q.members = map[string]time.Time{}
	}
	q.members[member] = at
}

func (q *due) Take(_ context.Context, now time.Time) (taken []string, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for member, at := range q.members {
		switch {
		case !at.After(now):
			taken = append(taken, member)
			delete(q.members, member)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return taken, next
}

func (q *due) Waiting() map[string]time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := map[string]time.Time{}
	maps.Copy(waiting, q.members)
	return waiting
}

func openStore(t testing.TB) *store.Store {
	t.Helper()
	key, err := auth.LoadKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Options{
		Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(key), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// config delivers to the loopback, with short waits between attempts.
func config(s *store.Store) Config {
	return Config{
		Store: s, Queue: &due{}, Allow: loopback, Pool: pool, Log: slog.New(slog.DiscardHandler),
		Timeout: patience,
		Retries: []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond},
	}
}

// begin starts a dispatcher until the test ends.
func begin(t testing.TB, d *Dispatcher) *Dispatcher {
	t.Helper()
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

const secret = "whsec_0123456789abcdefghijklmnopqrstuv"

// hook stores a live stack with a webhook, and no event.
func hook(t testing.TB, s *store.Store, url string) *stack.Stack {
	t.Helper()
	k := stack.New("hooked", nil, stack.Now())
	k.Status, k.Deploying = stack.Live, 0
	k.Webhook, k.WebhookSecret = url, secret
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	return k
}

// record records events of a stack and returns them.
func record(t testing.TB, s *store.Store, k *stack.Stack, events ...stack.Event) []stack.Event {
	t.Helper()
	if _, err := s.Update(t.Context(), k.ID, func(*stack.Stack) ([]stack.Event, error) { return events, nil }); err != nil {
		t.Fatal(err)
	}
	return events
}

// pendingOf is how many deliveries are pending.
func pendingOf(d *Dispatcher) int {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	return d.ledger.total
}

func extended() stack.Event {
	return stack.Event{Type: stack.EventExtended, Data: map[string]any{"expires_at": 1.5}}
}

// eventually waits until try returns true.
func eventually(t *testing.T, what string, try func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !try(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %s: %s", patience, what)
		}
	}
}

// attempts waits until so many attempts of a stack are written down, and
// returns all of them, oldest first.
func attempts(t *testing.T, s *store.Store, k *stack.Stack, n int) []store.Delivery {
	t.Helper()
	var found []store.Delivery
	eventually(t, "the attempts are made", func() bool {
		var err error
		if found, err = s.Deliveries(t.Context(), k.ID, 100); err != nil {
			t.Fatal(err)
		}
		return len(found) >= n
	})
	slices.Reverse(found)
	return found
}

// arrival is a request that a receiver got.
type arrival struct {
	request *http.Request
	body    []byte
	at      time.Time
}

// receiver is an HTTP server on the loopback interface that records its requests.
type receiver struct {
	url string

	mu       sync.Mutex
	arrivals []arrival
}

// receive starts a receiver until the test ends. Each request is kept and then
// answered; the handlers end before the receiver does.
func receive(t *testing.T, answer func(http.ResponseWriter, arrival)) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{url: "http://" + l.Addr().String() + "/hook"}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a := arrival{request: req, body: readAll(req), at: time.Now()}
		r.mu.Lock()
		r.arrivals = append(r.arrivals, a)
		r.mu.Unlock()
		if answer != nil {
			answer(w, a)
		}
	})}
	go server.Serve(l) //nolint:errcheck // ends with Close
	t.Cleanup(func() { server.Close() })
	return r
}

func (r *receiver) got() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrivals)
}

// await waits until n requests came and returns them.
func (r *receiver) await(t *testing.T, n int) []arrival {
	t.Helper()
	eventually(t, "the receiver gets its deliveries", func() bool { return len(r.got()) >= n })
	return r.got()
}

func readAll(req *http.Request) []byte {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return body
}
