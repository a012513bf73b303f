package stack

import (
	"fmt"
	"time"
)

// Notice records that the expiry is near, once until the next extension.
func (s *Stack) Notice() ([]Event, error) {
	if s.Claimed() || s.Noticed {
		return nil, NewError(Conflict, "the stack has no expiry to give notice of, or notice was given")
	}
	if err := s.apply(TriggerNotice); err != nil {
		return nil, err
	}
	s.Noticed = true
	return []Event{{Type: EventExpiring, Data: map[string]any{
		"expires_at": Timestamp(s.ExpiresAt),
		"message":    "Ask your human to claim this stack, or extend the TTL.",
	}}}, nil
}

// Expire ends the time of an unclaimed stack after its processes have stopped. It
// abandons a build under way.
func (s *Stack) Expire(urls URLs, limits Limits, now time.Time) ([]Event, error) {
	if s.Claimed() || !s.Due(now) {
		return nil, NewError(Conflict, "the stack's time has not run out")
	}
	events := s.abandonBuild(now)
	if err := s.apply(TriggerExpire); err != nil {
		return nil, err
	}
	s.ExpiredAt = now
	s.RetainedUntil = now.Add(limits.Retention)
	s.Snapshot = Snapshot{} // what is kept of an expired stack is newer
	s.setServices(Stopped)
	return append(events, Event{Type: EventExpired, CreatedAt: now, Data: map[string]any{
		"retained_until": Timestamp(s.RetainedUntil),
		"claim_url":      urls.Claim(""),
	}}), nil
}

// abandonBuild ends the build under way, if any, of a stack whose time has run out.
func (s *Stack) abandonBuild(now time.Time) (events []Event) {
	reason := fmt.Sprintf("the stack's time ran out before generation %d was live; deploy it again once the stack is claimed", s.Deploying)
	if s.Status == Live && s.Deploying != 0 {
		return s.giveUp(reason, now)
	}
	s.endAttempt(Unsuccessful, reason, now)
	return nil
}

// Claim moves the stack into an account (docs/api.md, "POST /v0/claim"). An expired
// stack, or one that is about to expire since its time has run out, is building until it
// is restored; one that was never built cannot be, and keeps the reason.
func (s *Stack) Claim(owner, email string, now time.Time) ([]Event, error) {
	switch s.Owner {
	case "":
	case owner:
		return nil, NewError(NotFound, fmt.Sprintf("this claim code has already been used: its stack, %s (%s), is in your account", s.ID, s.Name))
	default:
		return nil, NewError(NotFound, "this claim code has already been used; its stack belongs to an account")
	}
	if s.ClaimEmail != "" && !SameEmail(s.ClaimEmail, email) {
		return nil, NewError(Forbidden, "this stack can only be claimed by the email address it was created for; sign in with that address")
	}
	if s.Status == Expired && !now.Before(s.RetainedUntil) {
		return nil, NewError(NotFound, "this stack was kept until its retention ended and is being deleted")
	}
	var events []Event
	trigger, restored := triggerClaim, s.Status == Expired
	if s.Due(now) {
		trigger, restored = triggerLateClaim, true
		events = s.abandonBuild(now)
	}
	if err := s.apply(trigger); err != nil {
		return nil, err
	}
	if restored {
		if s.Generation.Built() {
			s.Error = ""
		}
		s.setServices(Pending)
	}
	s.Owner = owner
	s.ExpiresAt, s.ExpiredAt, s.RetainedUntil = time.Time{}, time.Time{}, time.Time{}
	return append(events, Event{Type: EventClaimed, CreatedAt: now, Data: map[string]any{"by": email}}), nil
}

// Counted reports whether the stack counts toward its network's limit (docs/api.md,
// "Unclaimed stacks").
func (s *Stack) Counted() bool {
	return !s.Claimed() && (s.Status == Building || s.Status == Live)
}

// Restoring reports whether a claimed stack is coming back from its snapshot.
func (s *Stack) Restoring() bool { return s.Status == Building && s.Deploying == 0 }

// Restored records that a stack serves again without a build, after a restart of the
// server or the engine, or after an expired stack was claimed, which also clears its
// crashes.
func (s *Stack) Restored(urls URLs) ([]Event, error) {
	trigger := triggerRestored
	if s.Status == Live {
		trigger = triggerRestart
	}
	if trigger == triggerRestored && s.Deploying != 0 {
		return nil, s.busy(tryAgain)
	}
	if err := s.apply(trigger); err != nil {
		return nil, err
	}
	s.setRunning()
	if trigger == triggerRestored {
		s.forgetCrashes()
	}
	return []Event{{Type: EventRestored, Data: map[string]any{"urls": urls.All(s)}}}, nil
}

// RestoreFailed ends a stack whose services could not be started again. A live stack is
// building while a deploy waits; see servedFails.
func (s *Stack) RestoreFailed(reason string) ([]Event, error) {
	if s.Status == Building && !s.Restoring() {
		return nil, s.busy(tryAgain)
	}
	return s.servedFails(triggerRestoreFails, reason)
}

// Retained ends an unclaimed stack whose retention is over.
func (s *Stack) Retained(now time.Time) ([]Event, error) {
	if now.Before(s.RetainedUntil) {
		return nil, NewError(Conflict, "the stack is still retained")
	}
	if err := s.apply(TriggerRetained); err != nil {
		return nil, err
	}
	return s.clearDeleted(now), nil
}

// Delete ends the stack at its manager's request.
func (s *Stack) Delete(now time.Time) ([]Event, error) {
	if err := s.apply(triggerDelete); err != nil {
		return nil, err
	}
	return s.clearDeleted(now), nil
}

// clearDeleted invalidates the stack's tokens and clears its services, its secrets and
// the email it was meant for: the row stays for its events only. It keeps one secret:
// the webhook's, which signs this last event and is cleared once that is delivered
// (package webhook).
func (s *Stack) clearDeleted(now time.Time) []Event {
	s.Deploying = 0
	s.ManageTokenHash, s.RevokedTokenHash, s.ClaimCodeHash = nil, nil, nil
	s.Generation.Source, s.Generation.Services, s.Generation.Variables = Source{}, nil, nil
	s.Attempted, s.Secrets, s.DataKey, s.PrimaryHosts = nil, nil, nil, nil
	s.Snapshot, s.Regained = Snapshot{}, Snapshot{}
	s.ClaimEmail, s.Network = "", ""
	s.Error, s.DeployError, s.LastDeploy = "", "", Deploy{}
	return []Event{{Type: EventDeleted, CreatedAt: now}}
}

// Due reports whether the time of an unclaimed stack has run out and it has not expired
// yet.
func (s *Stack) Due(now time.Time) bool {
	return s.Status != Expired && !s.ExpiresAt.IsZero() && !now.Before(s.ExpiresAt)
}

// Next returns what time alone will cause next for the stack, and when: TriggerNotice,
// TriggerExpire or TriggerRetained; "" for nothing.
func (s *Stack) Next(limits Limits, now time.Time) (Trigger, time.Time) {
	switch {
	case s.Status == Expired:
		return TriggerRetained, s.RetainedUntil
	case s.ExpiresAt.IsZero():
		return "", time.Time{}
	case s.Noticed || s.Due(now):
		return TriggerExpire, s.ExpiresAt
	}
	return TriggerNotice, s.ExpiresAt.Add(-limits.ExpiryNotice)
}
