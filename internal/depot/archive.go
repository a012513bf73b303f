package depot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/registry"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// StackImage returns the reference in the registry of an image of a stack, as a tag of its
// repository.
func (d *Depot) StackImage(stackID, tag string) string {
	return d.cfg.Registry.StackImage(stackID, tag)
}

// Login returns what the engine needs to push and pull.
func (d *Depot) Login() engine.Login { return d.cfg.Registry.Login() }

// Begin records that something may be kept of a stack of this node, before it is, and makes the
// stack's data key. It returns the row, and store.ErrNotOwner if the stack has another owner by
// now.
func (d *Depot) Begin(ctx context.Context, st *stack.Stack) (*stack.Stack, error) {
	now, err := d.owned(ctx, st)
	if err != nil || now.Pushed && len(now.DataKey) > 0 {
		return now, err
	}
	return d.cfg.Store.Update(ctx, st.ID, func(k *stack.Stack) ([]stack.Event, error) {
		if k.Pushed = true; len(k.DataKey) == 0 {
			k.DataKey = registry.NewKey()
		}
		return nil, nil
	}, store.ByOwner(d.cfg.Node, st.Epoch))
}

// owned returns the row of a stack as it is now, if it has the owner that st has and that is this
// node.
func (d *Depot) owned(ctx context.Context, st *stack.Stack) (*stack.Stack, error) {
	now, err := d.cfg.Store.Get(ctx, st.ID)
	if err == nil && (now.Node != d.cfg.Node || now.Epoch != st.Epoch) {
		return nil, store.ErrNotOwner
	}
	return now, err
}

// Has reports whether something is kept of a stack under a name.
func (d *Depot) Has(ctx context.Context, st *stack.Stack, name string) (bool, error) {
	tags, err := d.cfg.Registry.Tags(ctx, st.ID)
	return slices.Contains(tags, name), err
}

// Put keeps what write writes of a stack, sealed, in place of what had that name.
func (d *Depot) Put(ctx context.Context, st *stack.Stack, name string, write func(context.Context, io.Writer) error) error {
	st, err := d.Begin(ctx, st)
	if err != nil {
		return err
	}
	return d.cfg.Registry.Put(ctx, st.ID, name, st.DataKey, write)
}

// Get calls read with what Put kept, which read reads to io.EOF: before that, it does not know
// whether it has all. The error is engine.ErrNotFound if nothing is kept under the name.
func (d *Depot) Get(ctx context.Context, st *stack.Stack, name string, read func(io.Reader) error) error {
	err := d.cfg.Registry.Get(ctx, st.ID, name, st.DataKey, read)
	if errors.Is(err, registry.ErrNotFound) {
		err = fmt.Errorf("%w: %w", engine.ErrNotFound, err)
	}
	return err
}

// Keep removes of a stack, images included, all but what keeps reports of its row as it is now. A
// node that has stood still since it read st may find another owner, which has put what this one
// does not know: so the row is read after the names, and what comes later stays. The error is
// store.ErrNotOwner then.
func (d *Depot) Keep(ctx context.Context, st *stack.Stack, keeps func(now *stack.Stack, name string) bool) error {
	return d.cfg.Registry.ForgetThen(ctx, st.ID, func() (func(string) bool, error) {
		now, err := d.owned(ctx, st)
		return func(name string) bool { return keeps(now, name) }, err
	})
}

// ForgetDeleted has everything of a stack removed once more if it is deleted: something may have
// been put since that was done.
func (d *Depot) ForgetDeleted(ctx context.Context, id string) error {
	return d.cfg.Store.RememberPushed(ctx, id)
}
