package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/store/postgrestest"
)

// Logs of programs, which errors and webhooks' answers quote, may hold one.
func TestPostgres_ReplacesTheByteZeroInText(t *testing.T) {
	s := newPostgres(t).open(t)
	k := newStack("192.0.2.1")
	k.Error = "a\x00b"
	k.Generation.Services[0].Spec.Start = "c\x00d"
	k.Secrets["web/KEY"] = "e\x00f"
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	got := get(t, s, k.ID)
	if got.Error != "a\uFFFDb" || got.Generation.Services[0].Spec.Start != "c\x00d" || got.Secrets["web/KEY"] != "e\x00f" {
		t.Errorf("kept as %q, %q and %q", got.Error, got.Generation.Services[0].Spec.Start, got.Secrets)
	}
	if err := s.AddDeliveries(t.Context(), []store.Delivery{delivery(k.ID, "\x00\x00")}); err != nil {
		t.Fatal(err)
	}
	if kept := deliveries(t, s, k.ID, 1); kept[0].Words != "\uFFFD\uFFFD" {
		t.Errorf("the words are kept as %q", kept[0].Words)
	}
}

func TestOpen_SeveralAtOnceMakeOneDatabase(t *testing.T) {
	db := newPostgres(t).(postgres)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			s, err := store.Open(t.Context(), db.options())
			if err != nil {
				t.Error(err)
				return
			}
			if mark, err := s.WebhookMark(t.Context(), ""); err != nil || mark != 0 {
				t.Errorf("mark %d, %v", mark, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var marks int
	if err := db.row(t, "SELECT count(*) FROM webhook_mark").Scan(&marks); err != nil || marks != 1 {
		t.Errorf("%d marks, %v", marks, err)
	}
}

// Ids are taken before the commit: without an order of the writers, a reader goes past ids
// that become visible later.
func TestEvents_OfManyWritersAreMissedByNoReaderThatFollows(t *testing.T) {
	db := newPostgres(t)
	const writers, each = 16, 40
	follower := db.open(t)
	written := make(chan struct{})
	var seen sync.WaitGroup
	seen.Go(func() {
		cursor, got := int64(0), 0
		for done := false; !done; {
			select {
			case <-written:
				done = true // this is the last look
			default:
			}
			refs, last, _, err := follower.ToDeliver(t.Context(), "", cursor, 10_000)
			if err != nil {
				t.Error(err)
				return
			}
			cursor, got = last, got+len(refs)
		}
		if got != writers*each*2 {
			t.Errorf("%d of %d events were seen", got, writers*each*2)
		}
	})
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			s := db.open(t)
			k := hooked(t, s)
			for range each {
				if _, err := s.Update(t.Context(), k.ID, func(*stack.Stack) ([]stack.Event, error) {
					return []stack.Event{{Type: stack.EventLive}, {Type: stack.EventReady}}, nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	close(written)
	seen.Wait()
}

// A server that is frozen in the middle of a transaction holds the lock of the writers.
func TestUpdate_OfAFrozenServerDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	db := newPostgres(t)
	frozen, other := db.open(t), db.open(t)
	k := create(t, frozen)
	locked, thaw := make(chan struct{}), make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		_, err := frozen.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			close(locked)
			<-thaw
			k.Name = "late"
			return nil, nil
		})
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("the frozen server's own write: %v", err)
		}
	})
	<-locked
	began := time.Now()
	setStatus(t, other, k.ID, stack.Live)
	t.Logf("the other server wrote after %s", time.Since(began))
	close(thaw)
	writing.Wait()
	if got := get(t, frozen, k.ID); got.Status != stack.Live || got.Name == "late" {
		t.Errorf("the row has status %s and name %s", got.Status, got.Name)
	}
}

// follow makes a store follow others until the test ends.
func follow(t *testing.T, s *store.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { s.FollowOthers(ctx) })
	t.Cleanup(func() {
		cancel()
		following.Wait()
	})
}

func TestFollowOthers_HearsACommitAtOnceAndItsOwnOnlyOnce(t *testing.T) {
	db := newPostgres(t)
	s, other := db.open(t), db.open(t)
	k, quiet := create(t, s), create(t, s)
	woken, stop := s.Watch(k.ID)
	defer stop()
	silent, stopSilent := s.Watch(quiet.ID)
	defer stopSilent()
	follow(t, s)
	<-woken // it looks around when it begins
	<-silent
	began := time.Now()
	setStatus(t, other, k.ID, stack.Live)
	<-woken
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s to hear of the commit", took)
	}
	setStatus(t, s, k.ID, stack.Failed)
	<-woken
	setStatus(t, other, quiet.ID, stack.Live)
	<-silent // and with it whatever was notified before
	if len(woken) != 0 {
		t.Error("woken again by its own commit")
	}
}

func TestStore_IsAskedForNothingWhileItsServerIsFrozen(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	db := postgres(server.Database(t))
	s := db.open(t)
	k := create(t, s)
	server.Freeze()
	defer server.Thaw()
	began := time.Now()
	var calls sync.WaitGroup
	for range 10 {
		calls.Go(func() {
			_, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return nil, nil })
			wantAway(t, err, began)
		})
		calls.Go(func() {
			_, err := s.Get(t.Context(), k.ID)
			wantAway(t, err, began)
		})
	}
	calls.Wait()
	t.Logf("the last call failed after %s", time.Since(began))
	again := time.Now()
	wantAway(t, s.Create(t.Context(), newStack("192.0.2.1"), nil), again)
	t.Logf("the next one after %s", time.Since(again))
	again = time.Now()
	_, err := store.Open(t.Context(), db.options())
	wantAway(t, err, again)
	server.Thaw()
	setStatus(t, s, k.ID, stack.Live)
}

// wantAway checks that a call said in time that the database is not available.
func wantAway(t *testing.T, err error, began time.Time) {
	t.Helper()
	if !errors.Is(err, store.ErrUnavailable) || time.Since(began) > 30*time.Second { // 15 s, and what a busy machine takes
		t.Errorf("%v after %s, want ErrUnavailable within 15s", err, time.Since(began))
	}
	if strings.Contains(err.Error(), postgrestest.Password) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error %q has a password or several lines", err)
	}
}

func TestStore_KeepsWhatWasCommittedWhenItsServerIsKilled(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	db := postgres(server.Database(t))
	s := db.open(t)
	k := create(t, s)
	woken, stop := s.Watch(k.ID)
	defer stop()
	follow(t, s)
	<-woken
	var ids []string
	for range 3 {
		began := time.Now()
		for time.Since(began) < 200*time.Millisecond {
			ids = append(ids, create(t, s, stack.Event{Type: stack.EventCreated}).ID)
		}
		server.Kill(t)
		began = time.Now()
		wantAway(t, s.Create(t.Context(), newStack("192.0.2.1"), nil), began)
		server.Run(t)
		<-woken // it looks around once it listens again
	}
	for _, id := range ids {
		if get(t, s, id); len(eventsOf(t, s, id)) != 1 {
			t.Errorf("%s has the events %v", id, eventsOf(t, s, id))
		}
	}
}

func TestOpen_NamesTheDatabaseWithoutItsPassword(t *testing.T) {
	address := string(newPostgres(t).(postgres))
	for name, wrong := range map[string]string{
		"password": strings.Replace(address, postgrestest.Password, postgrestest.Password+"s", 1),
		"database": address[:strings.LastIndex(address, "/")] + "/none?sslmode=disable",
		"port":     "postgres://berth:" + postgrestest.Password + "@127.0.0.1:1/berth?sslmode=disable",
		"address":  "postgres://berth:" + postgrestest.Password + "%zz@127.0.0.1/berth",
		"setting":  "postgres://berth@127.0.0.1/berth?password=" + postgrestest.Password + "&sslmode=never",
	} {
		_, err := store.Open(t.Context(), postgres(wrong).options())
		if err == nil || strings.Contains(err.Error(), postgrestest.Password) || strings.Contains(err.Error(), "\n") {
			t.Errorf("wrong %s: %v, want one line without a password", name, err)
		}
		t.Log(err)
	}
}

func TestCheckPostgres_WantsAProofOfAnotherMachine(t *testing.T) {
	for address, want := range map[string]bool{
		"postgres://berth@127.0.0.1/berth":                                        true,
		"postgres://berth@[::1]/berth":                                            true,
		"postgres://berth@localhost:5433/berth":                                   true,
		"postgres:///berth?host=/run/postgresql":                                  true,
		"postgres://berth@db.example.com/berth?sslmode=verify-full":               true,
		"postgres://berth@db.example.com/berth?sslmode=disable":                   true,
		"postgres://berth@db.example.com/berth":                                   false,
		"postgres://berth@192.0.2.1/berth?sslmode=require":                        false,
		"postgres://berth@127.0.0.1,192.0.2.1/berth?sslmode=prefer":               false,
		"postgres://berth@db.example.com:port/berth":                              false,
		"postgres://berth:" + postgrestest.Password + "@db.example.com/b%zz":      false,
		"postgres://berth@db.example.com/berth?password=" + postgrestest.Password: false,
	} {
		err := store.CheckPostgres(address)
		if (err == nil) != want || err != nil && strings.Contains(err.Error(), postgrestest.Password) {
			t.Errorf("%s: %v, want it taken: %v", address, err, want)
		}
	}
}
