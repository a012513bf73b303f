package domain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// Limits of the orders of certificates for domains (docs/api.md, "Domains").
const (
	OrdersPerHour = 5 // of an account
	// fullPause is how long a host waits after its account has ordered as many.
	fullPause = 10 * time.Minute
	// orderLimit is how long an order may take.
	orderLimit = 3 * time.Minute
	// ordersAtOnce is how many orders are made at the same time.
	ordersAtOnce = 8
	// sweepEvery is how often the certificates of hosts that no stack has are looked for.
	sweepEvery = 10 * time.Minute
)

// errPutOff is in the errors of orders that are not made now.
var errPutOff = errors.New("no certificate is ordered at the moment")

// BeginOrder admits an order of a certificate for a host: only for an active domain, not too
// soon after one that failed, and not more than OrdersPerHour for each account. The caller
// says how the order ended.
func (d *Domains) BeginOrder(ctx context.Context, host string) (ended func(error), err error) {
	of, err := d.cfg.Store.ActiveDomain(ctx, host)
	switch {
	case err != nil:
		return nil, err
	case of == nil:
		return nil, fmt.Errorf("%w: %s is not an active domain", errPutOff, host)
	case of.OrderError != "" && stack.Now().Before(of.NextOrder):
		return nil, fmt.Errorf("%w: %s is tried again at %s", errPutOff, host, of.NextOrder.Format(time.RFC3339))
	case !d.cfg.Orders.Allow(ctx, of.Owner):
		why := fmt.Sprintf("the account has ordered %d certificates within an hour, so this one is ordered later", OrdersPerHour)
		d.note(ctx, *of, func(of *stack.Domain) { of.PutOffOrder(why, stack.Now().Add(fullPause)) })
		return nil, fmt.Errorf("%w: %s", errPutOff, why)
	}
	return func(err error) {
		d.note(ctx, *of, func(now *stack.Domain) {
			switch {
			case err != nil:
				now.OrderFailed("no certificate was issued: "+err.Error(), stack.Now())
			case now.NextOrder.Equal(of.NextOrder): // else forget may have removed the certificate
				now.Ordered()
			}
		})
		if err == nil { // the domain may have been removed meanwhile
			d.forget(context.WithoutCancel(ctx), of.Host)
		}
	}, nil
}

// note records what became of an order for an active domain.
func (d *Domains) note(ctx context.Context, of stack.Domain, change func(*stack.Domain)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putOff)
	defer cancel()
	_, err := d.cfg.Store.UpdateDomain(ctx, of.StackID, of.Host, func(of, _ *stack.Domain) error {
		if of.Status == stack.DomainActive {
			change(of)
		}
		return nil
	})
	if err != nil && stack.KindOf(err) != stack.NotFound {
		d.cfg.Log.Warn("what became of an order of a certificate is not recorded", "host", of.Host, "error", err)
	}
}

// orderDue orders the certificates that are due, in the background.
func (d *Domains) orderDue(ctx context.Context, running *sync.WaitGroup) {
	if d.cfg.Certificates == nil {
		return
	}
	due, err := d.cfg.Store.DueOrders(ctx, stack.Now())
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.Warn("the domains that need a certificate could not be read; the next look tries again", "error", err)
	}
	for _, of := range due {
		if d.beginOrdering(of.Host) {
			running.Go(func() { d.order(ctx, of) })
		}
	}
}

// beginOrdering reports whether a host is not being ordered for and there is room for one
// more; then it is from now on.
func (d *Domains) beginOrdering(host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ordering[host] || len(d.ordering) >= ordersAtOnce {
		return false
	}
	d.ordering[host] = true
	return true
}

// order orders the certificate of an active domain, unless there is one.
func (d *Domains) order(ctx context.Context, of stack.Domain) {
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.ordering, of.Host)
	}()
	limited, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	err := d.cfg.Certificates.Obtain(limited, of.Host)
	if ctx.Err() != nil {
		return
	}
	ended := stack.Now()
	d.note(ctx, of, func(now *stack.Domain) {
		switch {
		case err == nil && now.NextOrder.Equal(of.NextOrder): // else forget may have removed the certificate
			now.Ordered()
		case err != nil && !now.NextOrder.After(ended): // it failed before BeginOrder
			now.OrderFailed("no certificate was ordered: "+err.Error(), ended)
		}
	})
}

// forget removes the certificate of a host unless a stack has it active or lost, or is to have it
// from another stack of its account.
func (d *Domains) forget(ctx context.Context, host string) {
	if d.cfg.Certificates == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, putOff)
	defer cancel()
	proved, err := d.cfg.Store.ProvedDomain(limited, host)
	if err == nil && !proved {
		err = errors.Join(d.cfg.Certificates.Forget(limited, host), d.orderAnew(limited, host))
	}
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.Warn("the certificate of a removed domain was not removed; trying again in some minutes", "host", host, "error", err)
	}
	if err == nil && !proved {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.left, host)
	}
}

// leave removes the certificate of a host that is active no longer, unless forget keeps it. Then
// sweeps look for that host: it stays in the memory of this node, even if another node removes it
// from what they share.
func (d *Domains) leave(ctx context.Context, host string) {
	if d.cfg.Certificates == nil {
		return
	}
	d.mu.Lock()
	d.left[host] = true
	d.mu.Unlock()
	d.forget(ctx, host)
}

// orderAnew has a certificate ordered for a host whose certificate was just removed if a stack has
// got it active meanwhile: it may have found that certificate.
func (d *Domains) orderAnew(ctx context.Context, host string) error {
	of, err := d.cfg.Store.ActiveDomain(ctx, host)
	if err != nil || of == nil {
		return err
	}
	d.note(ctx, *of, func(of *stack.Domain) { of.NextOrder = stack.Now() })
	d.orders.ring()
	return nil
}

// keepSwept removes the certificates of hosts that forget does not keep, now and again, until ctx
// ends: a host may be removed after it was lost, or while no server runs, and a pending domain may
// keep the certificate no longer.
func (d *Domains) keepSwept(ctx context.Context) {
	for d.cfg.Certificates != nil {
		d.sweep(ctx)
		if !pause.For(ctx, d.sweepEvery) {
			return
		}
	}
}

func (d *Domains) sweep(ctx context.Context) {
	names, err := d.cfg.Certificates.Names(ctx)
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.Warn("the certificates of removed domains could not be looked for; trying again in some minutes", "error", err)
	}
	d.mu.Lock()
	names = slices.AppendSeq(names, maps.Keys(d.left))
	d.mu.Unlock()
	for _, name := range names {
		if !d.own(name) && !d.routed(name) {
			d.forget(ctx, name)
		}
	}
}

// routed reports whether a host was among the active domains when they were read last.
func (d *Domains) routed(host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.active[host]
	return is
}
