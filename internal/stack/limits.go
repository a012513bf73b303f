package stack

import (
	"fmt"
	"time"
)

// Limits are the numbers of docs/api.md, "Unclaimed stacks" and "Crash loop".
type Limits struct {
	TTL            time.Duration // lifetime of an unclaimed stack that names none
	TTLMin         time.Duration // shortest accepted
	TTLMax         time.Duration // latest expiry, counted from creation
	ExpiryNotice   time.Duration // stack.expiring fires this long before expiry
	Retention      time.Duration // snapshot kept after expiry
	UnclaimedPerIP int
	Crashes        int // crashes of one service in CrashWindow that a stack survives
	CrashWindow    time.Duration
	Backoff        time.Duration // before the first restart of a crashed service; doubles with each crash
	BackoffMax     time.Duration
}

// CheckTTL returns an error unless an unclaimed stack may expire a lifetime of ttl
// after now; the error gives the bound.
func (l Limits) CheckTTL(ttl time.Duration, created, now time.Time) error {
	latest := created.Add(l.TTLMax)
	switch {
	case ttl < l.TTLMin:
		return NewError(Unprocessable, fmt.Sprintf(
			"ttl %s is too short; an unclaimed stack lives at least %s", FormatDuration(ttl.Truncate(time.Second)), FormatDuration(l.TTLMin)))
	case now.Add(ttl).After(latest):
		return NewError(Unprocessable, fmt.Sprintf(
			"ttl %s is too long; an unclaimed stack expires at most %s after its creation, so the latest possible expiry is %s; claim it to keep it",
			FormatDuration(ttl), FormatDuration(l.TTLMax), latest.UTC().Format(time.RFC3339)))
	}
	return nil
}
