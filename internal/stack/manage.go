package stack

import "time"

// The changes in this file touch the row alone: the store applies them, and nothing
// else has to happen.

// Extend sets the expiry to ttl from now (docs/api.md, "PATCH /v0/stacks/{id}").
func (s *Stack) Extend(ttl time.Duration, limits Limits, now time.Time) ([]Event, error) {
	if s.Claimed() {
		return nil, NewError(Conflict, "the stack is claimed, so it has no TTL: it lives until its owner deletes it")
	}
	if s.Due(now) {
		return nil, errExpired
	}
	if err := s.apply(triggerExtend); err != nil {
		return nil, err
	}
	if err := limits.CheckTTL(ttl, s.CreatedAt, now); err != nil {
		return nil, err
	}
	s.ExpiresAt = now.Add(ttl)
	s.Noticed = false
	return []Event{{Type: EventExtended, CreatedAt: now, Data: map[string]any{"expires_at": Timestamp(s.ExpiresAt)}}}, nil
}

// RevokeAgent ends the manage token of a stack at its owner's request. What the holder's
// deploys left for later builds is dropped with it.
func (s *Stack) RevokeAgent() ([]Event, error) {
	switch {
	case !s.Claimed():
		return nil, NewError(Conflict, "this stack has no owner, so without its manage token no one could manage it; claim it first")
	case len(s.ManageTokenHash) == 0:
		return nil, NewError(Conflict, "the manage token of this stack has already been revoked")
	}
	if err := s.apply(triggerRevoke); err != nil {
		return nil, err
	}
	s.ManageTokenHash, s.RevokedTokenHash = nil, s.ManageTokenHash
	s.DropKept()
	return []Event{{Type: EventAgentRevoked}}, nil
}
