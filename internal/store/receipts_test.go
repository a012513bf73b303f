package store_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// keep stores a stack with a receipt of the given age.
func keep(t *testing.T, s *store.Store, key string, age time.Duration) *stack.Stack {
	t.Helper()
	k := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
	r := &store.Receipt{Key: key, Digest: []byte{1}, Source: "5eed", Address: "192.0.2.1", OneTime: []byte(`{"manage_token":"hidden"}`), CreatedAt: stack.Now().Add(-age)}
	if err := s.Create(t.Context(), k, nil, store.WithReceipt(r)); err != nil {
		t.Fatal(err)
	}
	return k
}

func receipt(t *testing.T, s *store.Store, key string) (store.Receipt, bool) {
	t.Helper()
	r, ok, err := s.FindReceipt(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return r, ok
}

func (on suite) TestReceipt_IsFoundAfterARestart(t *testing.T) {
	s, db := on.open(t)
	k := keep(t, s, "a", 0)
	if err := s.AnswerReceipt(t.Context(), "a", "{}"); err != nil {
		t.Fatal(err)
	}
	r, ok := receipt(t, db.open(t), "a")
	if !ok || r.StackID != k.ID || r.Answer != "{}" || r.Source != "5eed" || r.Address != "192.0.2.1" || string(r.OneTime) != `{"manage_token":"hidden"}` {
		t.Errorf("the receipt is %+v, %v", r, ok)
	}
	if strings.Contains(db.dump(t), "hidden") {
		t.Error("a one-time field is readable in the file")
	}
}

func (on suite) TestReceipt_LosesItsSecretsAndThenEnds(t *testing.T) {
	s, db := on.open(t)
	keep(t, s, "young", 9*time.Minute)
	keep(t, s, "old", 11*time.Minute)
	keep(t, s, "over", 25*time.Hour)
	check := func() {
		t.Helper()
		if r, ok := receipt(t, s, "young"); !ok || r.OneTime == nil {
			t.Errorf("the young receipt is %+v, %v", r, ok)
		}
		if r, ok := receipt(t, s, "old"); !ok || r.OneTime != nil {
			t.Errorf("the old receipt is %+v, %v", r, ok)
		}
		if r, ok := receipt(t, s, "over"); ok {
			t.Errorf("the receipt that is over is %+v", r)
		}
	}
	check()
	if err := s.SweepReceipts(t.Context()); err != nil {
		t.Fatal(err)
	}
	check()
	var rows, sealed int
	err := db.row(t, "SELECT count(*), count(one_time_sealed) FROM receipts").Scan(&rows, &sealed)
	if err != nil || rows != 2 || sealed != 1 {
		t.Errorf("after the sweep there are %d receipts, %d with secrets: %v", rows, sealed, err)
	}
}

func (on suite) TestReceipt_IsNotKeptOfAChangeThatFailed(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	r := &store.Receipt{Key: "a", Digest: []byte{1}, CreatedAt: stack.Now()}
	refused := stack.NewError(stack.Conflict, "no")
	_, err := s.Update(t.Context(), k.ID, func(*stack.Stack) ([]stack.Event, error) { return nil, refused }, store.WithReceipt(r))
	if err != error(refused) {
		t.Errorf("the error is %v", err)
	}
	if _, ok := receipt(t, s, "a"); ok {
		t.Error("a refused change left its receipt")
	}
}

func (on suite) TestReceipt_GoesWithTheAccountOfItsStack(t *testing.T) {
	s, _ := on.open(t)
	ana, bo := newAccount(t, s, "ana@example.com"), newAccount(t, s, "bo@example.com")
	for key, owner := range map[string]store.Account{"ana's": ana, "ana's, deleted": ana, "bo's": bo} {
		k := keep(t, s, key, 0)
		if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			k.Owner = owner.ID
			if key == "ana's, deleted" {
				return k.Delete(stack.Now())
			}
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.DeleteAccount(t.Context(), ana.ID, whatever); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"ana's": false, "ana's, deleted": false, "bo's": true} {
		if _, ok := receipt(t, s, key); ok != want {
			t.Errorf("the receipt of %s stack is there: %v, want %v", key, ok, want)
		}
	}
}

func (on suite) TestReceipt_DroppedIsForgotten(t *testing.T) {
	s, _ := on.open(t)
	keep(t, s, "a", 0)
	r, _ := receipt(t, s, "a")
	for _, tt := range []struct {
		createdAt time.Time
		there     bool
	}{{r.CreatedAt.Add(time.Microsecond), true}, {r.CreatedAt, false}} { // the first is another request's
		if err := s.DropReceipt(t.Context(), "a", tt.createdAt); err != nil {
			t.Fatal(err)
		}
		if _, ok := receipt(t, s, "a"); ok != tt.there {
			t.Errorf("it is there: %v, want %v", ok, tt.there)
		}
	}
}

func (on suite) TestReceipt_LetsOneOfTwoNodesMakeTheStack(t *testing.T) {
	s, db := on.open(t)
	nodes := []*store.Store{s, db.open(t)}
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			k := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
			errs[i] = nodes[i%2].Create(t.Context(), k, nil, store.WithReceipt(&store.Receipt{Key: "a", Digest: []byte{1}, CreatedAt: stack.Now()}))
		})
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		switch {
		case err == nil:
			made++
		case stack.KindOf(err) != stack.Conflict:
			t.Error(err)
		}
	}
	all, err := s.All(t.Context())
	if err != nil || len(all) != 1 || made != 1 {
		t.Errorf("%d requests with one key were accepted, and there are %d stacks: %v", made, len(all), err)
	}
	if r, ok := receipt(t, s, "a"); !ok || r.StackID != all[0].ID {
		t.Errorf("the receipt is %+v, %v", r, ok)
	}
}

func (on suite) TestCounts_LeaveDeletedStacksOut(t *testing.T) {
	s, _ := on.open(t)
	create(t, s)
	create(t, s)
	gone := create(t, s)
	if _, err := s.Update(t.Context(), gone.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	counts, err := s.Counts(t.Context())
	if err != nil || len(counts) != 1 || counts[stack.Building] != 2 {
		t.Errorf("the counts are %v, %v", counts, err)
	}
}
