package domain

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// ChecksOfAccount is how many checks that are due are made for one account at the same time
// (docs/api.md, "Domains").
const ChecksOfAccount = 4

const (
	// mostTick is the longest time between two looks for checks and orders that are due.
	mostTick = 5 * time.Second
	// checksAtOnce is how many checks that are due are made at the same time.
	checksAtOnce = 32
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
	running.Go(func() { d.keepLooking(ctx, d.checks, func() { d.checkDue(ctx, &running) }) })
	running.Go(func() { d.keepLooking(ctx, d.orders, func() { d.orderDue(ctx, &running) }) })
	running.Wait()
}

// bell wakes a loop.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default: // the loop is about to look
	}
}

// keepLooking calls look now and again, and at once when the bell has rung, until ctx ends.
func (d *Domains) keepLooking(ctx context.Context, woken bell, look func()) {
	tick := time.NewTicker(min(mostTick, d.cfg.Times.PendingEvery/2))
	defer tick.Stop()
	for ctx.Err() == nil {
		look()
		select {
		case <-tick.C:
		case <-woken:
		case <-ctx.Done():
		}
	}
}

// checkDue begins checks that are due, as many as there is room for. An account whose checks
// are under way gets no others before they have ended, so that its slow names hold up nobody
// else's. Each end looks for more.
func (d *Domains) checkDue(ctx context.Context, running *sync.WaitGroup) {
	room, busy := d.room()
	if room == 0 {
		return
	}
	due, err := d.cfg.Store.TakeDueDomains(ctx, stack.Now(), putOff, room, ChecksOfAccount, busy)
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.Warn("the domains whose check is due could not be read; the next look tries again", "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, of := range due {
		d.checking[of.Owner]++
		running.Go(func() {
			defer d.endCheck(of.Owner)
			if _, err := d.check(ctx, of, false); err != nil && ctx.Err() == nil && stack.KindOf(err) != stack.NotFound {
				d.cfg.Log.Warn("a domain was not checked; trying again", "host", of.Host, "stack", of.StackID, "error", err)
			}
		})
	}
}

// room returns how many checks may begin, and the accounts whose checks are under way.
func (d *Domains) room() (room int, busy []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	room = checksAtOnce
	for account, checks := range d.checking {
		room -= checks
		busy = append(busy, account)
	}
	return room, busy
}

// endCheck makes room for another check.
func (d *Domains) endCheck(account string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.checking[account]--; d.checking[account] == 0 {
		delete(d.checking, account)
	}
	d.checks.ring()
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
	d.orders.ring()
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

// Load reads the active domains and routes them. The certificates of those that were removed go,
// and stacks of the same account that have their hosts pending are checked at once.
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
			d.checks.ring()
			d.leave(ctx, host)
		}
	}
	return nil
}
