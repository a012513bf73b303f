package store_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// owned stores a live stack of an account, which is made if it is "".
func owned(t testing.TB, s *store.Store, owner string) *stack.Stack {
	t.Helper()
	if owner == "" {
		account, err := s.CreateAccount(t.Context(), fmt.Sprintf("ana%d@example.com", time.Now().UnixNano()), "", store.Key{Hash: []byte(time.Now().String())})
		if err != nil {
			t.Fatal(err)
		}
		owner = account.ID
	}
	k := stack.New("shop", []stack.Spec{{Name: "web"}, {Name: "api"}}, stack.Now())
	k.Owner, k.Status = owner, stack.Live
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	return k
}

func addDomain(t testing.TB, s *store.Store, k *stack.Stack, host string) stack.Domain {
	t.Helper()
	d, added, err := s.AddDomain(t.Context(), stack.NewDomain(k.ID, host, "web", stack.Now()))
	if err != nil || !added {
		t.Fatal(added, err)
	}
	return d
}

// activate makes a domain active, in place of another that is.
func activate(t testing.TB, s *store.Store, k *stack.Stack, host string) {
	t.Helper()
	if _, err := s.UpdateDomain(t.Context(), k.ID, host, func(d, holder *stack.Domain) error {
		if d.Status = stack.DomainActive; holder != nil {
			holder.Status, holder.Primary = stack.DomainLost, false
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (on suite) TestDomains_KeepEveryField(t *testing.T) {
	s, db := on.open(t)
	k := owned(t, s, "")
	added := addDomain(t, s, k, "www.example.com")
	if got, err := s.Domain(t.Context(), k.ID, "www.example.com"); err != nil || got != added {
		t.Errorf("%+v, %v, want %+v", got, err, added)
	}
	want := stack.Domain{}
	fill(reflect.ValueOf(&want).Elem(), new(int))
	want.StackID, want.Owner, want.Host = k.ID, k.Owner, "www.example.com"
	got, err := s.UpdateDomain(t.Context(), k.ID, want.Host, func(d, holder *stack.Domain) error {
		if holder != nil {
			t.Error("there is a holder")
		}
		*d = want
		return nil
	})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, returned:\n%s", err, diff)
	}
	read, err := db.open(t).Domain(t.Context(), k.ID, want.Host)
	if diff := cmp.Diff(want, read); diff != "" || err != nil {
		t.Errorf("%v, read back:\n%s", err, diff)
	}
}

func (on suite) TestDomains_AnErrorChangesNothing(t *testing.T) {
	s, _ := on.open(t)
	k := owned(t, s, "")
	before := addDomain(t, s, k, "www.example.com")
	refused := stack.NewError(stack.Conflict, "no")
	if _, err := s.UpdateDomain(t.Context(), k.ID, before.Host, func(d, _ *stack.Domain) error {
		d.Status = stack.DomainActive
		return refused
	}); err != refused {
		t.Error(err)
	}
	if after, err := s.Domain(t.Context(), k.ID, before.Host); err != nil || after != before {
		t.Errorf("%+v, %v", after, err)
	}
	for _, err := range []error{
		func() error { _, err := s.Domain(t.Context(), k.ID, "other.example.com"); return err }(),
		s.RemoveDomain(t.Context(), k.ID, "other.example.com"),
	} {
		if stack.KindOf(err) != stack.NotFound {
			t.Error(err)
		}
	}
}

func (on suite) TestDomains_OneStackHasAHostActive(t *testing.T) {
	s, _ := on.open(t)
	first, second := owned(t, s, ""), owned(t, s, "")
	const host = "www.example.com"
	addDomain(t, s, first, host)
	addDomain(t, s, second, host)
	activate(t, s, first, host)
	if _, err := s.UpdateDomain(t.Context(), second.ID, host, func(d, holder *stack.Domain) error {
		if holder == nil || holder.StackID != first.ID || holder.Owner != first.Owner {
			t.Errorf("the holder is %+v", holder)
		}
		d.Status = stack.DomainActive
		return nil
	}); err == nil {
		t.Error("both are active")
	}
	if _, err := s.UpdateDomain(t.Context(), first.ID, host, func(d, _ *stack.Domain) error { d.Primary = true; return nil }); err != nil {
		t.Fatal(err)
	}
	woken, stop := s.Watch(first.ID)
	defer stop()
	activate(t, s, second, host)
	if len(woken) == 0 {
		t.Error("the loser was not woken")
	}
	if d, err := s.ActiveDomain(t.Context(), host); err != nil || d == nil || d.StackID != second.ID {
		t.Errorf("%+v, %v", d, err)
	}
	if all, err := s.ActiveDomains(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if k := get(t, s, first.ID); k.PrimaryHosts != nil {
		t.Errorf("the lost one is primary: %v", k.PrimaryHosts)
	}
}

func (on suite) TestDomains_AreLimitedForStackAndAccount(t *testing.T) {
	s, _ := on.open(t)
	k := owned(t, s, "")
	next := 0
	add := func(k *stack.Stack) error {
		next++
		_, _, err := s.AddDomain(t.Context(), stack.NewDomain(k.ID, fmt.Sprintf("a%d.example.com", next), "web", stack.Now()))
		return err
	}
	for i := range 5 {
		if i > 0 {
			k = owned(t, s, k.Owner)
		}
		for range stack.MaxDomains {
			if err := add(k); err != nil {
				t.Fatal(err)
			}
		}
		if err := add(k); stack.KindOf(err) != stack.Conflict {
			t.Errorf("the 21st: %v", err)
		}
	}
	if err := add(owned(t, s, k.Owner)); stack.KindOf(err) != stack.Conflict || err.Error() != "the account has 100 domains, which is as many as it may have; remove one first" {
		t.Errorf("the 101st of the account: %v", err)
	}
	d, added, err := s.AddDomain(t.Context(), stack.NewDomain(k.ID, "a81.example.com", "api", stack.Now()))
	if err == nil && added {
		t.Errorf("a full stack got %+v", d)
	}
	if err := add(owned(t, s, "")); err != nil {
		t.Error(err)
	}
}

func (on suite) TestDomains_AreTakenForOneCheck(t *testing.T) {
	s, db := on.open(t)
	k := owned(t, s, "")
	now := stack.Now()
	for _, host := range []string{"a.example.com", "b.example.com", "c.example.com"} {
		addDomain(t, s, k, host)
	}
	if _, err := s.UpdateDomain(t.Context(), k.ID, "c.example.com", func(d, _ *stack.Domain) error { d.NextCheck = time.Time{}; return nil }); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	taken := map[string]int{}
	for range 3 {
		for _, store := range []*store.Store{s, db.open(t)} {
			due, err := store.TakeDueDomains(t.Context(), now, time.Minute, 1, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range due {
				taken[d.Host]++
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"a.example.com": 1, "b.example.com": 1}, taken); diff != "" {
		t.Error(diff)
	}
	if due, err := s.TakeDueDomains(t.Context(), now.Add(time.Minute), time.Minute, 10, 10, nil); err != nil || len(due) != 2 {
		t.Errorf("after a server died: %+v, %v", due, err)
	}
}

func (on suite) TestDomains_OfEachAccountAreTakenInTurn(t *testing.T) {
	s, _ := on.open(t)
	ana, bob := owned(t, s, ""), owned(t, s, "")
	for i := range 6 {
		addDomain(t, s, ana, fmt.Sprintf("a%d.example.com", i))
	}
	for i := range 2 {
		addDomain(t, s, bob, fmt.Sprintf("b%d.example.com", i))
	}
	now := stack.Now().Add(time.Second)
	for i, tt := range []struct {
		most, each int
		busy       []string
		ana, bob   int
	}{
		{2, 4, nil, 1, 1},
		{10, 4, []string{ana.Owner, bob.Owner}, 0, 0},
		{10, 4, []string{bob.Owner}, 4, 0},
		{10, 4, []string{ana.Owner}, 0, 1},
		{10, 4, nil, 1, 0},
		{10, 4, nil, 0, 0},
	} {
		due, err := s.TakeDueDomains(t.Context(), now, time.Minute, tt.most, tt.each, tt.busy)
		if err != nil {
			t.Fatal(err)
		}
		taken := map[string]int{}
		for _, d := range due {
			taken[d.Owner]++
		}
		if taken[ana.Owner] != tt.ana || taken[bob.Owner] != tt.bob {
			t.Errorf("step %d took %d and %d, want %d and %d", i, taken[ana.Owner], taken[bob.Owner], tt.ana, tt.bob)
		}
	}
}

func (on suite) TestDomains_OrdersAreDueForActiveOnes(t *testing.T) {
	s, _ := on.open(t)
	k := owned(t, s, "")
	now := stack.Now()
	for _, host := range []string{"a.example.com", "b.example.com"} {
		addDomain(t, s, k, host)
		if _, err := s.UpdateDomain(t.Context(), k.ID, host, func(d, _ *stack.Domain) error { d.NextOrder = now; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	activate(t, s, k, "b.example.com")
	if due, err := s.DueOrders(t.Context(), now); err != nil || len(due) != 1 || due[0].Host != "b.example.com" {
		t.Errorf("%+v, %v", due, err)
	}
	if due, err := s.DueOrders(t.Context(), now.Add(-time.Second)); err != nil || len(due) != 0 {
		t.Errorf("%+v, %v", due, err)
	}
}

func (on suite) TestDomains_GoWithTheirStack(t *testing.T) {
	s, _ := on.open(t)
	k := owned(t, s, "")
	addDomain(t, s, k, "www.example.com")
	activate(t, s, k, "www.example.com")
	pending := owned(t, s, "")
	addDomain(t, s, pending, "www.example.com")
	addDomain(t, s, k, "lost.example.com")
	if _, err := s.UpdateDomain(t.Context(), k.ID, "lost.example.com", func(d, _ *stack.Domain) error { d.Status = stack.DomainLost; return nil }); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"www.example.com", "lost.example.com"} {
		if proved, err := s.ProvedDomain(t.Context(), host); !proved || err != nil {
			t.Errorf("%s is not proved, %v", host, err)
		}
	}
	if _, err := s.DeleteAccount(t.Context(), k.Owner, func([]*stack.Stack) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"www.example.com", "lost.example.com"} {
		if proved, err := s.ProvedDomain(t.Context(), host); proved || err != nil {
			t.Errorf("%s is still proved, %v", host, err)
		}
	}
	if _, err := s.Domain(t.Context(), pending.ID, "www.example.com"); err != nil {
		t.Errorf("that of another stack has gone, too: %v", err)
	}
}

func (on suite) TestDomains_AreHandedDownWithinTheirAccount(t *testing.T) {
	const host = "www.example.com"
	for name, remove := range map[string]func(s *store.Store, k *stack.Stack) error{
		"the domain is removed": func(s *store.Store, k *stack.Stack) error { return s.RemoveDomain(t.Context(), k.ID, host) },
		"the stack is deleted": func(s *store.Store, k *stack.Stack) error {
			_, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) })
			return err
		},
	} {
		for _, status := range []stack.DomainStatus{stack.DomainActive, stack.DomainLost, stack.DomainPending} {
			s, _ := on.open(t)
			first := owned(t, s, "")
			second, stranger := owned(t, s, first.Owner), owned(t, s, "")
			for _, k := range []*stack.Stack{first, second, stranger} {
				addDomain(t, s, k, host)
				addDomain(t, s, k, "other.example.com")
			}
			later := stack.Now().Add(time.Hour)
			for _, k := range []*stack.Stack{second, stranger} {
				if _, err := s.UpdateDomain(t.Context(), k.ID, host, func(d, _ *stack.Domain) error { d.NextCheck = later; return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.UpdateDomain(t.Context(), first.ID, host, func(d, _ *stack.Domain) error { d.Status = status; return nil }); err != nil {
				t.Fatal(err)
			}
			if err := remove(s, first); err != nil {
				t.Fatal(err)
			}
			handed := status == stack.DomainActive
			if proved, err := s.ProvedDomain(t.Context(), host); proved != handed || err != nil {
				t.Errorf("%s, %s: proved: %t, %v", name, status, proved, err)
			}
			if d, err := s.Domain(t.Context(), second.ID, host); err != nil || d.NextCheck.Before(later) != handed || d.NextOrder.IsZero() == handed {
				t.Errorf("%s, %s: that of the account is %+v, %v", name, status, d, err)
			}
			if d, err := s.Domain(t.Context(), stranger.ID, host); err != nil || !d.NextCheck.Equal(later) || !d.NextOrder.IsZero() {
				t.Errorf("%s, %s: that of a stranger is %+v, %v", name, status, d, err)
			}
			if d, err := s.Domain(t.Context(), second.ID, "other.example.com"); err != nil || !d.NextOrder.IsZero() {
				t.Errorf("%s, %s: another host is %+v, %v", name, status, d, err)
			}
		}
	}
}
