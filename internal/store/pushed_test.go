package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

func (on suite) TestDataKey_IsSealedAndGoesWithTheStack(t *testing.T) {
	s, db := on.open(t)
	key := []byte("0123456789abcdef0123456789abcdef")
	kept, gone := create(t, s), create(t, s)
	for _, k := range []*stack.Stack{kept, gone} {
		if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			k.DataKey, k.Pushed = key, true
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if k := get(t, s, kept.ID); !slices.Equal(k.DataKey, key) || !k.Pushed {
		t.Errorf("key = %q, pushed %v", k.DataKey, k.Pushed)
	}
	if strings.Contains(db.dump(t), string(key)) {
		t.Error("the database shows the key")
	}
	if _, err := s.Update(t.Context(), gone.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	var sealed []byte
	if err := db.row(t, "SELECT data_key_sealed FROM stacks WHERE id = ?", gone.ID).Scan(&sealed); err != nil || sealed != nil {
		t.Errorf("a deleted stack has a key %x, %v", sealed, err)
	}
	for _, want := range [][]string{{gone.ID}, nil} {
		ids, err := s.DeletedPushed(t.Context())
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("DeletedPushed = %q, %v, want %q", ids, err, want)
		}
		for _, id := range []string{gone.ID, kept.ID} {
			if err := s.ForgetPushed(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !get(t, s, kept.ID).Pushed {
		t.Error("a stack that is there was forgotten")
	}
	fresh := create(t, s)
	for _, id := range []string{gone.ID, fresh.ID} {
		if err := s.RememberPushed(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := s.DeletedPushed(t.Context()); err != nil || !slices.Equal(ids, []string{gone.ID}) {
		t.Errorf("DeletedPushed = %q, %v once it is remembered", ids, err)
	}
	if get(t, s, fresh.ID).Pushed {
		t.Error("a stack that is not deleted counts as pushed")
	}
}

func (on suite) TestDeletedElsewhere_AreStacksThatWentToAnotherNodeLately(t *testing.T) {
	s, _ := on.open(t)
	begun := stack.Now()
	own, kept, gone := createOn(t, s, "n1"), createOn(t, s, "n1"), createOn(t, s, "n1")
	expected := createOn(t, s, "n1")
	if err := s.Expect(t.Context(), expected.ID, "n2"); err != nil {
		t.Fatal(err)
	}
	for _, k := range []*stack.Stack{own, kept, gone, expected} {
		if _, err := s.Update(t.Context(), k.ID, func(now *stack.Stack) ([]stack.Event, error) {
			if k == kept || k == gone {
				now.Node, now.Epoch = "n2", now.Epoch+1
			}
			if k == kept {
				return nil, nil
			}
			return now.Delete(stack.Now())
		}); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := s.DeletedElsewhere(t.Context(), begun); err != nil || !slices.Equal(ids, []string{gone.ID}) {
		t.Errorf("DeletedElsewhere = %q, %v, want %s", ids, err, gone.ID)
	}
	if ids, err := s.DeletedElsewhere(t.Context(), stack.Now().Add(time.Minute)); err != nil || len(ids) > 0 {
		t.Errorf("DeletedElsewhere = %q, %v since later", ids, err)
	}
}
