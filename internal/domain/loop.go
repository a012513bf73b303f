package domain

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

const (
	// mostTick is the longest time between two looks for checks that are due.
	mostTick = 5 * time.Second
	// atOnce is how many checks, and how many orders, are made at the same time.
	atOnce = 8
	// putOff is how long a check that was taken is not taken again, even if its server dies.
	putOff = time.Minute
	// breath is the time between two reads of the active domains, while stacks change.
	breath = time.Second
	// wholeEvery is how often the active domains are read, whatever was missed.
	wholeEvery = 30 * time.Second
)

// Run checks domains when that is due, orders their certificates, and routes what becomes
// active, until ctx ends.
func (d *Domains) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { d.follow(ctx) })
	running.Go(func() { d.keepSwept(ctx) })
	tick := time.NewTicker(min(mostTick, d.cfg.Times.PendingEvery/2))
	defer tick.Stop()
	for ctx.Err() == nil {
		d.checkDue(ctx)
		d.orderDue(ctx, &running)
		select {
		case <-tick.C:
		case <-d.woken:
		case <-ctx.Done():
		}
	}
	running.Wait()
}

// checkDue makes the checks that are due.
func (d *Domains) checkDue(ctx context.Context) {
	due, err := d.cfg.Store.TakeDueDomains(ctx, stack.Now(), putOff, atOnce)
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.Warn("the domains whose check is due could not be read; the next look tries again", "error", err)
	}
	var checks sync.WaitGroup
	for _, of := range due {
		checks.Go(func() {
			if _, err := d.check(ctx, of, false); err != nil && ctx.Err() == nil && stack.KindOf(err) != stack.NotFound {
				d.cfg.Log.Warn("a domain was not checked; trying again", "host", of.Host, "stack", of.StackID, "error", err)
			}
		})
	}
	checks.Wait()
}

// check checks a domain and records what is found.
func (d *Domains) check(ctx context.Context, of stack.Domain, asked bool) (stack.Domain, error) {
	found := d.look(ctx, of)
	if ctx.Err() != nil {
		return stack.Domain{}, ctx.Err()
	}
	before, now := of.Status, stack.Now()
	after, err := d.cfg.Store.UpdateDomain(ctx, of.StackID, of.Host, func(domain, holder *stack.Domain) error {
		before = domain.Status
		if asked {
			domain.Asked(now)
		}
		domain.Checked(found, holder, d.cfg.Times, now)
		return nil
	})
	if err != nil || after.Status == before {
		return after, err
	}
	d.cfg.Log.Info("domain changed", "host", after.Host, "stack", after.StackID, "from", before, "to", after.Status, "reason", after.Reason)
	d.wake() // a certificate is to be ordered
	return after, d.Load(ctx)
}

// follow keeps the routes up to date.
func (d *Domains) follow(ctx context.Context) {
	woken, stop := d.cfg.Store.Watch("")
	defer stop()
	whole := time.NewTicker(wholeEvery)
	defer whole.Stop()
	for {
		select {
		case <-woken:
		case <-whole.C:
		case <-ctx.Done():
			return
		}
		if err := d.Load(ctx); err != nil && ctx.Err() == nil {
			d.cfg.Log.Warn("the active domains could not be read; the next change or look tries again", "error", err)
		}
		pause.For(ctx, breath)
	}
}

// Load reads the active domains and routes them. The certificates of those that were removed go.
func (d *Domains) Load(ctx context.Context) error {
	d.loading.Lock()
	defer d.loading.Unlock()
	all, err := d.cfg.Store.ActiveDomains(ctx)
	if err != nil {
		return err
	}
	hosts := make(map[string]string, len(all))
	for _, of := range all {
		hosts[of.Host] = d.cfg.URLs.Hostname(&stack.Stack{ID: of.StackID}, of.Service)
	}
	d.mu.Lock()
	before := d.active
	d.active = hosts
	d.mu.Unlock()
	if maps.Equal(before, hosts) {
		return nil
	}
	d.cfg.Route(hosts)
	for host := range before {
		if _, still := hosts[host]; !still {
			d.forget(ctx, host)
		}
	}
	return nil
}
