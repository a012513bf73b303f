package store_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func (on suite) TestBans_EndByThemselvesOrWhenRemoved(t *testing.T) {
	s, _ := on.open(t)
	now := stack.Now()
	ever := store.Ban{Network: netip.MustParsePrefix("2001:db8::/32"), CreatedAt: now}
	hour := store.Ban{Network: netip.MustParsePrefix("203.0.113.0/24"), CreatedAt: now, EndsAt: now.Add(time.Hour)}
	over := store.Ban{Network: netip.MustParsePrefix("198.51.100.7/32"), CreatedAt: now, EndsAt: now.Add(-time.Second)}
	longer := hour
	longer.EndsAt = now.Add(2 * time.Hour)
	for _, b := range []store.Ban{ever, hour, over, longer} {
		if err := s.SetBan(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	want := func(bans ...store.Ban) {
		t.Helper()
		got, err := s.Bans(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(bans, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Error(diff)
		}
	}
	want(ever, longer)
	for _, there := range []bool{true, false} {
		if removed, err := s.RemoveBan(t.Context(), ever.Network); removed != there || err != nil {
			t.Errorf("removed %v, %v", removed, err)
		}
	}
	want(longer)
}

func (on suite) TestAudit_KeepsTheOrder(t *testing.T) {
	s, _ := on.open(t)
	var all []store.AuditEntry
	for i, result := range []string{"ok", "it failed", "ok"} {
		e := store.AuditEntry{At: stack.Now(), UID: i, Command: "stacks list", Result: "begun"}
		id, err := s.Audit(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.AuditEntries(t.Context(), 1); err != nil || len(got) != 1 || !cmp.Equal(got[0], e) {
			t.Errorf("while the command is carried out, the audit has %+v, %v", got, err)
		}
		if err := s.EndAudit(t.Context(), id, result); err != nil {
			t.Fatal(err)
		}
		e.Result = result
		all = append(all, e)
	}
	got, err := s.AuditEntries(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all[1:], got); diff != "" {
		t.Error(diff)
	}
}

func (on suite) TestAccounts_AreDisabledForAReason(t *testing.T) {
	s, _ := on.open(t)
	bo := newAccount(t, s, "bo@example.com")
	signIn(t, s, bo, "token", time.Hour)
	if err := s.DisableAccount(t.Context(), bo.ID, "spam"); err != nil {
		t.Fatal(err)
	}
	session, ok, err := s.FindSession(t.Context(), []byte("token"))
	if err != nil || !ok || stack.KindOf(session.Account.CheckEnabled()) != stack.Forbidden {
		t.Errorf("the session is %+v, %v, %v", session, ok, err)
	}
	all, err := s.Accounts(t.Context())
	if err != nil || len(all) != 1 || all[0].Account.DisabledFor != "spam" || all[0].CreatedAt.IsZero() || all[0].Stacks != 0 {
		t.Errorf("the accounts are %+v, %v", all, err)
	}
	if err := s.DisableAccount(t.Context(), bo.ID, ""); err != nil {
		t.Fatal(err)
	}
	session, ok, err = s.FindSession(t.Context(), []byte("token"))
	if err != nil || !ok || session.Account.CheckEnabled() != nil {
		t.Errorf("the session is %+v, %v, %v", session, ok, err)
	}
	if err := s.DisableAccount(t.Context(), "acc_nobody", "x"); stack.KindOf(err) != stack.NotFound {
		t.Error(err)
	}
}

// Whoever holds what an account had begun is refused once the account is disabled.
func (on suite) TestAccounts_ThatAreDisabledGetNothingMore(t *testing.T) {
	s, _ := on.open(t)
	bo := newAccount(t, s, "bo@example.com")
	owned := newStack("owned")
	owned.Owner = bo.ID
	if err := s.Create(t.Context(), owned, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.DisableAccount(t.Context(), bo.ID, "spam"); err != nil {
		t.Fatal(err)
	}
	next := func(k *stack.Stack) ([]stack.Event, error) { k.Attempt++; return nil, nil }
	other := newStack("other")
	other.Owner = bo.ID
	_, session := s.CreateSession(t.Context(), bo, store.SignIn{TokenHash: []byte("token"), ExpiresAt: stack.Now().Add(time.Hour)})
	_, deploy := s.Update(t.Context(), owned.ID, next)
	for what, err := range map[string]error{
		"a session": session, "a deploy": deploy, "a create": s.Create(t.Context(), other, nil), "a check": s.CheckAccount(t.Context(), bo.ID),
	} {
		if stack.KindOf(err) != stack.Forbidden || !strings.Contains(err.Error(), "spam") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Update(t.Context(), owned.ID, func(k *stack.Stack) ([]stack.Event, error) { k.Name = "renamed"; return nil, nil }); err != nil {
		t.Errorf("a change that is none of the account's: %v", err)
	}
	if err := s.DisableAccount(t.Context(), bo.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), owned.ID, next); err != nil {
		t.Errorf("after it is enabled: %v", err)
	}
}
