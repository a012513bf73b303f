package store

import (
	"context"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// ErrNotOwner means that a change is made for one owner, and the stack has another.
// Nothing has changed. It is a *stack.Error, since the new owner can do what was asked.
var ErrNotOwner error = &stack.Error{
	Kind:       stack.Unavailable,
	Detail:     "the stack has just gone to another node; try again in a moment",
	RetryAfter: ownerRetry,
}

// ownerRetry is how long to wait for the new owner.
const ownerRetry = 2 * time.Second

// fence is what ByOwner says.
type fence struct {
	node  string
	epoch int64
}

// ByOwner makes a change fail with ErrNotOwner unless the node owns the stack, and took it in
// the epoch.
func ByOwner(node string, epoch int64) Option {
	return func(c *change) { c.fence = &fence{node, epoch} }
}

// CheckOwner returns ErrNotOwner if options let only another owner change the stack.
func CheckOwner(k *stack.Stack, options ...Option) error { return changeWith(options).checkNode(k) }

// AllGo reports whether options has Leaving.
func AllGo(options ...Option) bool { return changeWith(options).allGo }

// checkNode returns ErrNotOwner if the change is for another owner than the stack's.
func (c *change) checkNode(k *stack.Stack) error {
	if c.fence != nil && *c.fence != (fence{k.Node, k.Epoch}) {
		return ErrNotOwner
	}
	return nil
}

// Kept returns the stacks of a node that are not deleted, in order of creation.
func (s *Store) Kept(ctx context.Context, node string) ([]*stack.Stack, error) {
	return s.list(ctx, s.read, "node = ? AND status <> 'deleted' ORDER BY seq", node)
}
