package store_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// wire is the network between a store and its server, which can break at a COMMIT.
type wire struct {
	server   string
	address  postgres // through the wire
	cut      atomic.Bool
	answered bool        // whether it breaks after the server has answered, or before it is asked
	down     atomic.Bool // whether it stays broken
}

// newWire begins to forward connections to the server of a database.
func newWire(t *testing.T, db postgres, answered bool) *wire {
	t.Helper()
	u, err := url.Parse(string(db))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := &wire{server: u.Host, answered: answered}
	u.Host = l.Addr().String()
	w.address = postgres(u.String())
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go w.forward(client)
		}
	}()
	return w
}

// forward connects a client to the server until one of them, or the wire, ends that.
func (w *wire) forward(client net.Conn) {
	defer client.Close()
	if w.down.Load() {
		return
	}
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		return
	}
	defer server.Close()
	var cutting atomic.Bool
	go func() {
		defer server.Close()
		w.copy(server, client, func(sent []byte) bool {
			if !bytes.Contains(sent, []byte("COMMIT\x00")) || !w.cut.CompareAndSwap(true, false) {
				return true
			}
			cutting.Store(true)
			return w.answered
		})
	}()
	w.copy(client, server, func([]byte) bool { return !cutting.Load() })
}

// copy forwards what passes lets through, until it does not.
func (w *wire) copy(to io.Writer, from io.Reader, passes func([]byte) bool) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil || !passes(buffer[:n]) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A change whose connection breaks at the commit has happened or has not, and the store says
// which.
func TestStore_KnowsWhatBecameOfACommitThatWasNotAnswered(t *testing.T) {
	for name, answered := range map[string]bool{"committed": true, "never asked for": false} {
		t.Run(name, func(t *testing.T) {
			db := newPostgres(t).(postgres)
			w := newWire(t, db, answered)
			s := w.address.open(t)
			k := create(t, s)
			w.cut.Store(true)
			began := time.Now()
			got, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
				k.Name = "changed"
				return []stack.Event{{Type: stack.EventLive}}, nil
			})
			if w.cut.Load() {
				t.Fatal("the connection did not break")
			}
			switch {
			case answered && (err != nil || got.Name != "changed"):
				t.Errorf("%v, %v", got, err)
			case !answered:
				wantAway(t, err, began)
			}
			if changed := get(t, s, k.ID).Name == "changed"; changed != answered || len(eventsOf(t, s, k.ID)) > 1 {
				t.Errorf("changed: %v, with %v", changed, eventsOf(t, s, k.ID))
			}
			setStatus(t, s, k.ID, stack.Live) // on another connection
		})
	}
}

// While the server cannot be asked, the error says that the outcome is not known, in time.
func TestStore_SaysThatItDoesNotKnowTheOutcomeOfACommit(t *testing.T) {
	t.Parallel()
	w := newWire(t, newPostgres(t).(postgres), true)
	s := w.address.open(t)
	k := create(t, s)
	w.cut.Store(true)
	began := time.Now()
	_, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		w.down.Store(true)
		k.Name = "changed"
		return nil, nil
	})
	wantAway(t, err, began)
	if err != nil && !strings.Contains(err.Error(), "is not known") {
		t.Errorf("%v", err)
	}
	w.down.Store(false)
	if got := get(t, s, k.ID); got.Name != "changed" {
		t.Errorf("read %+v", got)
	}
}

// A change whose outcome is not known is not made again if it took effect.
func TestStore_MakesAChangeOnceWhateverWasAnswered(t *testing.T) {
	for name, answered := range map[string]bool{"committed": true, "never asked for": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newPostgres(t).(postgres)
			w := newWire(t, db, answered)
			s, other := w.address.open(t), db.open(t)
			k := create(t, s)
			w.cut.Store(true)
			var tries store.Tries
			made := 0
			change := func() (*stack.Stack, error) {
				return s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
					made++
					w.down.Store(made == 1)
					k.Name += "changed"
					return []stack.Event{{Type: stack.EventLive}}, nil
				}, store.OneOf(&tries))
			}
			for range 2 { // the second cannot ask either
				if _, err := change(); !errors.Is(err, store.ErrInDoubt) {
					t.Fatalf("%v", err)
				}
			}
			if made != 1 {
				t.Fatalf("it was made %d times", made)
			}
			if _, err := other.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
				k.Error = "another's"
				return nil, nil
			}); err != nil {
				t.Fatal(err)
			}
			w.down.Store(false)
			got, err := change()
			if err != nil || got.Error != "another's" || !strings.HasSuffix(got.Name, "changed") || strings.Count(got.Name, "changed") != 1 {
				t.Errorf("%+v, %v", got, err)
			}
			if again := made - 1; again != map[bool]int{true: 0, false: 1}[answered] {
				t.Errorf("it was made again %d times", again)
			}
			if events := eventsOf(t, s, k.ID); len(events) != 1 {
				t.Errorf("%v", events)
			}
			// Once another node owns the stack, an earlier try is none of this one's business.
			tries.InDoubt = "3" // of long ago, and committed
			_, err = s.Update(t.Context(), k.ID, nil, store.OneOf(&tries), store.ByOwner("another", 7))
			if !errors.Is(err, store.ErrNotOwner) {
				t.Errorf("%v", err)
			}
			// A transaction that the database does not know did not take effect.
			tries.InDoubt = "999999999999"
			if _, err = change(); err != nil || tries.InDoubt != "" {
				t.Errorf("%v, %+v", err, tries)
			}
		})
	}
}
