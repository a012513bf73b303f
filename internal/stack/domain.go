package stack

import (
	"fmt"
	"time"
)

// Limits of domains (docs/api.md, "Domains").
const (
	MaxDomains        = 20  // of a stack
	MaxAccountDomains = 100 // of an account
)

// DomainStatus is the state of a domain (docs/api.md, "Domains").
type DomainStatus string

// The statuses of a domain: pending until its records are found, active while it leads to
// its service, lost once its proof was missing for too long, or another account has proved
// that the host is theirs.
const (
	DomainPending DomainStatus = "pending"
	DomainActive  DomainStatus = "active"
	DomainLost    DomainStatus = "lost"
)

// Domain is an owner's host that leads to a service of a claimed stack.
type Domain struct {
	StackID string
	Owner   string // account of the stack
	Host    string // in lower-case punycode, without a final dot
	Service string
	Primary bool // its URL is the service's in the environment of the next generations
	Status  DomainStatus
	Reason  string // why it is not active, or what is wrong with an active one; "" for nothing

	WatchedSince time.Time // when it was added, or last checked on request while it was pending
	CheckedAt    time.Time // last check that found out something
	MissingSince time.Time // first of the checks in a row that missed the proof of an active domain, later by the time without answers
	NextCheck    time.Time // zero: on request only

	FailedOrders int       // orders of a certificate that failed in a row
	OrderError   string    // why the last one failed, or was put off
	NextOrder    time.Time // when one is to be made; zero for never. A pending domain has it while it keeps the certificate of one that was removed
}

// DomainTimes are the times of the checks of domains.
type DomainTimes struct {
	PendingEvery time.Duration // between two checks of a pending domain
	Pending      time.Duration // after which it is checked on request only
	Every        time.Duration // between two checks of any other
	Grace        time.Duration // how long the proof of an active domain may be missing
}

// NewDomain returns a pending domain, which is checked at once.
func NewDomain(stackID, host, service string, now time.Time) Domain {
	return Domain{
		StackID: stackID, Host: host, Service: service, Status: DomainPending,
		Reason: "not checked yet", WatchedSince: now, NextCheck: now,
	}
}

// Finding is what a check found at the DNS about a host.
type Finding struct {
	Answered bool                // false: it does not count as a check, and Reason says why
	Proves   func(d Domain) bool // reports whether the host's record proves a claim to it
	Resolved bool                // it is known where the host's addresses lead
	Leads    bool                // they lead here
	Reason   string              // what is missing; "" for nothing
}

// Checked applies what a check has found. The holder is the active domain with the same
// host of another stack, nil for none; if it can no longer prove its claim and d can, the
// holder loses the host to d.
func (d *Domain) Checked(f Finding, holder *Domain, times DomainTimes, now time.Time) {
	proved := f.Answered && f.Proves(*d)
	if !f.Answered || proved && !f.Resolved && d.Status != DomainActive {
		d.Reason = f.Reason
		d.checkAfter(times, now, max(times.Every/24, times.PendingEvery))
		return
	}
	last := d.CheckedAt
	d.CheckedAt, d.Reason = now, f.Reason
	switch {
	case !proved:
		d.unproved(times, last, now)
	case d.Status == DomainActive:
		d.MissingSince = time.Time{}
	case !f.Leads:
	case holder != nil && f.Proves(*holder):
		d.Reason, d.NextOrder = heldBy(d, holder), time.Time{}
	default:
		holder.yield()
		d.Status, d.MissingSince, d.NextOrder = DomainActive, time.Time{}, now
	}
	d.checkAfter(times, now, times.Every)
	if end := d.MissingSince.Add(times.Grace); d.Status == DomainActive && !d.MissingSince.IsZero() && end.Before(d.NextCheck) {
		d.NextCheck = end
	}
}

// Asked records that a check is asked for, which begins the time of a pending domain anew.
func (d *Domain) Asked(now time.Time) {
	if d.Status == DomainPending {
		d.WatchedSince = now
	}
}

// checkAfter sets when a domain is checked next; rest is the time until then if it is not
// pending. A pending domain that is checked no more keeps no certificate.
func (d *Domain) checkAfter(times DomainTimes, now time.Time, rest time.Duration) {
	if d.Status != DomainPending {
		d.NextCheck = now.Add(rest)
		return
	}
	if d.NextCheck = now.Add(times.PendingEvery); d.NextCheck.After(d.WatchedSince.Add(times.Pending)) {
		d.NextCheck, d.NextOrder = time.Time{}, time.Time{}
	}
}

// unproved records that the proof is missing. An active domain is lost once that has lasted
// for the time of grace. Of the time since the last check with an answer, no more than the
// interval of checks counts: in the rest nothing answered, or no server ran. A pending domain
// keeps no certificate any more.
func (d *Domain) unproved(times DomainTimes, last, now time.Time) {
	if d.Status != DomainActive {
		d.NextOrder = time.Time{}
		return
	}
	if d.MissingSince.IsZero() {
		d.MissingSince = now
	} else if unknown := now.Sub(last) - times.Every; unknown > 0 {
		d.MissingSince = d.MissingSince.Add(unknown)
	}
	if now.Sub(d.MissingSince) >= times.Grace {
		d.lose()
	}
}

// yield makes a domain lose its host to another account, which has proved its claim. It does
// nothing for nil.
func (d *Domain) yield() {
	if d == nil {
		return
	}
	d.lose()
	d.Reason = fmt.Sprintf("the TXT record of this account is gone, and another account has proved that %s is theirs; enter the records again if that is wrong", d.Host)
}

func (d *Domain) lose() {
	d.Status, d.Primary = DomainLost, false
	d.MissingSince, d.NextOrder, d.OrderError, d.FailedOrders = time.Time{}, time.Time{}, "", 0
}

// heldBy says why a domain does not become active although its records are there.
func heldBy(d, holder *Domain) string {
	if d.Owner == holder.Owner {
		return fmt.Sprintf("%s is active for your stack %s; remove it there first", d.Host, holder.StackID)
	}
	return fmt.Sprintf("%s is active for a stack of another account, whose TXT record is there as well; remove that record at the DNS, then check again", d.Host)
}

const (
	firstOrderPause = time.Minute
	mostOrderPause  = 24 * time.Hour
)

// OrderFailed records that an order of a certificate failed. The next one waits for a
// minute, then four times as long after each failure, and for a day at most.
func (d *Domain) OrderFailed(why string, now time.Time) {
	d.FailedOrders++
	wait := firstOrderPause
	for n := 1; n < d.FailedOrders && wait < mostOrderPause; n++ {
		wait *= 4
	}
	d.PutOffOrder(why, now.Add(min(wait, mostOrderPause)))
}

// PutOffOrder records why an order of a certificate is made later.
func (d *Domain) PutOffOrder(why string, until time.Time) {
	d.OrderError, d.NextOrder = why, until
}

// Ordered records that there is a certificate.
func (d *Domain) Ordered() {
	d.FailedOrders, d.OrderError, d.NextOrder = 0, "", time.Time{}
}

// Trouble returns why a domain is not active, or what is wrong with it; "" for nothing.
func (d Domain) Trouble() string {
	if d.Reason == "" {
		return d.OrderError
	}
	return d.Reason
}
