package store_test

import (
	"net/netip"
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
		e := store.AuditEntry{At: stack.Now(), UID: i, Command: "stacks list", Result: result}
		if err := s.Audit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
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
