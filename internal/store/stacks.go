package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// Option adds a condition or a receipt to the transaction of a change.
type Option func(*change)

type change struct {
	limit   int // 0 for none
	quota   stack.Quota
	receipt *Receipt
	fence   *fence     // nil for none
	allGo   bool       // what the node before has, if the stack gets another
	ended   *time.Time // the end of the lease of the node before; nil for any
	tries   *Tries     // nil if this is the only one
}

// WithLimit makes a change fail with TooMany if it lets the stack begin to count toward
// its network's limit while n unclaimed stacks of the network are already building or
// live. 0 means no limit.
func WithLimit(n int) Option { return func(c *change) { c.limit = n } }

// WithQuota makes a change fail with TooMany if it gives the stack to an account that would
// have more than the quota then.
func WithQuota(q stack.Quota) Option { return func(c *change) { c.quota = q } }

// WithReceipt records the receipt of the change's request; nil is none.
func WithReceipt(r *Receipt) Option { return func(c *change) { c.receipt = r } }

func changeWith(options []Option) *change {
	c := &change{}
	for _, option := range options {
		option(c)
	}
	return c
}

// Create stores a new stack with its first events and sets its Seq.
func (s *Store) Create(ctx context.Context, k *stack.Stack, events []stack.Event, options ...Option) error {
	with := changeWith(options)
	var seq int64
	err := s.transact(ctx, func(tx *sql.Tx) (err error) {
		if err := s.checkChange(ctx, tx, stack.Stack{}, k, with, stamp(events)); err != nil {
			return err
		}
		if seq, _, err = readOne(ctx, s, tx, "insert stack "+k.ID, onlyPlace[int64], insertStack, s.fields(k)...); err != nil {
			return err
		}
		if err := s.insertReceipt(ctx, tx, k.ID, with.receipt); err != nil {
			return err
		}
		failpoint.Here("create-uncommitted")
		return s.insertEvents(ctx, tx, k.ID, events)
	})
	if err != nil {
		return err
	}
	k.Seq = seq
	s.announce(k.ID, events)
	return nil
}

// Get returns a stack; NotFound if it is unknown or deleted.
func (s *Store) Get(ctx context.Context, id string) (*stack.Stack, error) {
	return s.load(ctx, s.read, id)
}

// Update is the only way to change a stack: it loads the stack, calls fn to change it
// and saves it with the events that fn returns, all in one transaction. It sets the ids
// and times of the events in fn's slice. If fn fails, nothing changes and Update
// returns its error as it is; an unknown or deleted stack is NotFound. The id and Seq
// stay the same whatever fn does. No other write runs in the meantime, so fn must be
// quick and must not call the store.
func (s *Store) Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...Option) (*stack.Stack, error) {
	with := changeWith(options)
	var k *stack.Stack
	var events []stack.Event
	err := s.transact(ctx, func(tx *sql.Tx) (err error) {
		over, err := with.tries.isOver(ctx, s, tx)
		if err != nil {
			return err
		}
		if k, err = s.load(ctx, tx, id); err != nil {
			return err
		}
		gaveAway := over && with.allGo
		if err := with.checkNode(k); err != nil && !gaveAway {
			return err
		}
		if over {
			events = with.tries.events
			return nil
		}
		before := *k
		if events, err = fn(k); err != nil {
			return err
		}
		if err := s.checkChange(ctx, tx, before, k, with, stamp(events)); err != nil {
			return err
		}
		k.ID, k.Seq = id, before.Seq
		if err := s.insertReceipt(ctx, tx, id, with.receipt); err != nil {
			return err
		}
		if err := s.handOver(ctx, tx, &before, k, with); err != nil {
			return err
		}
		return s.save(ctx, tx, k, events)
	})
	if err := with.tries.note(err, events); err != nil {
		return nil, err
	}
	s.announce(id, events)
	return k, nil
}

// save writes an existing stack with the events of the change.
func (s *Store) save(ctx context.Context, tx *sql.Tx, k *stack.Stack, events []stack.Event) error {
	if err := s.exec(ctx, tx, "update stack "+k.ID, updateStack, append(s.fields(k), k.Seq)...); err != nil {
		return err
	}
	if k.Status == stack.Deleted {
		if err := errors.Join(s.forgetDeliveries(ctx, tx, k.ID), s.forgetCommands(ctx, tx, k.ID), s.forgetMove(ctx, tx, k.ID), s.forgetDomains(ctx, tx, k.ID)); err != nil {
			return err
		}
	}
	if err := s.noteEvents(ctx, tx, k, events); err != nil {
		return err
	}
	return s.insertEvents(ctx, tx, k.ID, events)
}

// All returns every stack that is not deleted, in order of creation.
func (s *Store) All(ctx context.Context) ([]*stack.Stack, error) {
	return s.list(ctx, s.read, "status <> 'deleted' ORDER BY seq")
}

// Deleted reports whether an id belongs to a deleted stack.
func (s *Store) Deleted(ctx context.Context, id string) (bool, error) {
	_, deleted, err := readOne(ctx, s, s.read, "read stack "+id, onlyPlace[int], "SELECT 1 FROM stacks WHERE id = ? AND status = 'deleted'", id)
	return deleted, err
}

// DeletedPushed returns the ids of the deleted stacks of which a registry may still have
// something.
func (s *Store) DeletedPushed(ctx context.Context) ([]string, error) {
	return readAll(ctx, s, s.read, "read deleted stacks", onlyPlace[string], "SELECT id FROM stacks WHERE status = 'deleted' AND pushed ORDER BY seq")
}

// DeletedElsewhere returns the ids of the deleted stacks that have gone to another node since a
// time, while the node before has not come back, as far as anybody knows: it may still push
// something of them.
func (s *Store) DeletedElsewhere(ctx context.Context, since time.Time) ([]string, error) {
	return readAll(ctx, s, s.read, "read deleted stacks of other nodes", onlyPlace[string],
		`SELECT id FROM stacks WHERE status = 'deleted'
		AND id IN (SELECT stack_id FROM remains WHERE NOT expected AND since >= ?) ORDER BY seq`, micros(since))
}

// ForgetPushed records that a registry has nothing of a deleted stack any more.
func (s *Store) ForgetPushed(ctx context.Context, id string) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		return s.exec(ctx, tx, "forget what was pushed of "+id, "UPDATE stacks SET pushed = false WHERE id = ? AND status = 'deleted'", id)
	})
}

// RememberPushed records that a registry may have something again of a stack, if that is deleted.
func (s *Store) RememberPushed(ctx context.Context, id string) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		return s.exec(ctx, tx, "remember what was pushed of "+id, "UPDATE stacks SET pushed = true WHERE id = ? AND status = 'deleted'", id)
	})
}

// Owned returns the stacks of an account, newest first.
func (s *Store) Owned(ctx context.Context, accountID string) ([]*stack.Stack, error) {
	return s.list(ctx, s.read, "owner = ? AND status <> 'deleted' ORDER BY seq DESC", accountID)
}

// Counts returns the number of stacks of each status, without deleted ones.
func (s *Store) Counts(ctx context.Context) (map[stack.Status]int, error) {
	type count struct {
		status stack.Status
		n      int
	}
	all, err := readAll(ctx, s, s.read, "count stacks", func(c *count) []any {
		return []any{(*string)(&c.status), &c.n}
	}, "SELECT status, count(*) FROM stacks WHERE status <> 'deleted' GROUP BY status")
	if err != nil {
		return nil, err
	}
	counts := map[stack.Status]int{}
	for _, c := range all {
		counts[c.status] = c.n
	}
	return counts, nil
}

// FindManageToken returns the stack whose manage token has this hash.
func (s *Store) FindManageToken(ctx context.Context, hash []byte) (stackID string, ok bool, err error) {
	return s.find(ctx, "manage_token_hash", hash)
}

// FindClaimCode returns the stack whose claim code has this hash.
func (s *Store) FindClaimCode(ctx context.Context, hash []byte) (stackID string, ok bool, err error) {
	return s.find(ctx, "claim_code_hash", hash)
}

// checkChange refuses a change that gives a stack to an account which is deleted, disabled or
// without room for it, accepts a deploy for one that is disabled, or lets the stack begin to
// count in a network that is at its limit.
func (s *Store) checkChange(ctx context.Context, tx *sql.Tx, before stack.Stack, k *stack.Stack, with *change, now time.Time) error {
	if with.limit > 0 && k.Counted() && !before.Counted() {
		if err := s.checkCap(ctx, tx, k.Network, with.limit, now); err != nil {
			return err
		}
	}
	if k.Owner == "" || k.Owner == before.Owner && k.Attempt == before.Attempt {
		return nil
	}
	if err := s.checkOwner(ctx, tx, k.Owner); err != nil || k.Owner == before.Owner {
		return err
	}
	return s.checkQuota(ctx, tx, k, with.quota)
}

// checkQuota fails if the owner of a stack may not have it besides the others.
func (s *Store) checkQuota(ctx context.Context, tx *sql.Tx, k *stack.Stack, quota stack.Quota) error {
	if quota == (stack.Quota{}) {
		return nil
	}
	has, err := s.holdings(ctx, tx, k.Owner, k.ID)
	if err != nil {
		return err
	}
	return quota.Check(has, k.Holding())
}

// Holdings returns what of an account's stacks counts towards a quota.
func (s *Store) Holdings(ctx context.Context, accountID string) ([]stack.Holding, error) {
	return s.holdings(ctx, s.read, accountID, "")
}

func (s *Store) holdings(ctx context.Context, q querier, accountID, except string) ([]stack.Holding, error) {
	return readAll(ctx, s, q, "read what the account has", func(h *stack.Holding) []any {
		return []any{&plainJSON{&h.Services}, &plainJSON{&h.Disk}}
	}, "SELECT services, disk FROM stacks WHERE owner = ? AND id <> ? AND status <> 'deleted'", accountID, except)
}

// SetDisk records what a stack takes on the disk of its node, and wakes nobody for that. The
// owner is told by mail what told says, unless it is "".
func (s *Store) SetDisk(ctx context.Context, id string, d stack.Disk, told string, options ...Option) error {
	with := changeWith(options)
	return s.transact(ctx, func(tx *sql.Tx) error {
		k, err := s.load(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := with.checkNode(k); err != nil {
			return err
		}
		if err := s.exec(ctx, tx, "record what "+id+" takes on the disk", "UPDATE stacks SET disk = ? WHERE seq = ?", &plainJSON{&d}, k.Seq); err != nil {
			return err
		}
		if told == "" || !s.mails || k.Owner == "" {
			return nil
		}
		return s.note(ctx, tx, Mail{Kind: MailDisk, Account: k.Owner, StackID: id, Detail: told}, stack.Now(), 0)
	})
}

// checkCap fails if the network has limit unclaimed stacks or more.
func (s *Store) checkCap(ctx context.Context, tx *sql.Tx, network string, limit int, now time.Time) error {
	type unclaimed struct {
		n     int
		first time.Time // of their expiries
	}
	found, _, err := readOne(ctx, s, tx, "count unclaimed stacks", func(u *unclaimed) []any {
		return []any{&u.n, (*micros)(&u.first)}
	}, `SELECT count(*), min(expires_at) FROM stacks
		WHERE network = ? AND owner IS NULL AND status IN ('building', 'live')`, network)
	if err != nil || found.n < limit {
		return err
	}
	return stack.NewCapReached(found.n, limit, found.first, now)
}

// announce wakes the watchers of a stack and counts its events after the commit.
func (s *Store) announce(id string, events []stack.Event) {
	s.watch.wake(id)
	for _, e := range events {
		s.recorded(e.Type)
	}
}

func (s *Store) load(ctx context.Context, q querier, id string) (*stack.Stack, error) {
	if err := failpoint.Error("store-read"); err != nil {
		return nil, s.fault("read stack "+id, err)
	}
	k, ok, err := readOne(ctx, s, q, "read stack "+id, s.places, selectStacks+"id = ? AND status <> 'deleted'", id)
	if err == nil && !ok {
		return nil, stack.NewNoStack(id)
	}
	return k, err
}

func (s *Store) list(ctx context.Context, q querier, where string, args ...any) ([]*stack.Stack, error) {
	return readAll(ctx, s, q, "read stacks", s.places, selectStacks+where, args...)
}

// find looks up a hash in one of the columns that hold hashes.
func (s *Store) find(ctx context.Context, column string, hash []byte) (string, bool, error) {
	return readOne(ctx, s, s.read, "find stack by "+column, onlyPlace[string],
		"SELECT id FROM stacks WHERE "+column+" = ? AND status <> 'deleted'", hash)
}
