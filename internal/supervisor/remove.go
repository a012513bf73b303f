package supervisor

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// objects are what there is of one stack.
type objects struct {
	containers []docker.Container
	images     []docker.ImageInfo
	volumes    []docker.Volume
	networks   []docker.Network
	sites      []string // folders of published sites; inventories leave them out
}

// none tells whether there is nothing.
func (o objects) none() bool {
	return len(o.containers)+len(o.images)+len(o.volumes)+len(o.networks)+len(o.sites) == 0
}

// names are those by which an operator finds the objects.
func (o objects) names() []string {
	var names []string
	for _, c := range o.containers {
		names = append(names, c.Name)
	}
	for _, v := range o.volumes {
		names = append(names, v.Name)
	}
	for _, image := range o.images {
		if len(image.Tags) == 0 {
			names = append(names, image.ID)
		}
		names = append(names, image.Tags...)
	}
	for _, n := range o.networks {
		names = append(names, n.Name)
	}
	return append(names, o.sites...)
}

// container finds one by name; the zero Container when there is none.
func (o objects) container(name string) docker.Container {
	for _, c := range o.containers {
		if c.Name == name {
			return c
		}
	}
	return docker.Container{}
}

// inventory is what the engine has of this installation, by stack id.
type inventory map[string]objects

// takeInventory asks the engine for all that carries the installation's label.
func (s *Supervisor) takeInventory(ctx context.Context) (inventory, error) {
	return s.list(ctx, engine.Key{}.Labels(s.cfg.Instance))
}

// awaitInventory is takeInventory, again until the engine answers or ctx ends. It
// finds out as well where the engine keeps its files and what it can do.
func (s *Supervisor) awaitInventory(ctx context.Context) (inventory, error) {
	for {
		there, err := s.takeInventory(ctx)
		engine, infoErr := s.cfg.Engine.Info(ctx)
		if err = errors.Join(err, infoErr); err == nil {
			s.attaches = engine.Attaches(s.cfg.Runtime)
			return there, nil
		}
		if ctx.Err() == nil {
			s.cfg.Log.Warn("the engine does not say what it has; asking again", "error", err)
		}
		if !pause.For(ctx, hostRetry) {
			return nil, ctx.Err()
		}
	}
}

// list asks the engine for all that carries labels, for listWait at most.
func (s *Supervisor) list(ctx context.Context, labels docker.Labels) (inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	there := inventory{}
	note := func(labels docker.Labels, add func(*objects)) {
		if id := engine.KeyOf(labels).Stack; id != "" {
			o := there[id]
			add(&o)
			there[id] = o
		}
	}
	containers, err1 := s.cfg.Engine.List(ctx, labels)
	for _, c := range containers {
		note(c.Labels, func(o *objects) { o.containers = append(o.containers, c) })
	}
	images, err2 := s.cfg.Engine.Images(ctx, labels)
	for _, i := range images {
		note(i.Labels, func(o *objects) { o.images = append(o.images, i) })
	}
	volumes, err3 := s.cfg.Engine.Volumes(ctx, labels)
	for _, v := range volumes {
		note(v.Labels, func(o *objects) { o.volumes = append(o.volumes, v) })
	}
	networks, err4 := s.cfg.Engine.Networks(ctx, labels)
	for _, n := range networks {
		note(n.Labels, func(o *objects) { o.networks = append(o.networks, n) })
	}
	return there, errors.Join(err1, err2, err3, err4)
}

// stackLabels select everything of a stack.
func (s *Supervisor) stackLabels(st *stack.Stack) engine.Labels {
	return engine.Key{Stack: st.ID}.Labels(s.cfg.Instance)
}

// removeStack removes everything of a stack.
func (s *Supervisor) removeStack(ctx context.Context, st *stack.Stack) error {
	there, err := s.list(ctx, s.stackLabels(st))
	err = errors.Join(err, s.removeObjects(ctx, there[st.ID]))
	failpoint.Here("objects-removed")
	return errors.Join(err, s.cfg.Dir.Remove(st.ID))
}

// removeObjects removes containers first, for they hold the rest. It goes on
// after an error, to leave as little as possible.
func (s *Supervisor) removeObjects(ctx context.Context, o objects) error {
	var errs []error
	for _, c := range o.containers {
		errs = append(errs, s.cfg.Engine.Remove(ctx, c.ID))
		failpoint.Here("container-removed")
	}
	for _, image := range o.images {
		errs = append(errs, s.removeImage(ctx, image))
	}
	for _, v := range o.volumes {
		errs = append(errs, s.cfg.Engine.RemoveVolume(ctx, v.Name))
	}
	for _, n := range o.networks {
		errs = append(errs, s.cfg.Engine.RemoveNetwork(ctx, n.Name))
	}
	for _, site := range o.sites {
		errs = append(errs, os.RemoveAll(site))
	}
	return errors.Join(errs...)
}

// removeImage removes an image by each of its names; by its id when it has
// none.
func (s *Supervisor) removeImage(ctx context.Context, image docker.ImageInfo) error {
	if len(image.Tags) == 0 {
		return s.cfg.Engine.RemoveImage(ctx, image.ID)
	}
	var errs []error
	for _, tag := range image.Tags {
		errs = append(errs, s.cfg.Engine.RemoveImage(ctx, tag))
	}
	return errors.Join(errs...)
}

// stopAndRemove ends what runs in a container whose data stays, in the time that
// it was made with unless ctx ends before, and removes the container.
func (s *Supervisor) stopAndRemove(ctx context.Context, id string) error {
	if err := s.cfg.Engine.Stop(ctx, id); err != nil {
		return err
	}
	return s.cfg.Engine.Remove(context.WithoutCancel(ctx), id)
}

// stopAll stops and removes containers side by side.
func (s *Supervisor) stopAll(ctx context.Context, containers []docker.Container) error {
	return sideBySide(containers, func(c docker.Container) error { return s.stopAndRemove(ctx, c.ID) })
}

// stopLabelled stops and removes every container that carries the labels.
func (s *Supervisor) stopLabelled(ctx context.Context, labels docker.Labels) error {
	containers, err := s.cfg.Engine.List(ctx, labels)
	return errors.Join(err, s.stopAll(ctx, containers))
}

// stopStack stops and removes the containers of a stack that are not spared.
func (s *Supervisor) stopStack(ctx context.Context, st *stack.Stack) error {
	containers, err := s.cfg.Engine.List(ctx, s.stackLabels(st))
	containers = slices.DeleteFunc(containers, func(c docker.Container) bool { return s.sparesRunning(st, c.Labels) })
	return errors.Join(err, s.stopAll(ctx, containers))
}

// removeEarlier removes what is left of generations before the served one, and
// nothing of the next one, which may be being built; of a stack that serves none
// and could not, all there is that is not spared.
func (r *runner) removeEarlier(ctx context.Context, st *stack.Stack) {
	earlier := func(number int) bool {
		return number < st.Generation || !st.Built() && !r.sup.spares(st, number)
	}
	err := r.sup.outlast(ctx, func() error {
		ctx := context.WithoutCancel(ctx)
		there, err := r.sup.list(ctx, r.labels(""))
		left := objects{images: tagged(there[st.ID].images, isLeftover(earlier)), sites: r.cfg.Dir.Sites(st.ID, earlier)}
		return errors.Join(err, r.sup.removeObjects(ctx, left))
	})
	if err != nil {
		r.log.Error("earlier generation not removed; the next start tries again", "error", err)
	}
}

// leftovers returns what a stack at rest does not need: every generation but the one
// that it serves or would serve, containers and networks unless it is live, and what
// a build or a restore left behind. Its data never counts, nor does what is spared.
func (s *Supervisor) leftovers(st *stack.Stack, there objects) objects {
	var left objects
	for _, c := range there.containers {
		key := engine.Key{Stack: st.ID, Service: engine.KeyOf(c.Labels).Service, Generation: st.Generation}
		service := st.Service(key.Service)
		current := st.Status == stack.Live && service != nil && c.Name == key.Process(service.Replaced)
		if !current && !s.sparesRunning(st, c.Labels) {
			left.containers = append(left.containers, c)
		}
	}
	left.images = tagged(there.images, isLeftover(s.superseded(st)))
	for _, n := range there.networks {
		current := st.Status == stack.Live && n.Name == networkOf(st, there)
		if !current && !s.sparesRunning(st, n.Labels) {
			left.networks = append(left.networks, n)
		}
	}
	left.sites = s.cfg.Dir.Sites(st.ID, s.superseded(st))
	return left
}

// superseded returns a function that reports whether a stack at rest can do without
// a generation.
func (s *Supervisor) superseded(st *stack.Stack) func(number int) bool {
	return func(number int) bool {
		return (number != st.Generation || !st.Built()) && !s.spares(st, number)
	}
}

// tagged are the images by those of their names that match.
func tagged(images []docker.ImageInfo, match func(tag string) bool) []docker.ImageInfo {
	var found []docker.ImageInfo
	for _, image := range images {
		image.Tags = slices.DeleteFunc(slices.Clone(image.Tags), func(tag string) bool { return !match(tag) })
		if len(image.Tags) > 0 {
			found = append(found, image)
		}
	}
	return found
}

// ofGeneration matches the names of builds of the generations that which accepts.
func ofGeneration(which func(number int) bool) func(tag string) bool {
	return func(tag string) bool {
		number, ok := engine.GenerationOf(tag)
		return ok && which(number)
	}
}

// isLeftover is ofGeneration, and matches snapshots that are back in their volumes.
func isLeftover(which func(number int) bool) func(tag string) bool {
	return func(tag string) bool { return engine.IsRestored(tag) || ofGeneration(which)(tag) }
}

// removeLeftovers removes the leftovers of a stack if an inventory had any; by now
// there may be others. Nothing else may be done with the stack meanwhile. What stays
// is tried again by watchLeftovers.
func (r *runner) removeLeftovers(ctx context.Context, st *stack.Stack, seen objects) {
	if r.sup.leftovers(st, seen).none() {
		return
	}
	there, err := r.sup.list(ctx, r.labels(""))
	left := r.sup.leftovers(st, there[st.ID])
	err = errors.Join(err, r.sup.stopAll(ctx, left.containers))
	if ctx.Err() != nil {
		return // whoever ended it needs the rest as it is
	}
	left.containers = nil
	err = errors.Join(err, r.sup.removeObjects(context.WithoutCancel(ctx), left))
	if err != nil {
		r.log.Warn("leftovers not removed; trying again later", "error", err)
	}
}

// tidy removes the leftovers of a stack that nothing is being done with, and
// keeps the data of an expired one where that failed before.
func (s *Supervisor) tidy(st *stack.Stack, there objects) {
	if s.leftovers(st, there).none() && (st.Status != stack.Expired || len(there.volumes) == 0) {
		return
	}
	r := s.lookup(st.ID)
	if r == nil {
		return // it is deleted meanwhile
	}
	r.startIdle(func(ctx context.Context) {
		st, err := r.get(ctx) // it may have changed before this job began
		if err != nil || st.Deploying != 0 || st.Restoring() {
			return
		}
		r.removeLeftovers(ctx, st, there)
		r.keepData(ctx)
	})
}
