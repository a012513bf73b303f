package depot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// liveTag begins the tags of data that was read while a stack ran.
const liveTag = "live-"

// item is one thing of a stack that the registry keeps under a tag.
type item struct {
	tag   string
	push  func(ctx context.Context, st *stack.Stack) error
	bring func(ctx context.Context) error // nil for data, which needs a container; see BringData
}

// wanted returns the tags that the registry should have of a stack.
func wanted(st *stack.Stack) []string {
	var tags []string
	for _, i := range (&Depot{}).items(st) {
		tags = append(tags, i.tag)
	}
	return tags
}

// items returns what the registry should have of a stack: what its generation is started
// from, once that was served, and the data of an expired one.
func (d *Depot) items(st *stack.Stack) []item {
	if st.DeployedAt.IsZero() || !st.Generation.Built() {
		return nil
	}
	var all []item
	for i := range st.Generation.Services {
		s := &st.Generation.Services[i]
		switch {
		case s.Image != "" && !isShared(s.Image):
			all = append(all, d.image(st, s.Image))
		case s.Site != 0 && !s.Linked:
			folder := d.cfg.Dir.Site(st.ID, s.Spec.Name, s.Site)
			all = append(all, d.folder(st, "site-"+s.Spec.Name+"-"+strconv.Itoa(s.Site), folder))
		}
		if st.Status == stack.Expired && !s.Spec.IsStatic() {
			all = append(all, d.data(st, s, dataTag(st, s.Spec.Name)))
		}
	}
	if name := st.Generation.Source.Folder; name != "" {
		all = append(all, d.folder(st, "source-"+name, d.cfg.Dir.Source(st.ID, name)))
	}
	return all
}

// isShared reports whether an image is a base image.
func isShared(ref string) bool { return strings.HasPrefix(ref, "berth/base-") }

// dataTag is of one expiry, so that the data of an earlier one is not taken for it.
func dataTag(st *stack.Stack, service string) string {
	return "data-" + service + "-" + strconv.FormatInt(st.ExpiredAt.UnixMicro(), 10)
}

// image is an image of a stack, as in berth/3f2a9c1b7d4e-web:g3, whose tag is web-g3.
func (d *Depot) image(st *stack.Stack, ref string) item {
	tag := strings.ReplaceAll(strings.TrimPrefix(ref, "berth/"+st.Hex()+"-"), ":", "-")
	return item{
		tag: tag,
		push: func(ctx context.Context, st *stack.Stack) error {
			return d.cfg.Engine.Push(ctx, ref, d.cfg.Registry.StackImage(st.ID, tag), d.cfg.Registry.Login())
		},
		bring: func(ctx context.Context) error {
			there, err := d.cfg.Engine.HasImage(ctx, ref)
			if err != nil || there {
				return err
			}
			return d.cfg.Engine.Fetch(ctx, d.cfg.Registry.StackImage(st.ID, tag), ref, d.cfg.Registry.Login())
		},
	}
}

// folder is a folder of the data directory.
func (d *Depot) folder(st *stack.Stack, tag, path string) item {
	return item{
		tag: tag,
		push: func(ctx context.Context, st *stack.Stack) error {
			return d.cfg.Registry.Put(ctx, st.ID, tag, st.DataKey, func(_ context.Context, w io.Writer) error {
				return packFolder(w, path)
			})
		},
		bring: func(ctx context.Context) error {
			if _, err := os.Lstat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return d.cfg.Registry.Get(ctx, st.ID, tag, st.DataKey, func(r io.Reader) error {
				return unpackFolder(path, r)
			})
		},
	}
}

// data is what a service has in $DATA_DIR. One that has nothing is not kept.
func (d *Depot) data(st *stack.Stack, s *stack.Service, tag string) item {
	key := engine.Key{Stack: st.ID, Service: s.Spec.Name}
	return item{tag: tag, push: func(ctx context.Context, st *stack.Stack) error {
		err := d.cfg.Registry.Put(ctx, st.ID, tag, st.DataKey, func(ctx context.Context, w io.Writer) error {
			return d.cfg.Engine.ReadData(ctx, key, s.Image, w)
		})
		if errors.Is(err, engine.ErrNotFound) {
			return nil
		}
		return err
	}}
}

// Push pushes what the registry lacks of a stack now, and returns when it is there.
func (d *Depot) Push(ctx context.Context, st *stack.Stack) error { return d.compare(ctx, st) }

// KeepLive puts the data of a service that runs into the registry, in place of what it put
// there before. The caller sees to it that nothing writes to it meanwhile, if that matters.
func (d *Depot) KeepLive(ctx context.Context, st *stack.Stack, s *stack.Service) error {
	st, err := d.begin(ctx, st)
	if err != nil {
		return err
	}
	return d.data(st, s, liveTag+s.Spec.Name).push(ctx, st)
}

// Bring brings the images, sites and source of a stack's generation to this node, unless they
// are here. The error is registry.ErrNotFound or engine.ErrNotFound for what was never pushed.
func (d *Depot) Bring(ctx context.Context, st *stack.Stack) error {
	for _, i := range d.items(st) {
		if i.bring == nil {
			continue
		}
		if err := i.bring(ctx); err != nil {
			return fmt.Errorf("bring %s: %w", i.tag, err)
		}
	}
	return nil
}

// BringData fills the data volume of a service with what the registry has: of the expiry if
// the stack is expired, otherwise what KeepLive put there. The image must be here. The error
// is registry.ErrNotFound if it has nothing.
func (d *Depot) BringData(ctx context.Context, st *stack.Stack, s *stack.Service) error {
	tag := liveTag + s.Spec.Name
	if st.Status == stack.Expired {
		tag = dataTag(st, s.Spec.Name)
	}
	key := engine.Key{Stack: st.ID, Service: s.Spec.Name}
	return d.cfg.Registry.Get(ctx, st.ID, tag, st.DataKey, func(r io.Reader) error {
		return d.cfg.Engine.FillData(ctx, key, s.Image, key.Process(s.Replaced), r)
	})
}
