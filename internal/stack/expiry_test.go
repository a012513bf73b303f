package stack_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

func TestEvents_HaveTheTimeThatTheirChangeWasGiven(t *testing.T) {
	at := now.Add(30 * time.Minute)
	over := expired(t)
	for _, events := range [][]stack.Event{
		must(t)(live(t).Extend(time.Hour, limits, at)),
		must(t)(live(t).Claim("acc_1", "ana@example.com", at)),
		must(t)(live(t).Delete(at)),
	} {
		if !events[0].CreatedAt.Equal(at) {
			t.Errorf("%s is of %v, want %v", events[0].Type, events[0].CreatedAt, at)
		}
	}
	if events := must(t)(over.Retained(over.RetainedUntil)); !events[0].CreatedAt.Equal(over.RetainedUntil) {
		t.Errorf("%s is of %v, want the end of the retention, %v", events[0].Type, events[0].CreatedAt, over.RetainedUntil)
	}
}

func TestNotice_IsGivenOnceAndAgainAfterAnExtension(t *testing.T) {
	s := live(t)
	text, err := json.Marshal(must(t)(s.Notice())[0])
	want := `"data":{"expires_at":1767326645.0006,"message":"Ask your human to claim this stack, or extend the TTL."}`
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("event %s, %v, want %s", text, err, want)
	}
	_, err = s.Notice()
	wantKind(t, err, stack.Conflict, "notice")
	must(t)(s.Extend(time.Hour, limits, now))
	must(t)(s.Notice())
}

func TestNext_IsTheNoticeThenTheExpiryThenTheDeletion(t *testing.T) {
	s := live(t)
	next := func(want stack.Trigger, wantAt time.Time) {
		t.Helper()
		if got, at := s.Next(limits, now); got != want || !at.Equal(wantAt) {
			t.Errorf("next %q at %v, want %q at %v", got, at, want, wantAt)
		}
	}
	next(stack.TriggerNotice, now.Add(55*time.Minute))
	must(t)(s.Notice())
	next(stack.TriggerExpire, now.Add(time.Hour))
	must(t)(s.Extend(2*time.Hour, limits, now))
	next(stack.TriggerNotice, now.Add(115*time.Minute))
	s.ExpiresAt = now
	next(stack.TriggerExpire, now)
	must(t)(s.Expire(urls, limits, now))
	next(stack.TriggerRetained, now.Add(limits.Retention))
	must(t)(s.Claim("acc_1", "ana@example.com", now))
	next("", time.Time{})
}

func TestExpire_StopsAndRetains(t *testing.T) {
	s := redeploying(t)
	at := now.Add(time.Hour)
	events := must(t)(s.Expire(urls, limits, at))
	if events[0].Type != stack.EventDeployFailed || events[0].Data["generation"] != 2 || !strings.Contains(s.DeployError, "before generation 2 was live") {
		t.Errorf("events %v, deploy error %q", events, s.DeployError)
	}
	text, err := json.Marshal(events[1])
	want := `"data":{"claim_url":"http://localhost:8080/claim","retained_until":1767931445.0006}`
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("event %s, %v, want %s", text, err, want)
	}
	if !s.ExpiredAt.Equal(at) || !s.RetainedUntil.Equal(at.Add(limits.Retention)) || s.Deploying != 0 || s.Generation.Services[1].Status != stack.Stopped {
		t.Errorf("stack %+v", s)
	}
}

func TestExpire_NeverBeforeTheTime(t *testing.T) {
	s := live(t)
	_, err := s.Expire(urls, limits, s.ExpiresAt.Add(-time.Microsecond))
	wantKind(t, err, stack.Conflict, "not run out")
	must(t)(s.Expire(urls, limits, s.ExpiresAt))
}

func TestRetained_NeverBeforeItsTime(t *testing.T) {
	s := expired(t)
	_, err := s.Retained(s.RetainedUntil.Add(-time.Microsecond))
	wantKind(t, err, stack.Conflict, "still retained")
	must(t)(s.Retained(s.RetainedUntil))
	if s.ClaimCodeHash != nil {
		t.Error("a deleted stack can still be claimed")
	}
}

func TestClaim_MovesTheStackIntoTheAccount(t *testing.T) {
	for name := range map[string]bool{"building": true, "live": true, "live, redeploying": true, "failed": true, "expired": true} {
		s := states[name](t)
		events := must(t)(s.Claim("acc_1", "ana@example.com", now.Add(time.Minute)))
		if s.Owner != "acc_1" || s.ClaimCodeHash == nil || !s.ExpiresAt.IsZero() || !s.ExpiredAt.IsZero() || !s.RetainedUntil.IsZero() {
			t.Errorf("%s: stack %+v", name, s)
		}
		if events[0].Data["by"] != "ana@example.com" {
			t.Errorf("%s: data %v", name, events[0].Data)
		}
		if s.Restoring() != (name == "expired") {
			t.Errorf("%s: restoring %v", name, s.Restoring())
		}
		_, err := s.Claim("acc_2", "bo@example.com", now)
		wantKind(t, err, stack.NotFound, "has already been used")
	}
}

func TestClaim_OfAnExpiredStackThatWasNeverBuiltKeepsTheReason(t *testing.T) {
	s := failed(t)
	must(t)(s.Expire(urls, limits, now.Add(time.Hour)))
	must(t)(s.Claim("acc_1", "ana@example.com", now.Add(time.Hour)))
	if s.Error != "it broke" {
		t.Errorf("error %q", s.Error)
	}
}

func TestClaim_OfAnExpiredFailedStackWaitsForTheRestore(t *testing.T) {
	s := failed(t)
	for i := range s.Generation.Services {
		s.Generation.Services[i].Image = "berth/x:g1"
	}
	must(t)(s.Expire(urls, limits, now.Add(time.Hour)))
	if s.Error == "" {
		t.Error("an expired stack no longer says why it failed")
	}
	must(t)(s.Claim("acc_1", "ana@example.com", now.Add(time.Hour)))
	if s.Error != "" || s.Generation.Services[0].Status != stack.Pending {
		t.Errorf("stack %+v", s)
	}
	must(t)(s.Restored(urls))
	if s.Error != "" || s.Status != stack.Live || s.Generation.Services[0].Status != stack.Running {
		t.Errorf("stack %+v", s)
	}
}

// Its processes are about to stop, or have stopped.
func TestClaim_AfterTheTimeRanOutIsThatOfAnExpiredStack(t *testing.T) {
	for state, want := range map[string]string{
		"building":           "stack.claimed",
		"building, was live": "stack.claimed",
		"live":               "stack.claimed",
		"live, redeploying":  "stack.deploy_failed stack.claimed",
		"failed":             "stack.claimed",
	} {
		s := states[state](t)
		got := types(must(t)(s.Claim("acc_1", "ana@example.com", s.ExpiresAt)))
		if got != want || !s.Restoring() || !s.Claimed() || !s.ExpiresAt.IsZero() || s.Generation.Services[0].Status != stack.Pending {
			t.Errorf("%s: %s, stack %+v", state, got, s)
		}
	}
}

func TestClaim_OnlyByTheEmailItWasMadeFor(t *testing.T) {
	for email, allowed := range map[string]bool{"ana@example.com": true, "ANA@Example.COM": true, "bo@example.com": false, "": false} {
		s := live(t)
		s.ClaimEmail = "Ana@example.com"
		_, err := s.Claim("acc_1", email, now)
		if allowed && err != nil {
			t.Errorf("%q: %v", email, err)
		}
		if !allowed {
			wantKind(t, err, stack.Forbidden, "email")
			if s.Claimed() || s.ClaimCodeHash == nil || strings.Contains(err.Error(), "ana@") {
				t.Errorf("%q: stack %+v, %v", email, s, err)
			}
		}
	}
}

func TestClaim_EndsWithTheRetention(t *testing.T) {
	s := expired(t)
	_, err := s.Claim("acc_1", "ana@example.com", s.RetainedUntil)
	wantKind(t, err, stack.NotFound, "retention")
	must(t)(s.Claim("acc_1", "ana@example.com", s.RetainedUntil.Add(-time.Microsecond)))
}

func TestNotify_KeepsTheSecretAndTheLastURL(t *testing.T) {
	s := live(t)
	for _, step := range [][4]string{ // webhook, secret, and what the stack then has
		{"", "whsec_0", "", ""},
		{"https://a.example/1", "whsec_1", "https://a.example/1", "whsec_1"},
		{"https://a.example/2", "whsec_2", "https://a.example/2", "whsec_1"},
		{"", "whsec_3", "https://a.example/2", "whsec_1"},
	} {
		s.Notify(step[0], step[1])
		if s.Webhook != step[2] || s.WebhookSecret != step[3] {
			t.Errorf("after %v: %q, %q", step, s.Webhook, s.WebhookSecret)
		}
	}
}
