package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// What a live or an expired stack needs to begin on another node is kept apart from its own:
// its images in the registry, its files and the data of an expired one in the archive. That
// is done once the stack serves, or has expired, and nobody waits for it. Snapshots of the data
// of a live one are kept there, too; see watchData. A name in the archive says which deploy,
// expiry or snapshot something is of, so that nothing older is taken for it.

// Archive keeps what nodes need of stacks apart from them, sealed; package depot has it.
type Archive interface {
	// Begin records that something may be kept of a stack of this node, before it is, and
	// returns the row.
	Begin(ctx context.Context, st *stack.Stack) (*stack.Stack, error)
	// Has reports whether something is kept of a stack under a name.
	Has(ctx context.Context, st *stack.Stack, name string) (bool, error)
	// Put keeps what write writes.
	Put(ctx context.Context, st *stack.Stack, name string, write func(context.Context, io.Writer) error) error
	// Get calls read with what Put kept; engine.ErrNotFound if there is nothing.
	Get(ctx context.Context, st *stack.Stack, name string, read func(io.Reader) error) error
	// Keep removes of a stack, images included, all but what keeps reports of its row as it is
	// now. It removes nothing once another node owns the stack, or that is put after the row is
	// read.
	Keep(ctx context.Context, st *stack.Stack, keeps func(now *stack.Stack, name string) bool) error
	// ForgetDeleted has everything of a stack removed once more if it is deleted.
	ForgetDeleted(ctx context.Context, id string) error
}

// filesName returns the name of a stack's files as its served generation has them.
func filesName(st *stack.Stack) string { return fmt.Sprintf("files-g%d", st.Generation.Attempt) }

// dataName returns the name of the data of a service since its stack expired.
func dataName(st *stack.Stack, service string) string {
	return fmt.Sprintf("data-%s-%d", service, st.ExpiredAt.UnixMicro())
}

// liveName returns the name of a service's data in a snapshot of a live stack.
func liveName(of stack.Snapshot, service string) string {
	return fmt.Sprintf("live-%s-%d", service, of.At.UnixMicro())
}

// apartName says what is kept of a stack once all of it is; "" if nothing need be.
func apartName(st *stack.Stack) string {
	switch {
	case !st.Generation.Built() || st.Deploying != 0:
		return ""
	case st.Status == stack.Expired:
		return dataName(st, "all")
	case st.Status == stack.Live:
		return filesName(st)
	}
	return ""
}

// keepApartLater keeps apart what the stack needs on another node, beside its jobs, unless all
// of it is kept. After a fault watchLeftovers asks again.
func (r *runner) keepApartLater() {
	if r.cfg.Archive == nil || !r.keeping.CompareAndSwap(false, true) {
		return
	}
	r.pushing.Store(true)
	ctx := r.settling() // a node that is cut off does not know whether the stack is still its own
	r.sup.jobs.Go(func() {
		defer r.keeping.Store(false)
		defer r.pushing.Store(false)
		st, err := r.cfg.Store.Get(ctx, r.id)
		if err != nil || apartName(st) == "" || apartName(st) == r.apart {
			return
		}
		if err := r.keepApart(ctx, st); err != nil {
			if errors.Is(err, store.ErrNotOwner) {
				r.disown()
			}
			r.forgetDeleted()
			if ctx.Err() == nil {
				r.log.Warn("what the stack needs on another node is not kept in the registry; trying again later", "error", err)
			}
			return
		}
		r.apart = apartName(st)
	})
}

// keepApart puts into the registry and the archive what they do not have, and removes what
// they have too much.
func (r *runner) keepApart(ctx context.Context, st *stack.Stack) error {
	if err := r.putApart(ctx, st); err != nil {
		return err
	}
	return r.cfg.Archive.Keep(ctx, st, isApart)
}

// isApart reports whether something is to be kept apart of a stack under a name. While a deploy is
// under way, it may be anything.
func isApart(st *stack.Stack, name string) bool {
	return apartName(st) == "" || slices.Contains(namesApart(st), name)
}

// forgetDeleted has the registry forget the stack once more if it is deleted: another node may have
// done that before a push ended that was under way here.
func (r *runner) forgetDeleted() {
	if r.cfg.Archive == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.sup.ctx, rowWait)
	defer cancel()
	deleted, err := r.cfg.Store.Deleted(ctx, r.id)
	if err == nil && deleted {
		err = r.cfg.Archive.ForgetDeleted(ctx, r.id)
	}
	if err != nil && r.sup.ctx.Err() == nil {
		r.log.Warn("if the stack is deleted, the registry may keep images of it", "error", err)
	}
}

// namesApart returns the names of all that is kept apart of a stack.
func namesApart(st *stack.Stack) []string {
	served, layers := stackImages(st)
	names := []string{filesName(st)}
	for _, ref := range append(served, layers...) {
		names = append(names, imageTag(st, ref))
	}
	if st.Status == stack.Expired {
		for _, service := range processServices(st) {
			names = append(names, dataName(st, service))
		}
	}
	if st.HasSnapshot() {
		for _, service := range st.Snapshot.Services {
			names = append(names, liveName(st.Snapshot, service))
		}
	}
	return names
}

func (r *runner) putApart(ctx context.Context, st *stack.Stack) error {
	if err := r.sup.pushImages(ctx, st); err != nil {
		return err
	}
	err := r.archive(ctx, st, filesName(st), func(_ context.Context, w io.Writer) error { return r.cfg.Dir.Pack(st.ID, false, w) })
	if err != nil || st.Status != stack.Expired {
		return err
	}
	for _, service := range processServices(st) {
		key := dataKey(st, service)
		image, err := r.sup.helperImage(ctx, st)
		if err == nil {
			err = r.archive(ctx, st, dataName(st, service), func(ctx context.Context, w io.Writer) error {
				return r.cfg.Engine.ReadData(ctx, key, "", image, w)
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) archive(ctx context.Context, st *stack.Stack, name string, write func(context.Context, io.Writer) error) error {
	has, err := r.cfg.Archive.Has(ctx, st, name)
	if err != nil || has {
		return err
	}
	return r.cfg.Archive.Put(ctx, st, name, write)
}

// processServices returns the services of a stack that have processes, and so data.
func processServices(st *stack.Stack) (names []string) {
	for i := range st.Generation.Services {
		if spec := &st.Generation.Services[i].Spec; !spec.IsStatic() {
			names = append(names, spec.Name)
		}
	}
	return names
}

// errNotKept means that a stack cannot begin on another node: not all that it needs is kept
// apart from its own.
var errNotKept = errors.New("not all of the stack is in the registry")

// fetchApart brings to this node what is kept of a stack: its images and files, and its data
// if it has expired or there is a snapshot to begin with. The error is errNotKept if a part is
// not kept.
func (s *Supervisor) fetchApart(ctx context.Context, st *stack.Stack, from stack.Snapshot) error {
	err := s.fetchParts(ctx, st, from)
	if errors.Is(err, engine.ErrNotFound) {
		return fmt.Errorf("%w: %w", errNotKept, err)
	}
	return err
}

func (s *Supervisor) fetchParts(ctx context.Context, st *stack.Stack, from stack.Snapshot) error {
	if err := s.fetchImages(ctx, st); err != nil {
		return err
	}
	err := s.cfg.Archive.Get(ctx, st, filesName(st), func(r io.Reader) error { return s.cfg.Dir.Unpack(st.ID, r) })
	if err != nil {
		return err
	}
	for _, service := range slices.Concat(processServices(st), from.Services) {
		// Its data is kept apart, and newer than what may have been among the files.
		if err := s.cfg.Dir.RemoveBackedUp(st.ID, service); err != nil {
			return err
		}
	}
	for _, service := range processServices(st) {
		switch {
		case st.Status == stack.Expired:
			err = s.fetchData(ctx, st, service, dataName(st, service))
		case from.At.IsZero():
			err = s.makeEmpty(ctx, st, service)
		default:
			err = s.fetchData(ctx, st, service, liveName(from, service))
		}
		if err != nil {
			return err
		}
	}
	for _, service := range from.Services {
		if st.Service(service) == nil { // a deploy has dropped it, and its data stays
			if err := s.fetchData(ctx, st, service, liveName(from, service)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetchData makes the data volume of a service from what is kept under a name.
func (s *Supervisor) fetchData(ctx context.Context, st *stack.Stack, service, name string) error {
	return s.cfg.Archive.Get(ctx, st, name, func(r io.Reader) error { return s.fillData(ctx, st, service, r) })
}

// fillData makes the data volume of a service, which may be one that the stack serves no more,
// from what Engine.ReadData wrote.
func (s *Supervisor) fillData(ctx context.Context, st *stack.Stack, service string, data io.Reader) error {
	image, err := s.helperImage(ctx, st)
	if err != nil {
		return err
	}
	key, replaced := dataKey(st, service), 0
	key.Generation = st.Generation.Number
	if served := st.Service(service); served != nil {
		replaced = served.Replaced
	}
	return s.cfg.Engine.FillData(ctx, key, image, key.Process(replaced), data)
}

// makeEmpty makes the data volume of a service as its first start does.
func (s *Supervisor) makeEmpty(ctx context.Context, st *stack.Stack, service string) error {
	key := dataKey(st, service)
	id, err := s.cfg.Engine.Prepare(ctx, engine.Spec{
		Name: key.RestoreCopy(), Key: key, Image: st.Service(service).Image, Volumes: map[string]string{stack.DataDir: key.Data()},
	})
	if err != nil {
		return err
	}
	return s.cfg.Engine.Remove(context.WithoutCancel(ctx), id)
}
