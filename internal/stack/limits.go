package stack

import "time"

// Limits are the figures of "Limits" that an operator may change.
type Limits struct {
	TTL            time.Duration // lifetime of an unclaimed stack that names none
	TTLMin         time.Duration // shortest accepted
	TTLMax         time.Duration // latest expiry, counted from creation
	ExpiryNotice   time.Duration // stack.expiring fires this long before expiry
	Retention      time.Duration // snapshot kept after expiry
	UnclaimedPerIP int
}

// DefaultLimits are the specification's.
func DefaultLimits() Limits {
	return Limits{
		TTL:            time.Hour,
		TTLMin:         15 * time.Minute,
		TTLMax:         24 * time.Hour,
		ExpiryNotice:   5 * time.Minute,
		Retention:      7 * 24 * time.Hour,
		UnclaimedPerIP: 3,
	}
}
