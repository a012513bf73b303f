package store_test

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func (on suite) TestAccountByKey_FindsTheAccountOfTheKey(t *testing.T) {
	s, db := on.open(t)
	ana, err := s.CreateAccount(t.Context(), "Ana@Example.com", "", store.Key{Hash: []byte("ana's")})
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^acc_[0-9a-f]{12}$`).MatchString(ana.ID) || ana.Email != "Ana@Example.com" {
		t.Errorf("account %+v", ana)
	}
	if _, err := s.CreateAccount(t.Context(), "bo@example.com", "", store.Key{Hash: []byte("bo's")}); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := db.open(t).AccountByKey(t.Context(), []byte("ana's")); got != ana || !ok || err != nil {
		t.Errorf("AccountByKey = %+v, %v, %v, want %+v", got, ok, err, ana)
	}
	for _, hash := range [][]byte{nil, {}, []byte("nobody's")} {
		if got, ok, err := s.AccountByKey(t.Context(), hash); got != (store.Account{}) || ok || err != nil {
			t.Errorf("AccountByKey(%q) = %+v, %v, %v, want none", hash, got, ok, err)
		}
	}
}

func (on suite) TestCreateAccount_TakesAnEmailOnceInAnyCase(t *testing.T) {
	s, _ := on.open(t)
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i, email := range []string{"ana@example.com", "ANA@Example.com"} {
		both.Go(func() { _, errs[i] = s.CreateAccount(t.Context(), email, "", store.Key{Hash: []byte(email)}) })
	}
	both.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("errors %v, want exactly one", errs)
	}
	for _, err := range errs {
		if err != nil {
			wantKind(t, err, stack.Conflict)
		}
	}
}

func (on suite) TestCreate_NeedsAnOwnerThatExists(t *testing.T) {
	s, _ := on.open(t)
	k := newStack("192.0.2.1")
	k.Owner = "acc_none"
	wantKind(t, s.Create(t.Context(), k, nil), stack.Unauthenticated)
	unclaimed := create(t, s)
	_, err := s.Update(t.Context(), unclaimed.ID, func(k *stack.Stack) ([]stack.Event, error) {
		return k.Claim("acc_none", "ana@example.com", stack.Now())
	})
	wantKind(t, err, stack.Unauthenticated)
	if got := get(t, s, unclaimed.ID); got.Claimed() {
		t.Errorf("the stack belongs to %s", got.Owner)
	}
}

// ownedBy stores a stack of an account.
func ownedBy(t *testing.T, s *store.Store, account store.Account) *stack.Stack {
	t.Helper()
	k := newStack("192.0.2.1")
	k.Owner = account.ID
	if err := s.Create(t.Context(), k, []stack.Event{k.Created()}); err != nil {
		t.Fatal(err)
	}
	return k
}

// whatever confirms the deletion of any stacks.
func whatever([]*stack.Stack) error { return nil }

func (on suite) TestDeleteAccount_TakesStacksSessionsAndKeyWithIt(t *testing.T) {
	s, _ := on.open(t)
	account := func(email string) store.Account {
		a, err := s.CreateAccount(t.Context(), email, "", store.Key{Hash: []byte(email)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateSession(t.Context(), a, store.SignIn{TokenHash: []byte(email), ExpiresAt: stack.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		return a
	}
	ana, bob := account("ana@example.com"), account("bob@example.com")
	first, second, gone, bobs := ownedBy(t, s, ana), ownedBy(t, s, ana), ownedBy(t, s, ana), ownedBy(t, s, bob)
	setStatus(t, s, gone.ID, stack.Deleted)
	woken, stop := s.Watch(second.ID)
	defer stop()

	deleted, err := s.DeleteAccount(t.Context(), ana.ID, whatever)
	if err != nil || len(deleted) != 2 || deleted[0].ID != first.ID || deleted[1].ID != second.ID {
		t.Fatalf("deleted %v, %v, want the two stacks", deleted, err)
	}
	if len(woken) != 1 {
		t.Error("who watches a stack of the account is not woken")
	}
	var at []time.Time
	for _, k := range []*stack.Stack{first, second} {
		_, err := s.Get(t.Context(), k.ID)
		wantKind(t, err, stack.NotFound)
		events, err := s.Events(t.Context(), k.ID, 0, 10)
		if err != nil || len(events) != 2 || events[1].Type != stack.EventDeleted {
			t.Fatalf("events %v, %v, want the last to be stack.deleted", events, err)
		}
		at = append(at, events[1].CreatedAt)
	}
	if !at[0].Equal(at[1]) {
		t.Errorf("the stacks were deleted at %v and %v, want one time", at[0], at[1])
	}
	if _, ok, err := s.AccountByKey(t.Context(), []byte("ana@example.com")); ok || err != nil {
		t.Errorf("the key works, %v", err)
	}
	if _, ok, err := s.FindSession(t.Context(), []byte("ana@example.com")); ok || err != nil {
		t.Errorf("the session works, %v", err)
	}
	if _, ok, err := s.FindSession(t.Context(), []byte("bob@example.com")); !ok || err != nil {
		t.Errorf("another account's session is gone, %v", err)
	}
	get(t, s, bobs.ID)
	_, err = s.DeleteAccount(t.Context(), ana.ID, whatever)
	wantKind(t, err, stack.NotFound)
	if _, err := s.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("another")}); err != nil {
		t.Errorf("the address is taken: %v", err)
	}
}

// The node of a stack may be lost: another one has to deliver the last event.
func (on suite) TestDeleteAccount_LetsTheCheckGiveStacksToAnotherNode(t *testing.T) {
	s, _ := on.open(t)
	ana, err := s.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("ana")})
	if err != nil {
		t.Fatal(err)
	}
	var stacks []*stack.Stack
	for _, node := range []string{"n1", "n2"} {
		k := hookedOn(t, s, node)
		_, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { k.Owner = ana.ID; return nil, nil })
		if err != nil {
			t.Fatal(err)
		}
		stacks = append(stacks, k)
	}
	deleted, err := s.DeleteAccount(t.Context(), ana.ID, func(all []*stack.Stack) error {
		all[0].Node = "n2"
		return nil
	})
	if err != nil || len(deleted) != 2 || deleted[0].Node != "n2" || deleted[0].Epoch != 2 || deleted[1].Epoch != 1 {
		t.Fatalf("deleted %+v, %v", deleted, err)
	}
	for node, want := range map[string][]string{"n1": nil, "n2": {stacks[0].ID, stacks[1].ID}} {
		refs, _, _, err := s.ToDeliver(t.Context(), node, 0, 100)
		var got []string
		for _, ref := range refs {
			if e, _, err := s.Event(t.Context(), ref.ID); err == nil && e.Type == stack.EventDeleted {
				got = append(got, ref.StackID)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s delivers stack.deleted of %q, %v", node, got, err)
		}
	}
}

func (on suite) TestCreateAccount_TellsOtherLettersThanASCIIApart(t *testing.T) {
	s, _ := on.open(t)
	for _, email := range []string{"Änn@example.com", "änn@example.com"} {
		want := newAccount(t, s, email)
		if got, _, ok, err := s.AccountByEmail(t.Context(), strings.Replace(email, "nn", "NN", 1)); got != want || !ok || err != nil {
			t.Errorf("%s: %+v, %v, %v", email, got, ok, err)
		}
	}
	_, err := s.CreateAccount(t.Context(), "äNN@example.com", "", store.Key{Hash: []byte("another")})
	wantKind(t, err, stack.Conflict)
}

func (on suite) TestQuota_LetsExactlyOneOfParallelCreatesAndClaimsIn(t *testing.T) {
	s, _ := on.open(t)
	ana, err := s.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("ana's")})
	if err != nil {
		t.Fatal(err)
	}
	own := func(k *stack.Stack) ([]stack.Event, error) { k.Owner = ana.ID; return nil, nil }
	quota := store.WithQuota(stack.Quota{Stacks: 3})
	errs := make([]error, 20)
	var all sync.WaitGroup
	for i := range errs {
		k := newStack("192.0.2.1")
		if i%2 == 0 {
			k.Owner = ana.ID
			all.Go(func() { errs[i] = s.Create(t.Context(), k, nil, quota) })
			continue
		}
		unclaimed := create(t, s)
		all.Go(func() { _, errs[i] = s.Update(t.Context(), unclaimed.ID, own, quota) })
	}
	all.Wait()
	taken := 0
	for _, err := range errs {
		if err == nil {
			taken++
			continue
		}
		wantKind(t, err, stack.TooMany)
	}
	owned, err := s.Owned(t.Context(), ana.ID)
	if err != nil || taken != 3 || len(owned) != 3 {
		t.Fatalf("%d got in, and the account has %d stacks, %v; want 3", taken, len(owned), err)
	}
	// A change of a stack that the account has counts nowhere, and a deleted one makes room.
	if _, err := s.Update(t.Context(), owned[0].ID, own, store.WithQuota(stack.Quota{Stacks: 1})); err != nil {
		t.Error(err)
	}
	if _, err := s.Update(t.Context(), owned[0].ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	k := newStack("192.0.2.1")
	k.Owner = ana.ID
	if err := s.Create(t.Context(), k, nil, quota); err != nil {
		t.Error(err)
	}
}

func (on suite) TestQuota_CountsTheMemoryOfTheServices(t *testing.T) {
	s, _ := on.open(t)
	ana, err := s.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("ana's")})
	if err != nil {
		t.Fatal(err)
	}
	owned := func(runtimes ...string) *stack.Stack {
		k := newStack("192.0.2.1")
		k.Owner, k.Generation.Services = ana.ID, nil
		for _, name := range runtimes {
			k.Generation.Services = append(k.Generation.Services, stack.Service{Spec: stack.Spec{Name: name, Runtime: stack.Runtime{Name: name}}})
		}
		return k
	}
	quota := store.WithQuota(stack.Quota{Memory: 300, Service: 100})
	for _, k := range []*stack.Stack{owned("node", "postgres"), owned(stack.Static)} {
		if err := s.Create(t.Context(), k, nil, quota); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, s.Create(t.Context(), owned("go", "redis"), nil, quota), stack.TooMany)
	if err := s.Create(t.Context(), owned("go"), nil, quota); err != nil {
		t.Error(err)
	}
}

func (on suite) TestQuota_CountsWhatStacksTakeOnTheDisk(t *testing.T) {
	s, db := on.open(t)
	ana, err := s.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("ana's")})
	if err != nil {
		t.Fatal(err)
	}
	mine := newStack("192.0.2.1")
	mine.Owner = ana.ID
	if err := s.Create(t.Context(), mine, nil); err != nil {
		t.Fatal(err)
	}
	unclaimed := create(t, s)
	measure := func(k *stack.Stack, bytes int64) {
		t.Helper()
		if err := s.SetDisk(t.Context(), k.ID, stack.Disk{At: stack.Now(), Data: map[string]int64{"web": bytes}, Images: 10}, ""); err != nil {
			t.Fatal(err)
		}
	}
	measure(mine, 80)
	measure(unclaimed, 20)
	own := func(k *stack.Stack) ([]stack.Event, error) { k.Owner = ana.ID; return nil, nil }
	_, err = s.Update(t.Context(), unclaimed.ID, own, store.WithQuota(stack.Quota{Disk: 119}))
	wantKind(t, err, stack.TooMany)
	more := newStack("192.0.2.1")
	more.Owner = ana.ID
	wantKind(t, s.Create(t.Context(), more, nil, store.WithQuota(stack.Quota{Disk: 90})), stack.TooMany)
	if err := s.Create(t.Context(), more, nil, store.WithQuota(stack.Quota{Disk: 91})); err != nil {
		t.Error(err)
	}
	if _, err = s.Update(t.Context(), unclaimed.ID, own, store.WithQuota(stack.Quota{Disk: 120})); err != nil {
		t.Error(err)
	}

	// What was measured is there after a restart.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	has, err := db.open(t).Holdings(t.Context(), ana.ID)
	if used := (stack.Quota{}).Sum(has); err != nil || used != (stack.Used{Stacks: 3, Disk: 120}) {
		t.Errorf("the account has %+v, %v", used, err)
	}
}
