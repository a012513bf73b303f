// Package firewall isolates the networks of stacks. A container in one reaches the
// containers of its network, public addresses and DNS. It does not reach other stacks,
// this machine on any of its addresses, private, link-local, metadata or multicast
// ranges, or, unless somebody has claimed the stack, any mail port.
//
// All stacks' interfaces share the prefix engine.BridgePrefix, so the same few rules
// serve thousands of stacks and every installation on an engine. The rules are separate
// chains in the table mangle. Nothing in the table filter can undo a drop there:
// neither the engine, which puts its rules first with each network it makes, nor
// another firewall manager. Five more chains, which all installations fill, hold the
// other addresses that the operator lets stacks reach, those that only builds reach, the
// stacks that may send mail, and what stays closed although it may be public: the registry,
// the database and Redis of an installation, and its nodes. The interfaces of builds have the
// longer prefix engine.BuildBridgePrefix.
//
// New connections that lead out of a network are limited for each network, by a rate. Those
// that the host opens to stacks are not, and neither are those within a network, of which a chain
// in the table raw keeps the kernel from counting any.
//
// Code in this package changes these chains and nothing else. It reads the machine's
// chains, interfaces and name servers, resolves the hosts that stacks may reach, and
// locks the network namespace while it changes rules.
package firewall

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Options configure a Firewall.
type Options struct {
	// Open lists the hosts, as host:port, that stacks may reach although they are on
	// this machine or in a range that is not public, and Build those that only builds may:
	// package mirrors.
	Open, Build []string
	// Pool has the networks of the installation's stacks. It may be the zero Prefix.
	Pool netip.Prefix
	// Shut returns the hosts, as host:port, that no stack may reach, wherever they are and
	// whatever is open: the installation's own registry, database and Redis, and the ports
	// of its nodes' peers. It may be nil.
	Shut func() []string
	// Nodes returns the machines of the installation, by name or address. Stacks reach
	// nothing on them but what is open. It may be nil.
	Nodes func() []string
	// Bridges returns the interfaces of the engine's networks. They show whether the
	// engine's containers are on this machine's network.
	Bridges func(context.Context) ([]string, error)
	Log     *slog.Logger
}

// Firewall keeps the rules of this machine in place.
type Firewall struct {
	opts Options

	mu       sync.Mutex
	here     bool // the engine's networks were seen on this machine
	families []*family
	resolved map[string][]netip.Addr // of all hosts, when they last resolved
}

// New returns a Firewall that has not changed any rules yet; see Apply.
func New(opts Options) *Firewall {
	return &Firewall{opts: opts, families: families(), resolved: map[string][]netip.Addr{}}
}

// Apply checks the rules and corrects, in one step, what is missing or changed. The
// stacks on the interfaces mail may send mail. The error says why stacks are not, or
// may not be, isolated.
func (f *Firewall) Apply(ctx context.Context, mail []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.checkHere(ctx); err != nil {
		return err
	}
	open, build, shut, nodes := f.openTo(ctx, resolvers(resolverFiles), f.opts.Open), f.openTo(ctx, nil, f.opts.Build), f.shut(ctx), f.nodes(ctx)
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	names, err := interfaces()
	if err != nil {
		return err
	}
	want := wanted{open: open, build: build, shut: shut, nodes: nodes, pool: f.opts.Pool, mail: intersect(mail, names), present: names, now: time.Now()}
	found, err := f.readAll(ctx)
	if err != nil {
		return err
	}
	for i, fam := range f.families {
		changed, err := fam.ensure(ctx, found[i], want)
		if err != nil {
			return err
		}
		if changed {
			f.opts.Log.Info("firewall rules of stacks' networks put in place", "with", fam.restore)
		}
	}
	return nil
}

// readAll returns the rules that are there, by family. That takes a program for each, which a server
// that starts waits for.
func (f *Firewall) readAll(ctx context.Context) ([]rules, error) {
	waits := make([]func() (rules, error), len(f.families))
	for i, fam := range f.families {
		waits[i] = fam.startRead(ctx)
	}
	found := make([]rules, len(f.families))
	var fault error
	for i, wait := range waits {
		var err error
		found[i], err = wait()
		fault = cmp.Or(fault, err)
	}
	return found, fault
}

// checkHere checks that the engine's containers are on the network of this process.
// With an engine on another machine, or a server in a container with its own network,
// the rules would have no effect.
func (f *Firewall) checkHere(ctx context.Context) error {
	if f.here {
		return nil // an engine does not move, though it may not answer for a while
	}
	bridges, err := f.opts.Bridges(ctx)
	if err != nil {
		return fmt.Errorf("firewall: %w", err)
	}
	names, err := interfaces()
	if err != nil {
		return err
	}
	if len(bridges) > 0 && len(intersect(bridges, names)) == 0 {
		return fmt.Errorf("firewall: the engine's networks (%s) are not on this machine; run the server where the engine runs, in a container with the host's network", bridges[0])
	}
	f.here = len(bridges) > 0
	return nil
}

// lock keeps other installations on this machine from changing rules until unlock is
// called. It locks the network namespace, to which the rules belong.
func lock() (unlock func(), err error) {
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("firewall: %w", err)
	}
	if err := syscall.Flock(int(namespace.Fd()), syscall.LOCK_EX); err != nil {
		_ = namespace.Close() // it was only read
		return nil, fmt.Errorf("firewall: lock the network namespace: %w", err)
	}
	return func() { _ = namespace.Close() }, nil
}

// interfaces returns the names of this machine's network interfaces.
func interfaces() ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("firewall: list the network interfaces: %w", err)
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, nil
}

// intersect returns what is in both lists, in the order of the first.
func intersect(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}
