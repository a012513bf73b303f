package store

import (
	"context"

	"github.com/berth-host/berth/internal/stack"
)

// Webhook is where the events of a stack are delivered, and the key that signs them.
type Webhook struct {
	URL    string
	Secret string
}

// EventRef names an event and its stack.
type EventRef struct {
	ID      int64
	StackID string
}

// Webhook returns where a stack's events go; ok is false for a stack without a webhook.
// A deleted stack keeps its webhook until ForgetWebhook, so that its last event can be
// signed.
func (s *Store) Webhook(ctx context.Context, stackID string) (hook Webhook, ok bool, err error) {
	hook, ok, err = readOne(ctx, s, s.read, "read the webhook of "+stackID, func(hook *Webhook) []any {
		return []any{&hook.URL, &sealedJSON{sealer: s.sealer, row: &stackID, column: "webhook_secret", value: &hook.Secret}}
	}, "SELECT webhook, webhook_secret_sealed FROM stacks WHERE id = ?", stackID)
	return hook, ok && hook.URL != "" && hook.Secret != "", err
}

// ForgetWebhook clears the webhook of a deleted stack. It does nothing for any other
// stack.
func (s *Store) ForgetWebhook(ctx context.Context, stackID string) error {
	return s.forgetWebhooks(ctx, "id = ? AND status = 'deleted'", stackID)
}

// ForgetWebhooks clears the webhooks of a node's deleted stacks that have no event above the
// node's mark, and for which it owes none.
func (s *Store) ForgetWebhooks(ctx context.Context, node string) error {
	return s.forgetWebhooks(ctx, `status = 'deleted' AND webhook <> '' AND node = ?
		AND NOT EXISTS (SELECT 1 FROM webhook_owed o WHERE o.node = stacks.node AND o.stack_id = stacks.id) AND NOT EXISTS
		(SELECT 1 FROM events WHERE stack_id = stacks.id AND id > (SELECT event_id FROM webhook_mark m WHERE m.node = stacks.node))`, node)
}

func (s *Store) forgetWebhooks(ctx context.Context, where string, args ...any) error {
	return s.exec(ctx, s.write, "forget webhooks of deleted stacks",
		"UPDATE stacks SET webhook = '', webhook_secret_sealed = NULL WHERE "+where, args...)
}

// WebhookMark returns the mark of a node: over all its stacks, the first attempt to deliver
// each event up to this id has begun. That of a new node, which has none, is the last event.
func (s *Store) WebhookMark(ctx context.Context, node string) (id int64, err error) {
	id, _, err = readOne(ctx, s, s.read, "read the mark of the webhooks", onlyPlace[int64],
		"SELECT coalesce((SELECT event_id FROM webhook_mark WHERE node = ?), (SELECT max(id) FROM events), 0)", node)
	return id, err
}

// SetWebhookMark sets the mark that WebhookMark returns.
func (s *Store) SetWebhookMark(ctx context.Context, node string, id int64) error {
	return s.exec(ctx, s.write, "write the mark of the webhooks", `INSERT INTO webhook_mark (node, event_id) VALUES (?, ?)
		ON CONFLICT (node) DO UPDATE SET event_id = excluded.event_id`, node, id)
}

// Owed are events of a stack that a node is to deliver although they are not above its mark:
// those after an id, up to another. The node that owned the stack may not have begun to.
type Owed struct {
	StackID   string
	After, To int64
}

// OwedEvents returns what a node has taken over from others.
func (s *Store) OwedEvents(ctx context.Context, node string) ([]Owed, error) {
	return readAll(ctx, s, s.read, "read events that were handed over", func(o *Owed) []any {
		return []any{&o.StackID, &o.After, &o.To}
	}, "SELECT stack_id, after_id, up_to_id FROM webhook_owed WHERE node = ? ORDER BY after_id", node)
}

// EndOwed records that a node's mark is below all that it owes of a stack.
func (s *Store) EndOwed(ctx context.Context, node, stackID string) error {
	return s.exec(ctx, s.write, "end a handover of events", "DELETE FROM webhook_owed WHERE node = ? AND stack_id = ?", node, stackID)
}

// EventsOwed returns the events that are owed, oldest first, if the stack has a webhook.
func (s *Store) EventsOwed(ctx context.Context, owed Owed) ([]EventRef, error) {
	return readAll(ctx, s, s.read, "read events that were handed over", func(ref *EventRef) []any {
		return []any{&ref.ID, &ref.StackID}
	}, `SELECT e.id, e.stack_id FROM events e JOIN stacks k ON k.id = e.stack_id
		WHERE e.stack_id = ? AND e.id > ? AND e.id <= ? AND k.webhook <> '' ORDER BY e.id`, owed.StackID, owed.After, owed.To)
}

// Event returns an event; ok is false if there is none with this id.
func (s *Store) Event(ctx context.Context, id int64) (e stack.Event, ok bool, err error) {
	return readOne(ctx, s, s.read, "read an event", eventPlaces, "SELECT "+eventColumns+" FROM events WHERE id = ?", id)
}

// ToDeliver looks at up to limit events after an id, over all stacks, oldest first, and
// returns those whose stack is the node's and has a webhook. Last is the id of the last event it looked
// at, from which to go on; more reports whether there may be others.
func (s *Store) ToDeliver(ctx context.Context, node string, after int64, limit int) (refs []EventRef, last int64, more bool, err error) {
	type candidate struct {
		ref    EventRef
		hooked bool
	}
	all, err := readAll(ctx, s, s.read, "read events to deliver", func(c *candidate) []any {
		return []any{&c.ref.ID, &c.ref.StackID, &c.hooked}
	}, `SELECT e.id, e.stack_id, k.webhook <> '' AND k.node = ?
		FROM events e JOIN stacks k ON k.id = e.stack_id WHERE e.id > ? ORDER BY e.id LIMIT ?`, node, after, limit)
	if err != nil {
		return nil, after, false, err
	}
	last = after
	for _, c := range all {
		if c.hooked {
			refs = append(refs, c.ref)
		}
		last = c.ref.ID
	}
	return refs, last, len(all) == limit, nil
}
