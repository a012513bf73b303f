// Package firewall walls off the networks of stacks. What runs in one reaches
// the containers of its own network, public addresses and DNS; not other stacks,
// not this machine on any of its addresses, not private, link-local, metadata or
// multicast ranges, and no mail port unless somebody has claimed the stack.
//
// All stacks' interfaces share the prefix engine.BridgePrefix, so the rules are the same
// few for thousands of stacks and for every installation on one engine. They are
// chains of their own in the table mangle, whose verdict to drop nothing in the
// table filter takes back: neither the engine, which puts its own rules there
// first with each network it makes, nor another firewall manager. What the
// operator lets stacks reach besides, and the stacks that may send mail, are two
// more chains, which all installations fill.
package firewall

import (
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

// Options are what a Firewall works with.
type Options struct {
	// Open are the hosts, as host:port, that stacks may reach although they are
	// on this machine or in a range that is not public: package mirrors.
	Open []string
	// Bridges names the interfaces of the engine's networks, by which it is
	// seen whether the engine's containers are on this machine's network.
	Bridges func(context.Context) ([]string, error)
	Log     *slog.Logger
}

// Firewall keeps the rules of this machine in place.
type Firewall struct {
	opts Options

	mu       sync.Mutex
	here     bool // the engine's networks were seen on this machine
	families []*family
	resolved map[string][]netip.Addr // of the hosts in Open, when they last resolved
}

// New returns a Firewall that has done nothing yet; see Apply.
func New(opts Options) *Firewall {
	return &Firewall{opts: opts, families: families(), resolved: map[string][]netip.Addr{}}
}

// Apply checks the rules and puts right, in one step, what is missing or changed.
// The stacks on the interfaces mail may send mail. An error says why stacks are
// not, or may not be, walled off.
func (f *Firewall) Apply(ctx context.Context, mail []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.checkHere(ctx); err != nil {
		return err
	}
	open := f.endpoints(ctx)
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	names, err := interfaces()
	if err != nil {
		return err
	}
	want := wanted{open: open, mail: intersect(mail, names), present: names, now: time.Now()}
	for _, fam := range f.families {
		changed, err := fam.ensure(ctx, want)
		if err != nil {
			return err
		}
		if changed {
			f.opts.Log.Info("firewall rules of stacks' networks put in place", "with", fam.restore)
		}
	}
	return nil
}

// checkHere reports whether the engine's containers are on the network of this
// process: an engine on another machine, or a server in a container with a
// network of its own, would make the rules lie.
func (f *Firewall) checkHere(ctx context.Context) error {
	if f.here {
		return nil // and an engine does not move, though it may not answer for a while
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

// lock keeps other installations on this machine from changing rules until
// unlock is called. It is on the network namespace, whose rules they are.
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

// interfaces names this machine's network interfaces.
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

// intersect is what is in both lists, in the order of the first.
func intersect(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}
