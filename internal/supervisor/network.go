package supervisor

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// networkOf returns the name of the network of a stack's served generation.
func networkOf(st *stack.Stack, there engine.Objects) string {
	key := engine.Key{Stack: st.ID, Generation: st.Generation.Number}
	own, former := key.Network(), key.FormerNetwork()
	if there.HasNetwork(former) && !there.HasNetwork(own) {
		return former
	}
	return own
}

// ensureNetwork makes the network that databases are on, if the generation has any, and the
// generation's own network, unless the generation is on the former one: if that is gone, the
// next attempt has its own network.
func (g *generation) ensureNetwork(ctx context.Context) error {
	var err error
	if g.network == g.key("").Network() {
		err = g.place(ctx, g.key(""))
	}
	if err == nil && hasDatabases(&g.made) {
		err = g.place(ctx, g.key("").Shared())
	}
	if err != nil {
		return err
	}
	return g.admitMail(ctx)
}

// ensureBuildNetwork makes the network of the generation's builds.
func (g *generation) ensureBuildNetwork(ctx context.Context) error {
	if err := g.place(ctx, g.key("").Builds()); err != nil {
		return err
	}
	return g.admitMail(ctx)
}

// buildNetwork returns the name of the network of the generation's builds.
func (g *generation) buildNetwork() string { return g.key("").Builds().Network() }

// makeNetworks makes that network and the generation's own, the first time.
func (g *generation) makeNetworks(ctx context.Context) error {
	if err := g.makeBuildNetwork(ctx); err != nil {
		return err
	}
	return g.makeNetwork(ctx)
}

// place makes a network. If none is free, those that are held for next deploys are given
// back.
func (g *generation) place(ctx context.Context, key engine.Key) error {
	err := g.cfg.Engine.Place(ctx, key, g.st.Seq)
	if errors.Is(err, engine.ErrNoNetwork) && !g.ahead {
		g.runner.sup.discardReady(ctx)
		err = g.cfg.Engine.Place(ctx, key, g.st.Seq)
	}
	if errors.Is(err, engine.ErrNoNetwork) {
		return stack.NewError(stack.Unavailable, "no network is free on this host; delete a stack or try again later")
	}
	return err
}

// admitMail makes the firewall know the network of a claimed stack before anything runs
// in it.
func (g *generation) admitMail(ctx context.Context) error {
	st, err := g.runner.get(ctx) // it may have been claimed since the handle was created
	if err == nil && st.Claimed() {
		g.cfg.Admission.Guard(ctx)
	}
	return err
}

// removeNetworks gives back the subnets of a stack that runs nothing, except the spared
// ones.
func (r *runner) removeNetworks(ctx context.Context, st *stack.Stack) {
	ctx = context.WithoutCancel(ctx)
	networks, err := r.cfg.Engine.Networks(ctx, engine.Key{Stack: r.id})
	networks = slices.DeleteFunc(networks, func(n engine.Network) bool { return r.sup.sparesRunning(st, n.Key) })
	if err = errors.Join(err, r.cfg.Engine.Discard(ctx, engine.Objects{Networks: networks})); err != nil {
		r.log.Warn("networks of a stopped stack not removed", "error", err)
	}
}

// needsNetwork reports whether anything of the generation runs.
func (g *generation) needsNetwork() bool {
	return g.hasService(func(spec *stack.Spec) bool { return !spec.IsStatic() })
}

// builds reports whether the generation has builds that run commands.
func (g *generation) builds() bool { return g.hasService((*stack.Spec).Builds) }

func (g *generation) hasService(is func(*stack.Spec) bool) bool {
	for i := range g.made.Services { // by index: a build writes to its service meanwhile
		if is(&g.made.Services[i].Spec) {
			return true
		}
	}
	return false
}

// discardNetwork removes the network of the generation.
func (g *generation) discardNetwork(ctx context.Context) error {
	return g.cfg.Engine.Discard(ctx, engine.Objects{Networks: []engine.Network{{Name: g.network}}})
}

// once returns a function that runs fn the first time it is called. Every caller waits
// for that, unless its context ends first, and gets its error.
func once(fn func(context.Context) error) func(context.Context) error {
	var begun atomic.Bool
	var err error
	done := make(chan struct{})
	return func(ctx context.Context) error {
		if begun.CompareAndSwap(false, true) {
			err = fn(ctx)
			close(done)
			return err
		}
		select {
		case <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
