package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// wantKind checks that err is for the client, of the given kind.
func wantKind(t *testing.T, err error, kind stack.Kind) *stack.Error {
	t.Helper()
	var e *stack.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Fatalf("error %v, want a *stack.Error of kind %d", err, kind)
	}
	return e
}

func newStack(network string) *stack.Stack {
	k := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Network = network
	return k
}

func setStatus(t *testing.T, s *store.Store, id string, status stack.Status) {
	t.Helper()
	_, err := s.Update(t.Context(), id, func(k *stack.Stack) ([]stack.Event, error) {
		k.Status = status
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (on suite) TestReserve_CountsOnFromTheLastNumberThatIsTaken(t *testing.T) {
	s, _ := on.open(t)
	for _, c := range []struct{ last, want int64 }{{7, 8}, {3, 9}, {9, 10}, {20, 21}} {
		if err := s.Reserve(t.Context(), c.last); err != nil {
			t.Fatal(err)
		}
		k := newStack("192.0.2.1")
		if err := s.Create(t.Context(), k, nil); err != nil || k.Seq != c.want {
			t.Errorf("after Reserve(%d) a stack gets %d (%v), want %d", c.last, k.Seq, err, c.want)
		}
	}
}

func (on suite) TestCreate_LetsExactlyTheLimitOfParallelStacksIn(t *testing.T) {
	s, _ := on.open(t)
	const limit = 3
	errs := make([]error, 50)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = s.Create(t.Context(), newStack("192.0.2.1"), nil, store.WithLimit(limit)) })
	}
	all.Wait()
	created := 0
	for _, err := range errs {
		if err == nil {
			created++
			continue
		}
		const want = "3 unclaimed stacks are already running from your network (limit 3); destroy or claim one first"
		if e := wantKind(t, err, stack.TooMany); !strings.HasPrefix(e.Detail, want) {
			t.Errorf("detail %q, want %q", e.Detail, want)
		}
	}
	if stacks, err := s.All(t.Context()); created != limit || len(stacks) != limit || err != nil {
		t.Errorf("%d created, %d stored, %v, want %d", created, len(stacks), err, limit)
	}
}

func (on suite) TestCreate_CountsOnlyUnclaimedRunningStacksOfTheNetwork(t *testing.T) {
	s, _ := on.open(t)
	account, err := s.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("hash")})
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []stack.Status{stack.Failed, stack.Expired, stack.Deleted} {
		setStatus(t, s, create(t, s).ID, status)
	}
	owned := newStack("192.0.2.1")
	owned.Owner = account.ID
	for _, k := range []*stack.Stack{owned, newStack("192.0.2.2")} {
		if err := s.Create(t.Context(), k, nil, store.WithLimit(1)); err != nil {
			t.Fatal(err)
		}
	}
	first := newStack("192.0.2.1")
	if err := s.Create(t.Context(), first, nil, store.WithLimit(1)); err != nil {
		t.Fatalf("the first that counts: %v", err)
	}
	for _, status := range []stack.Status{stack.Building, stack.Live} {
		setStatus(t, s, first.ID, status)
		wantKind(t, s.Create(t.Context(), newStack("192.0.2.1"), nil, store.WithLimit(1)), stack.TooMany)
	}
	second := newStack("192.0.2.1")
	second.Owner = account.ID
	if err := s.Create(t.Context(), second, nil, store.WithLimit(1)); err != nil {
		t.Errorf("an owned stack beyond the limit: %v", err)
	}
	if err := s.Create(t.Context(), newStack("192.0.2.1"), nil); err != nil {
		t.Errorf("a stack without a limit: %v", err)
	}
}

func (on suite) TestCreate_StoresNothingWhenItFails(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	woken, stop := s.Watch("")
	defer stop()
	again := newStack("192.0.2.1")
	again.ID = k.ID
	if err := s.Create(t.Context(), again, []stack.Event{again.Created()}); err == nil {
		t.Fatal("two stacks have the same id")
	}
	if again.Seq != 0 || len(woken) != 0 {
		t.Errorf("Seq %d, woken %d times, want neither", again.Seq, len(woken))
	}
	if events := eventsOf(t, s, k.ID); len(events) != 0 {
		t.Errorf("events %v, want none", events)
	}
}

func (on suite) TestCreate_CountsSeqUpAndNeverBack(t *testing.T) {
	s, db := on.open(t)
	for want := range int64(3) {
		if k := create(t, s); k.Seq != want+1 {
			t.Errorf("Seq = %d, want %d", k.Seq, want+1)
		}
	}
	db.exec(t, "DELETE FROM stacks")
	if k := create(t, db.open(t)); k.Seq != 4 {
		t.Errorf("Seq after the rows were removed = %d, want 4", k.Seq)
	}
}

func (on suite) TestUpdate_OfNoStackIsNotFound(t *testing.T) {
	s, _ := on.open(t)
	deleted := create(t, s).ID
	setStatus(t, s, deleted, stack.Deleted)
	for _, id := range []string{deleted, "stk_000000000000", ""} {
		_, err := s.Update(t.Context(), id, func(*stack.Stack) ([]stack.Event, error) {
			t.Error("fn was called")
			return nil, nil
		})
		wantKind(t, err, stack.NotFound)
		_, err = s.Get(t.Context(), id)
		wantKind(t, err, stack.NotFound)
	}
}

func (on suite) TestUpdate_ChangesNothingWhenFnFails(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	woken, stop := s.Watch(k.ID)
	defer stop()
	cause := errors.New("not now")
	_, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Name = "changed"
		return []stack.Event{{Type: stack.EventLive}}, cause
	})
	if err != cause {
		t.Errorf("error %v, want fn's own", err)
	}
	if diff := cmp.Diff(k, get(t, s, k.ID)); diff != "" {
		t.Errorf("the stack changed:\n%s", diff)
	}
	if events := eventsOf(t, s, k.ID); len(events) != 0 || len(woken) != 0 {
		t.Errorf("events %v, woken %d times, want neither", events, len(woken))
	}
}

func (on suite) TestUpdate_RollsBackWhenAnEventCannotBeStored(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	_, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Name = "changed"
		return []stack.Event{{Type: stack.EventLive}, {Type: stack.EventReady, Data: map[string]any{"no JSON": func() {}}}}, nil
	})
	if err == nil {
		t.Fatal("an event without JSON was stored")
	}
	if got := get(t, s, k.ID); got.Name != k.Name || len(eventsOf(t, s, k.ID)) != 0 {
		t.Errorf("name %q and events %v, want nothing changed", got.Name, eventsOf(t, s, k.ID))
	}
}

func (on suite) TestUpdate_RollsBackWhenFnPanics(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			k.Name = "changed"
			panic("in fn")
		})
	}()
	setStatus(t, s, k.ID, stack.Live) // the connection is free again
	if got := get(t, s, k.ID); got.Name != k.Name {
		t.Errorf("name %q, want it unchanged", got.Name)
	}
}

func (on suite) TestUpdate_RunsParallelCallsOneAfterTheOther(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	const calls = 100
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			_, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
				k.Generation.Number++
				return []stack.Event{stack.ServiceBuilding("web", k.Generation.Number, k.Attempt)}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := get(t, s, k.ID); got.Generation.Number != 1+calls {
		t.Errorf("generation %d, want %d", got.Generation.Number, 1+calls)
	}
	for i, e := range eventsOf(t, s, k.ID) {
		if e.Data["generation"] != float64(i+2) {
			t.Fatalf("event %d is of generation %v, want them in order", i, e.Data["generation"])
		}
	}
}

func (on suite) TestUpdate_IsDoneOrNotWhenItsContextEnds(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	done := make([]bool, 200)
	var all sync.WaitGroup
	for i := range done {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
			defer cancel()
			_, err := s.Update(ctx, k.ID, func(k *stack.Stack) ([]stack.Event, error) {
				k.Generation.Number++
				return []stack.Event{{Type: stack.EventLive}}, nil
			})
			done[i] = err == nil
		})
	}
	all.Wait()
	want := 0
	for _, ok := range done {
		if ok {
			want++
		}
	}
	if got := get(t, s, k.ID).Generation.Number - 1; got != want || len(eventsOf(t, s, k.ID)) != want {
		t.Errorf("%d updates and %d events are stored, %d were reported done", got, len(eventsOf(t, s, k.ID)), want)
	}
	setStatus(t, s, k.ID, stack.Live)
}

func (on suite) TestLists_LeaveDeletedStacksOut(t *testing.T) {
	s, _ := on.open(t)
	account, err := s.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("hash")})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 4 {
		k := newStack("192.0.2.1")
		k.Owner = account.ID
		if err := s.Create(t.Context(), k, nil); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, k.ID)
	}
	unclaimed := create(t, s).ID
	setStatus(t, s, ids[1], stack.Deleted)
	setStatus(t, s, ids[2], stack.Expired)
	wantIDs(t, "All")(s.All(t.Context()))(ids[0], ids[2], ids[3], unclaimed)
	wantIDs(t, "Owned")(s.Owned(t.Context(), account.ID))(ids[3], ids[2], ids[0])
	wantIDs(t, "Owned by nobody known")(s.Owned(t.Context(), "acc_none"))()
	wantIDs(t, "Owned by nobody")(s.Owned(t.Context(), ""))()
}

func wantIDs(t *testing.T, list string) func([]*stack.Stack, error) func(...string) {
	return func(stacks []*stack.Stack, err error) func(...string) {
		return func(want ...string) {
			t.Helper()
			var got []string
			for _, k := range stacks {
				got = append(got, k.ID)
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil || stacks == nil {
				t.Errorf("%s: %v (-want +got):\n%s", list, err, diff)
			}
		}
	}
}

func (on suite) TestFind_KnowsTheHashesThatAStackHasNow(t *testing.T) {
	s, _ := on.open(t)
	k := newStack("192.0.2.1")
	k.ManageTokenHash, k.ClaimCodeHash = []byte("token"), []byte("code")
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	create(t, s) // has neither
	find := func(of func(context.Context, []byte) (string, bool, error), hash []byte) string {
		id, ok, err := of(t.Context(), hash)
		if err != nil || ok != (id != "") {
			t.Fatalf("%q, %v, %v", id, ok, err)
		}
		return id
	}
	if a, b := find(s.FindManageToken, []byte("token")), find(s.FindClaimCode, []byte("code")); a != k.ID || b != k.ID {
		t.Errorf("found %q and %q, want %q", a, b, k.ID)
	}
	for _, hash := range [][]byte{nil, {}, []byte("other")} {
		if a, b := find(s.FindManageToken, hash), find(s.FindClaimCode, hash); a != "" || b != "" {
			t.Errorf("%q found %q and %q", hash, a, b)
		}
	}
	if find(s.FindManageToken, []byte("code")) != "" || find(s.FindClaimCode, []byte("token")) != "" {
		t.Error("a code is taken for a token")
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.ClaimCodeHash = nil
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if find(s.FindClaimCode, []byte("code")) != "" {
		t.Error("a used code is still found")
	}
	setStatus(t, s, k.ID, stack.Deleted)
	if find(s.FindManageToken, []byte("token")) != "" {
		t.Error("the token of a deleted stack is still found")
	}
}

func (on suite) TestCreate_RefusesAHashThatAnotherStackHas(t *testing.T) {
	s, _ := on.open(t)
	for _, set := range []func(*stack.Stack){
		func(k *stack.Stack) { k.ManageTokenHash = []byte("same") },
		func(k *stack.Stack) { k.ClaimCodeHash = []byte("same") },
	} {
		first, second := newStack("192.0.2.1"), newStack("192.0.2.1")
		set(first)
		set(second)
		if err := s.Create(t.Context(), first, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Create(t.Context(), second, nil); err == nil {
			t.Error("two stacks have the same hash")
		}
	}
}

func (on suite) TestDeleted_KnowsDeletedStacksFromLiveAndUnknownOnes(t *testing.T) {
	s, _ := on.open(t)
	kept, gone := create(t, s), create(t, s)
	if _, err := s.Update(t.Context(), gone.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{kept.ID: false, gone.ID: true, "stk_0123456789ab": false} {
		if deleted, err := s.Deleted(t.Context(), id); deleted != want || err != nil {
			t.Errorf("Deleted(%s) = %v, %v, want %v", id, deleted, err, want)
		}
	}
}
