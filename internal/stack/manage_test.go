package stack_test

import (
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

func TestExtend_ReplacesTheExpiryWithinItsBounds(t *testing.T) {
	later := now.Add(23 * time.Hour) // an hour before the latest expiry
	tests := []struct {
		ttl   time.Duration
		now   time.Time
		error string // a part of it; "" for none
	}{
		{15 * time.Minute, now, ""},
		{15*time.Minute - time.Second, now, "at least 15m"},
		{0, now, "at least 15m"},
		{24 * time.Hour, now, ""},
		{24*time.Hour + time.Second, now, "latest possible expiry is 2026-01-03T03:04:05Z"},
		{time.Hour, later, ""},
		{time.Hour + time.Second, later, "latest possible expiry is 2026-01-03T03:04:05Z"},
		{15 * time.Minute, now.Add(24 * time.Hour), "latest possible expiry is"},
	}
	for _, tt := range tests {
		s := live(t)
		s.ExpiresAt = tt.now.Add(time.Minute)
		events, err := s.Extend(tt.ttl, limits, tt.now)
		if tt.error != "" {
			wantKind(t, err, stack.Unprocessable, tt.error)
			if !s.ExpiresAt.Equal(tt.now.Add(time.Minute)) {
				t.Errorf("%v: a refused extension moved the expiry", tt)
			}
			continue
		}
		if err != nil || !s.ExpiresAt.Equal(tt.now.Add(tt.ttl)) || events[0].Data["expires_at"] != stack.Timestamp(s.ExpiresAt) {
			t.Errorf("%v: expires at %v, %v, %v", tt, s.ExpiresAt, events, err)
		}
	}
}

func TestExtend_MayShorten(t *testing.T) {
	s := live(t)
	must(t)(s.Extend(15*time.Minute, limits, now))
	if !s.ExpiresAt.Equal(now.Add(15 * time.Minute)) {
		t.Errorf("expires at %v", s.ExpiresAt)
	}
}

func TestExtend_TellsTheStateBeforeTheBounds(t *testing.T) {
	for name, text := range map[string]string{
		"live, claimed": "claimed", "restoring": "claimed", "expired": "claim it", "failed, time run out": "claim it",
	} {
		_, err := states[name](t).Extend(time.Second, limits, now)
		wantKind(t, err, stack.Conflict, text)
	}
}

func TestRevokeAgent_EndsTheTokenOnce(t *testing.T) {
	s := claimed(t)
	s.Layers = map[string]stack.Layer{s.ServiceNames()[0]: {Image: "layer"}}
	events := must(t)(s.RevokeAgent())
	if len(events) != 1 || events[0].Data != nil || s.ManageTokenHash != nil || string(s.RevokedTokenHash) != "token" || s.Status != stack.Live {
		t.Errorf("events %v, stack %+v", events, s)
	}
	if s.CachesDropped != 1 || s.Layers != nil {
		t.Error("the build caches or the layers are kept")
	}
	_, err := s.RevokeAgent()
	wantKind(t, err, stack.Conflict, "already been revoked")
	_, err = live(t).RevokeAgent()
	wantKind(t, err, stack.Conflict, "claim it first")
}
