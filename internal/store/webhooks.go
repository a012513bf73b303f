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

// ForgetWebhooks clears the webhooks of deleted stacks that have no event above the
// mark.
func (s *Store) ForgetWebhooks(ctx context.Context) error {
	return s.forgetWebhooks(ctx, `status = 'deleted' AND webhook <> '' AND NOT EXISTS
		(SELECT 1 FROM events WHERE stack_id = stacks.id AND id > (SELECT event_id FROM webhook_mark))`)
}

func (s *Store) forgetWebhooks(ctx context.Context, where string, args ...any) error {
	return s.exec(ctx, s.write, "forget webhooks of deleted stacks",
		"UPDATE stacks SET webhook = '', webhook_secret_sealed = NULL WHERE "+where, args...)
}

// WebhookMark returns the mark: over all stacks, the first attempt to deliver each
// event up to this id has begun.
func (s *Store) WebhookMark(ctx context.Context) (id int64, err error) {
	id, _, err = readOne(ctx, s, s.read, "read the mark of the webhooks", onlyPlace[int64], "SELECT event_id FROM webhook_mark")
	return id, err
}

// SetWebhookMark sets the mark that WebhookMark returns.
func (s *Store) SetWebhookMark(ctx context.Context, id int64) error {
	return s.exec(ctx, s.write, "write the mark of the webhooks", "UPDATE webhook_mark SET event_id = ?", id)
}

// Event returns an event; ok is false if there is none with this id.
func (s *Store) Event(ctx context.Context, id int64) (e stack.Event, ok bool, err error) {
	return readOne(ctx, s, s.read, "read an event", eventPlaces, "SELECT "+eventColumns+" FROM events WHERE id = ?", id)
}

// ToDeliver looks at up to limit events after an id, over all stacks, oldest first, and
// returns those whose stack has a webhook. Last is the id of the last event it looked
// at, from which to go on; more reports whether there may be others.
func (s *Store) ToDeliver(ctx context.Context, after int64, limit int) (refs []EventRef, last int64, more bool, err error) {
	type candidate struct {
		ref    EventRef
		hooked bool
	}
	all, err := readAll(ctx, s, s.read, "read events to deliver", func(c *candidate) []any {
		return []any{&c.ref.ID, &c.ref.StackID, &c.hooked}
	}, `SELECT e.id, e.stack_id, k.webhook <> ''
		FROM events e JOIN stacks k ON k.id = e.stack_id WHERE e.id > ? ORDER BY e.id LIMIT ?`, after, limit)
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
