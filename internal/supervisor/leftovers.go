package supervisor

import (
	"context"
	"errors"
	"slices"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// leftovers are the parts of a stack that are to be removed.
type leftovers struct {
	objects engine.Objects
	files   []string // folders of published sites and of sources
}

// none reports whether there are none.
func (l leftovers) none() bool { return l.objects.IsEmpty() && len(l.files) == 0 }

// names returns the names by which an operator finds the leftovers.
func (l leftovers) names() []string { return append(l.objects.Names(), l.files...) }

// discardLeftovers removes all leftovers. It goes on after an error, so that as little
// as possible stays.
func (s *Supervisor) discardLeftovers(ctx context.Context, left leftovers) error {
	return errors.Join(s.cfg.Engine.Discard(ctx, left.objects), s.removeFolders(left.files...))
}

// removeStack removes everything that there is of a stack.
func (r *runner) removeStack(ctx context.Context) error {
	there, err := r.inventory(ctx)
	err = errors.Join(err, r.cfg.Engine.Discard(ctx, there))
	failpoint.Here("objects-removed")
	return errors.Join(err, r.cfg.Dir.Remove(r.id))
}

// stopAndRemove ends what runs in a container, within the time set when it was made
// unless ctx ends first, and removes the container. Data stays.
func (s *Supervisor) stopAndRemove(ctx context.Context, id string) error {
	if err := s.cfg.Engine.Stop(ctx, id); err != nil {
		return err
	}
	return s.cfg.Engine.Remove(context.WithoutCancel(ctx), id)
}

// stopAll stops and removes containers: side by side, and those that outlive generations last.
func (s *Supervisor) stopAll(ctx context.Context, containers []engine.Container) error {
	outlives := func(c engine.Container) bool { return c.Key.Generation == 0 } // databases, for one
	return endInTurn(containers, outlives, func(c engine.Container) error { return s.stopAndRemove(ctx, c.ID) })
}

// stopContainers stops and removes every container of a key.
func (s *Supervisor) stopContainers(ctx context.Context, key engine.Key) error {
	containers, err := s.cfg.Engine.Containers(ctx, key)
	return errors.Join(err, s.stopAll(ctx, containers))
}

// stopStack stops and removes the containers of a stack, except the spared ones.
func (s *Supervisor) stopStack(ctx context.Context, st *stack.Stack) error {
	containers, err := s.cfg.Engine.Containers(ctx, engine.Key{Stack: st.ID})
	containers = slices.DeleteFunc(containers, func(c engine.Container) bool { return s.sparesRunning(st, c.Key) })
	return errors.Join(err, s.stopAll(ctx, containers))
}

// removeEarlier removes what is left of generations before the served one, and of
// attempts before its own. It does not touch the next one, which may be under
// construction. If the stack has never been built, it removes all that is not spared.
func (r *runner) removeEarlier(ctx context.Context, st *stack.Stack) {
	earlier := func(number int) bool {
		return number < st.Generation.Number || !st.Generation.Built() && !r.sup.spares(st, number)
	}
	unused := unused{st, st.ExplainsAttempt}
	err := r.sup.retryEngine(ctx, func() error {
		there, err := r.inventory(context.WithoutCancel(ctx))
		err = errors.Join(err, r.sup.stopAll(ctx, containersOf(there.Containers, earlier)))
		left := leftovers{
			objects: engine.Objects{Images: tagged(there.Images, unused.imageOrCopy)},
			files:   r.cfg.Dir.Sites(st.ID, unused.site),
		}
		return errors.Join(err, r.sup.discardLeftovers(context.WithoutCancel(ctx), left))
	})
	if err != nil {
		r.log.Error("earlier generation not removed; the next start tries again", "error", err)
	}
}

// leftovers returns what a stack at rest does not need: every generation but the one
// that it serves or would serve, containers and networks unless it is live, build caches
// that its row does not name, and what a build or a restore left behind. Data and what is
// spared are never leftovers.
func (s *Supervisor) leftovers(st *stack.Stack, there engine.Objects) leftovers {
	var left leftovers
	left.objects.Containers = slices.DeleteFunc(slices.Clone(there.Containers), func(c engine.Container) bool {
		service := st.Service(c.Key.Service)
		current := st.Status == stack.Live && service != nil && c.Name == processName(st.ID, service, st.Generation.Number)
		return current || s.sparesRunning(st, c.Key)
	})
	unused := unused{st, func(attempt int) bool { return !s.sparesAttempt(st, attempt) }}
	left.objects.Images = tagged(there.Images, unused.imageOrCopy)
	left.objects.Networks = slices.DeleteFunc(slices.Clone(there.Networks), func(n engine.Network) bool {
		shared := hasDatabases(&st.Generation) && n.Key == n.Key.Shared() && n.Name == n.Key.Network()
		current := st.Status == stack.Live && (shared || n.Name == networkOf(st, there))
		return current || s.sparesRunning(st, n.Key) && hasContainers(there, n.Key.Generation)
	})
	left.objects.Volumes = slices.DeleteFunc(slices.Clone(there.Volumes), func(v engine.Volume) bool { return isNeeded(st, v, there.Volumes) })
	left.files = s.cfg.Dir.Sites(st.ID, unused.site)
	left.files = append(left.files, s.cfg.Dir.Listings(st.ID, func(digest string) bool { return !st.KeepsListing(digest) })...)
	return left
}

// hasContainers reports whether there are containers of a generation. Without, a network
// that the row does not explain was made ahead of a deploy.
func hasContainers(there engine.Objects, number int) bool {
	return slices.ContainsFunc(there.Containers, func(c engine.Container) bool { return c.Key.Generation == number })
}

// isNeeded reports whether a volume, one of all that there are, has data, or build caches
// that the next build uses. Another data volume than the one that the row names is needed
// while that one is missing: the row may be that of an earlier copy of the database.
func isNeeded(st *stack.Stack, v engine.Volume, all []engine.Volume) bool {
	if number, isData := v.Key.DataNumber(v.Name); isData {
		data := dataKey(st, v.Key.Service)
		return number == data.Volume || !hasVolume(all, data)
	}
	return v.Name == v.Key.Cache(st.CachesDropped) && st.KeepsCaches(v.Key.Service)
}

// unused selects what the attempts that which accepts have made, if the row does not name
// it.
type unused struct {
	row   *stack.Stack
	which func(attempt int) bool
}

// image reports whether an image is unused.
func (u unused) image(tag string) bool {
	attempt, ok := engine.AttemptOf(tag)
	return ok && u.which(attempt) && !u.row.KeepsImage(tag)
}

// imageOrCopy is image, and also selects a snapshot whose data is back in its volume, and the
// name of an image in the registry. Without that name a push that is under way goes on.
func (u unused) imageOrCopy(tag string) bool {
	return engine.IsRestored(tag) || engine.IsRemote(tag) || u.image(tag)
}

// site reports whether a published folder is unused.
func (u unused) site(service string, attempt int) bool {
	return u.which(attempt) && !u.row.Generation.UsesSite(service, attempt)
}

// containersOf returns the containers of the generations that which accepts. What a build
// or a restore left is of generation 0, and never among them.
func containersOf(containers []engine.Container, which func(number int) bool) []engine.Container {
	return slices.DeleteFunc(slices.Clone(containers), func(c engine.Container) bool {
		return c.Key.Generation == 0 || !which(c.Key.Generation)
	})
}

// tagged returns the images that have a matching tag, with these tags alone.
func tagged(images []engine.Image, match func(tag string) bool) []engine.Image {
	var found []engine.Image
	for _, image := range images {
		image.Tags = slices.DeleteFunc(slices.Clone(image.Tags), func(tag string) bool { return !match(tag) })
		if len(image.Tags) > 0 {
			found = append(found, image)
		}
	}
	return found
}

// removeLeftovers removes the leftovers of a stack if an inventory had any, after a new
// look. Nothing else may be done with the stack meanwhile. watchLeftovers tries again
// what could not be removed.
func (r *runner) removeLeftovers(ctx context.Context, st *stack.Stack, seen engine.Objects) {
	if r.sup.leftovers(st, seen).none() {
		return
	}
	there, err := r.inventory(ctx)
	left := r.sup.leftovers(st, there)
	err = errors.Join(err, r.sup.stopAll(ctx, left.objects.Containers))
	if ctx.Err() != nil {
		return // whoever ended it needs the rest as it is
	}
	left.objects.Containers = nil
	err = errors.Join(err, r.sup.discardLeftovers(context.WithoutCancel(ctx), left))
	if err != nil {
		r.log.Warn("leftovers not removed; trying again later", "error", err)
	}
}
