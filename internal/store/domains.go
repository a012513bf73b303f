package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// selectDomains reads domains with what the row of their stack has of them.
const selectDomains = `SELECT d.stack_id, COALESCE(k.owner, ''), d.host, d.service, k.primary_hosts, d.status, d.reason,
	d.watched_since, d.checked_at, d.missing_since, d.next_check, d.failed_orders, d.order_error, d.next_order
	FROM domains d JOIN stacks k ON k.id = d.stack_id WHERE `

// domainRow is a domain and the primary domains of its stack.
type domainRow struct {
	domain  stack.Domain
	primary map[string]string
}

func (r *domainRow) places() []any {
	d := &r.domain
	return []any{
		&d.StackID, &d.Owner, &d.Host, &d.Service, &plainJSON{&r.primary}, (*string)(&d.Status), &d.Reason,
		(*micros)(&d.WatchedSince), (*micros)(&d.CheckedAt), (*micros)(&d.MissingSince), (*micros)(&d.NextCheck),
		&d.FailedOrders, &d.OrderError, (*micros)(&d.NextOrder),
	}
}

func (s *Store) listDomains(ctx context.Context, q querier, where string, args ...any) ([]stack.Domain, error) {
	rows, err := readAll(ctx, s, q, "read domains", (*domainRow).places, selectDomains+where, args...)
	domains := make([]stack.Domain, len(rows))
	for i, r := range rows {
		domains[i] = r.domain
		domains[i].Primary = r.primary[r.domain.Service] == r.domain.Host
	}
	return domains, err
}

// oneDomain returns the first of the domains that listDomains does, nil for none.
func (s *Store) oneDomain(ctx context.Context, q querier, where string, args ...any) (*stack.Domain, error) {
	all, err := s.listDomains(ctx, q, where, args...)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// Domains returns the domains of a stack, by their hosts.
func (s *Store) Domains(ctx context.Context, stackID string) ([]stack.Domain, error) {
	return s.listDomains(ctx, s.read, "d.stack_id = ? ORDER BY d.host", stackID)
}

// Domain returns a domain of a stack; NotFound if the stack does not have it.
func (s *Store) Domain(ctx context.Context, stackID, host string) (stack.Domain, error) {
	d, err := s.findDomain(ctx, s.read, stackID, host)
	if err != nil {
		return stack.Domain{}, err
	}
	return *d, nil
}

func (s *Store) findDomain(ctx context.Context, q querier, stackID, host string) (*stack.Domain, error) {
	d, err := s.oneDomain(ctx, q, "d.stack_id = ? AND d.host = ?", stackID, host)
	if err == nil && d == nil {
		err = stack.NewError(stack.NotFound, fmt.Sprintf("the stack %s does not have the domain %s; GET /v0/stacks/%s/domains lists those that it has", stackID, host, stackID))
	}
	return d, err
}

// ActiveDomains returns the active domains of all stacks.
func (s *Store) ActiveDomains(ctx context.Context) ([]stack.Domain, error) {
	return s.listDomains(ctx, s.read, "d.status = 'active'")
}

// ActiveDomain returns the active domain with a host; nil if there is none.
func (s *Store) ActiveDomain(ctx context.Context, host string) (*stack.Domain, error) {
	return s.oneDomain(ctx, s.read, "d.host = ? AND d.status = 'active'", host)
}

// ProvedDomain reports whether a stack has a host active or lost, or pending in place of an active
// one of the same account that was removed: then it has been proved to be its owner's, and may
// have a certificate.
func (s *Store) ProvedDomain(ctx context.Context, host string) (bool, error) {
	_, has, err := readOne(ctx, s, s.read, "look for the domain "+host, onlyPlace[int], "SELECT 1 FROM domains WHERE host = ? AND (status <> 'pending' OR next_order IS NOT NULL) LIMIT 1", host)
	return has, err
}

// AddDomain adds a domain to a claimed stack, or gives one that the stack has already to
// another of its services and has it checked unless it is active, and returns it. Too many
// domains of the stack or of its account are a Conflict.
func (s *Store) AddDomain(ctx context.Context, d stack.Domain) (after stack.Domain, added bool, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		k, err := s.load(ctx, tx, d.StackID)
		if err != nil {
			return err
		}
		before, err := s.oneDomain(ctx, tx, "d.stack_id = ? AND d.host = ?", d.StackID, d.Host)
		if err != nil {
			return err
		}
		d.Owner = k.Owner
		if added = before == nil; added {
			after = d
			return s.insertDomain(ctx, tx, d)
		}
		after = *before
		if after.Service != d.Service {
			after.Service, after.Primary = d.Service, false
		}
		if after.Status != stack.DomainActive {
			after.Asked(d.WatchedSince)
			after.NextCheck = d.NextCheck
		}
		return s.saveDomain(ctx, tx, *before, after)
	})
	if err == nil {
		s.watch.wake(d.StackID)
	}
	return after, added, err
}

func (s *Store) insertDomain(ctx context.Context, tx *sql.Tx, d stack.Domain) error {
	for _, limit := range []struct {
		most           int
		of, where, arg string
	}{
		{stack.MaxDomains, "stack", "stack_id = ?", d.StackID},
		{stack.MaxAccountDomains, "account", "stack_id IN (SELECT id FROM stacks WHERE owner = ?)", d.Owner},
	} {
		n, _, err := readOne(ctx, s, tx, "count domains", onlyPlace[int], "SELECT count(*) FROM domains WHERE "+limit.where, limit.arg)
		if err != nil {
			return err
		}
		if n >= limit.most {
			return stack.NewError(stack.Conflict, fmt.Sprintf("the %s has %d domains, which is as many as it may have; remove one first", limit.of, n))
		}
	}
	return s.exec(ctx, tx, "add domain "+d.Host, `INSERT INTO domains (stack_id, host, service, status, reason, watched_since, next_check, failed_orders, order_error)
		VALUES (?, ?, ?, ?, ?, ?, ?, 0, '')`, d.StackID, d.Host, d.Service, string(d.Status), d.Reason, micros(d.WatchedSince), micros(d.NextCheck))
}

// UpdateDomain is the only way to change a domain: it loads the domain, calls fn to change
// it, and saves it, all in one transaction. The holder is the active domain with the same
// host of another stack, nil for none; fn may change it, too. If fn fails, nothing changes.
// A domain that the stack does not have is NotFound.
func (s *Store) UpdateDomain(ctx context.Context, stackID, host string, fn func(d, holder *stack.Domain) error) (stack.Domain, error) {
	var after stack.Domain
	var changed []string
	err := s.transact(ctx, func(tx *sql.Tx) error {
		d, err := s.findDomain(ctx, tx, stackID, host)
		if err != nil {
			return err
		}
		holder, err := s.oneDomain(ctx, tx, "d.host = ? AND d.status = 'active' AND d.stack_id <> ?", host, stackID)
		if err != nil {
			return err
		}
		before, held := *d, stack.Domain{}
		if holder != nil {
			held = *holder
		}
		if err := fn(d, holder); err != nil {
			return err
		}
		after = *d
		if holder != nil && *holder != held { // first, since one alone may be active
			changed = append(changed, held.StackID)
			if err := s.saveDomain(ctx, tx, held, *holder); err != nil {
				return err
			}
		}
		if before.Status != d.Status || before.Primary != d.Primary {
			changed = append(changed, stackID)
		}
		return s.saveDomain(ctx, tx, before, after)
	})
	if err != nil {
		return stack.Domain{}, err
	}
	for _, id := range changed {
		s.watch.wake(id)
	}
	return after, nil
}

// saveDomain writes a domain, and whether it is primary to the row of its stack.
func (s *Store) saveDomain(ctx context.Context, tx *sql.Tx, before, d stack.Domain) error {
	err := s.exec(ctx, tx, "write domain "+d.Host, `UPDATE domains SET service = ?, status = ?, reason = ?, watched_since = ?, checked_at = ?,
		missing_since = ?, next_check = ?, failed_orders = ?, order_error = ?, next_order = ? WHERE stack_id = ? AND host = ?`,
		d.Service, string(d.Status), d.Reason, micros(d.WatchedSince), micros(d.CheckedAt),
		micros(d.MissingSince), micros(d.NextCheck), d.FailedOrders, d.OrderError, micros(d.NextOrder), d.StackID, d.Host)
	if err == nil && s.mails && before.Status == stack.DomainActive && d.Status == stack.DomainLost {
		err = s.note(ctx, tx, Mail{Kind: MailDomain, Account: d.Owner, StackID: d.StackID, Detail: d.Host + ": " + d.Reason}, stack.Now(), 0)
	}
	if err != nil || before.Primary == d.Primary && before.Service == d.Service {
		return err
	}
	return s.markPrimary(ctx, tx, before, d)
}

// markPrimary writes to the row of a stack which of its domains are primary.
func (s *Store) markPrimary(ctx context.Context, tx *sql.Tx, before, d stack.Domain) error {
	k, err := s.load(ctx, tx, d.StackID)
	if err != nil {
		return err
	}
	hosts := maps.Clone(k.PrimaryHosts)
	if hosts == nil {
		hosts = map[string]string{}
	}
	if before.Primary {
		delete(hosts, before.Service)
	}
	if d.Primary {
		hosts[d.Service] = d.Host
	}
	if k.PrimaryHosts = hosts; len(hosts) == 0 {
		k.PrimaryHosts = nil
	}
	return s.save(ctx, tx, k, nil)
}

// RemoveDomain removes a domain of a stack; NotFound if the stack does not have it. If it is
// active, pending domains of the account with the same host keep its certificate and are checked
// at once.
func (s *Store) RemoveDomain(ctx context.Context, stackID, host string) error {
	err := s.transact(ctx, func(tx *sql.Tx) error {
		d, err := s.findDomain(ctx, tx, stackID, host)
		if err != nil {
			return err
		}
		if d.Primary {
			unmarked := *d
			unmarked.Primary = false
			if err := s.markPrimary(ctx, tx, *d, unmarked); err != nil {
				return err
			}
		}
		if err := s.handDown(ctx, tx, *d); err != nil {
			return err
		}
		return s.exec(ctx, tx, "remove domain "+host, "DELETE FROM domains WHERE stack_id = ? AND host = ?", stackID, host)
	})
	if err == nil {
		s.watch.wake(stackID)
	}
	return err
}

// handDown lets pending domains of the same account with the host of one that is about to be
// removed keep its certificate if it is active, and has them checked at once.
func (s *Store) handDown(ctx context.Context, tx *sql.Tx, d stack.Domain) error {
	if d.Status != stack.DomainActive {
		return nil
	}
	now := micros(stack.Now())
	return s.exec(ctx, tx, "hand down the domain "+d.Host, `UPDATE domains SET next_check = ?, next_order = ?
		WHERE host = ? AND status = 'pending' AND stack_id IN (SELECT id FROM stacks WHERE owner = ?)`, now, now, d.Host, d.Owner)
}

// TakeDueDomains returns domains whose check is due, and puts their checks off, so that no
// other server makes them, too. There are at most as many as most, at most as many as each for
// an account, and none of the accounts in busy. The first of each account come before the
// second of any.
func (s *Store) TakeDueDomains(ctx context.Context, now time.Time, putOff time.Duration, most, each int, busy []string) (due []stack.Domain, err error) {
	where := "d.next_check <= ? AND k.owner NOT IN (''" + strings.Repeat(", ?", len(busy)) + `)
		ORDER BY row_number() OVER (PARTITION BY k.owner ORDER BY d.next_check), d.next_check LIMIT ?`
	args := []any{micros(now)}
	for _, account := range busy {
		args = append(args, account)
	}
	args = append(args, most)
	if due, err = s.listDomains(ctx, s.read, where, args...); err != nil || len(due) == 0 {
		return nil, err
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		if due, err = s.listDomains(ctx, tx, where, args...); err != nil {
			return err
		}
		due = atMost(due, each)
		for _, d := range due {
			err := s.exec(ctx, tx, "put off the check of "+d.Host, "UPDATE domains SET next_check = ? WHERE stack_id = ? AND host = ?",
				micros(now.Add(putOff)), d.StackID, d.Host)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err // none is put off
	}
	return due, nil
}

// atMost returns the first domains of each account, as many as each.
func atMost(all []stack.Domain, each int) []stack.Domain {
	of := map[string]int{}
	return slices.DeleteFunc(all, func(d stack.Domain) bool {
		of[d.Owner]++
		return of[d.Owner] > each
	})
}

// DueOrders returns the active domains for which a certificate is to be ordered.
func (s *Store) DueOrders(ctx context.Context, now time.Time) ([]stack.Domain, error) {
	return s.listDomains(ctx, s.read, "d.status = 'active' AND d.next_order <= ? ORDER BY d.next_order", micros(now))
}

// forgetDomains removes the domains of a deleted stack, as RemoveDomain does.
func (s *Store) forgetDomains(ctx context.Context, tx *sql.Tx, stackID string) error {
	all, err := s.listDomains(ctx, tx, "d.stack_id = ?", stackID)
	if err != nil {
		return err
	}
	for _, d := range all {
		if err := s.handDown(ctx, tx, d); err != nil {
			return err
		}
	}
	return s.exec(ctx, tx, "remove the domains of "+stackID, "DELETE FROM domains WHERE stack_id = ?", stackID)
}
