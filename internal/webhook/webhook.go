package webhook

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Limits on pending deliveries. Further ones are dropped; their events can still be
// polled.
const (
	maxPending        = 100_000
	maxPendingOfStack = 10_000
)

// standard lets fifty stacks with hanging receivers use their whole share while no
// other stack has to wait for a place.
var standard = bounds{all: 1024, spare: 256, lane: 12}

// Store is what deliveries need of the database.
type Store interface {
	Watch(id string) (woken <-chan struct{}, stop func())
	WebhookMark(ctx context.Context, node string) (int64, error)
	SetWebhookMark(ctx context.Context, node string, id int64) error
	ToDeliver(ctx context.Context, node string, after int64, limit int) (refs []store.EventRef, last int64, more bool, err error)
	OwedEvents(ctx context.Context, node string) ([]store.Owed, error)
	EventsOwed(ctx context.Context, owed store.Owed) ([]store.EventRef, error)
	EndOwed(ctx context.Context, node, stackID string) error
	Event(ctx context.Context, id int64) (e stack.Event, ok bool, err error)
	Webhook(ctx context.Context, stackID string) (hook store.Webhook, ok bool, err error)
	ForgetWebhook(ctx context.Context, stackID string) error
	ForgetWebhooks(ctx context.Context, node string) error
	AddDeliveries(ctx context.Context, deliveries []store.Delivery) error
}

// Queue holds retries until they are due. Only one goroutine calls Take; it returns
// what is due and when the next will be, the zero time for nothing.
type Queue interface {
	Add(ctx context.Context, member string, due time.Time)
	Take(ctx context.Context, now time.Time) (due []string, next time.Time)
	// Waiting returns what is not taken yet, with the times when it is due.
	Waiting() map[string]time.Time
}

// Config configures a Dispatcher. The times must be above zero.
type Config struct {
	Node    string // whose stacks' events are delivered; "" on one machine
	Store   Store
	Queue   Queue
	Timeout time.Duration   // of each attempt, until the answer is complete
	Retries []time.Duration // waits after a failed attempt; one more attempt than there are
	Allow   []netip.Prefix  // addresses that webhooks may reach although they are not public
	Pool    netip.Prefix    // of the stacks' networks, which webhooks may not reach
	Log     *slog.Logger

	// Retries that another dispatcher left to this one; see Close.
	Left map[string]time.Time

	// Observe is called after each attempt with its result, ok, failed, or retried if
	// it will be made again, and how long it took. It may be nil.
	Observe func(result string, took time.Duration)
}

// Dispatcher delivers the events of a node's stacks: of all stacks on one machine.
type Dispatcher struct {
	cfg       Config
	transport http.RoundTripper
	lanes     *lanes
	ledger    *ledger
	history   *history
	mark      *mark

	ctx      context.Context
	stop     context.CancelFunc
	loops    sync.WaitGroup
	requeued chan struct{} // a retry was added
}

// New returns a dispatcher that has not started.
func New(config Config) *Dispatcher {
	d := &Dispatcher{cfg: config, requeued: make(chan struct{}, 1)}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.transport = newTransport(newGuard(config.Allow, config.Pool), net.DefaultResolver)
	d.lanes = newLanes(standard, d.makeAttempt)
	d.ledger = newLedger(maxPending, maxPendingOfStack)
	d.history = newHistory(config.Store, config.Log)
	d.mark = newMark(config.Store, config.Node, config.Log)
	return d
}

// Start begins with the events that no earlier dispatcher has begun to deliver.
func (d *Dispatcher) Start(ctx context.Context) error {
	after, err := d.mark.load(ctx)
	if err != nil {
		return err
	}
	if err := d.cfg.Store.ForgetWebhooks(ctx, d.cfg.Node); err != nil {
		return err
	}
	for member, due := range d.cfg.Left {
		if j, ok := parseJob(member); ok && d.ledger.beginDelivery(j.stack) {
			d.cfg.Queue.Add(ctx, member, due)
		}
	}
	d.loops.Go(func() { d.follow(after) })
	d.loops.Go(d.retry)
	d.loops.Go(func() { gather(d.ctx, d.history.woken, gatherHistory, d.history.flush) })
	d.loops.Go(func() { gather(d.ctx, d.mark.woken, gatherMark, d.mark.flush) })
	return nil
}

// Close leaves the deliveries that were not yet attempted to the next dispatcher, and
// returns once the attempts under way have ended, which takes at most the timeout. The pending
// retries, which it returns with the times when they are due, are dropped unless the next one
// is given them. It may be called without Start.
func (d *Dispatcher) Close() (left map[string]time.Time) {
	d.stop()
	dropped := d.lanes.close()
	d.loops.Wait()
	ctx := context.WithoutCancel(d.ctx)
	d.history.flush(ctx)
	d.mark.flush(ctx)
	left = d.cfg.Queue.Waiting()
	for _, j := range dropped {
		if j.attempt > 1 {
			left[j.member()] = time.Now()
		}
	}
	return left
}

// follow puts the events after an id into their lanes as they are committed.
func (d *Dispatcher) follow(after int64) {
	woken, stop := d.cfg.Store.Watch("")
	defer stop()
	for d.ctx.Err() == nil {
		refs, last, more, err := d.cfg.Store.ToDeliver(d.ctx, d.cfg.Node, after, 1000)
		after = last
		d.mark.await(refs, last)
		d.enqueueAll(refs)
		err = errors.Join(err, d.takeOver())
		var again <-chan time.Time
		switch {
		case d.ctx.Err() != nil || more:
			continue
		case err != nil:
			d.cfg.Log.Error("events to deliver not read; trying again", "error", err)
			again = time.After(time.Second)
		}
		select {
		case <-woken:
		case <-again:
		case <-d.ctx.Done():
		}
	}
}

// enqueueAll adds the first deliveries of events to their lanes.
func (d *Dispatcher) enqueueAll(refs []store.EventRef) {
	for _, ref := range refs {
		d.enqueue(job{stack: ref.StackID, event: ref.ID, attempt: 1})
	}
}

// takeOver puts into their lanes the events of stacks that came from other nodes, which may
// not have begun to deliver them. The mark is below those events before they are owed no
// more, so that a server which dies meanwhile is followed by one that finds them.
func (d *Dispatcher) takeOver() error {
	if d.cfg.Node == "" {
		return nil
	}
	all, err := d.cfg.Store.OwedEvents(d.ctx, d.cfg.Node)
	if err != nil {
		return err
	}
	for _, owed := range all {
		refs, err := d.cfg.Store.EventsOwed(d.ctx, owed)
		if err != nil {
			return err
		}
		if err := d.mark.lower(d.ctx, refs); err != nil {
			return err
		}
		if err := d.cfg.Store.EndOwed(d.ctx, d.cfg.Node, owed.StackID); err != nil {
			return err
		}
		d.enqueueAll(refs)
	}
	return nil
}

// enqueue adds a delivery to its lane, or drops it if there is no room.
func (d *Dispatcher) enqueue(j job) {
	if !d.ledger.beginDelivery(j.stack) {
		d.cfg.Log.Warn("a webhook delivery is dropped: too many are pending", "stack", j.stack, "event", j.event)
		d.mark.begun(j.event)
		return
	}
	d.lanes.addJob(j, false)
}

// retry puts deliveries back into their lanes when they are due.
func (d *Dispatcher) retry() {
	for d.ctx.Err() == nil {
		due, next := d.cfg.Queue.Take(d.ctx, time.Now())
		for _, member := range due {
			if j, ok := parseJob(member); ok {
				d.lanes.addJob(j, false)
			}
		}
		var again <-chan time.Time
		if !next.IsZero() {
			again = time.After(time.Until(next))
		}
		select {
		case <-again:
		case <-d.requeued:
		case <-d.ctx.Done():
		}
	}
}

// makeAttempt makes one attempt of a delivery. It goes on when the dispatcher closes.
func (d *Dispatcher) makeAttempt(j job) {
	ctx := context.WithoutCancel(d.ctx)
	hook, e, ok, err := d.find(ctx, j)
	if err != nil && !j.byHand() {
		return // the dispatcher closes, and the mark stays below the event
	}
	if j.attempt == 1 {
		d.mark.begun(j.event)
	}
	if !ok {
		d.skip(j, err)
		return
	}
	at, begun := stack.Now(), time.Now()
	o := d.send(ctx, hook, e)
	again := o.retry && !j.byHand() && j.attempt <= len(d.cfg.Retries)
	d.observe(o, again, time.Since(begun))
	delivery := store.Delivery{
		StackID: j.stack, EventID: e.ID, Type: e.Type, Attempt: j.attempt,
		At: at, Duration: o.duration, Status: o.status, Error: o.problem, Words: o.words,
	}
	d.cfg.Log.Debug("webhook attempt", "stack", j.stack, "event", e.ID, "attempt", j.attempt, "status", o.status, "error", o.cause)
	if j.byHand() {
		j.reply(delivery, d.cfg.Store.AddDeliveries(ctx, []store.Delivery{delivery}))
		return
	}
	d.history.addDelivery(delivery)
	if again {
		d.requeue(ctx, j)
		return
	}
	d.endDelivery(ctx, j, e.Type == stack.EventDeleted)
}

func (d *Dispatcher) observe(o outcome, again bool, took time.Duration) {
	if d.cfg.Observe == nil {
		return
	}
	result := "ok"
	switch {
	case again:
		result = "retried"
	case o.problem != "":
		result = "failed"
	}
	d.cfg.Observe(result, took)
}

// find calls read again each second while the database fails, so that a delivery is not
// dropped for that. It returns the error once the dispatcher closes, and at once for a
// delivery sent by hand.
func (d *Dispatcher) find(ctx context.Context, j job) (hook store.Webhook, e stack.Event, ok bool, err error) {
	for {
		if hook, e, ok, err = d.read(ctx, j); err == nil || j.byHand() {
			return hook, e, ok, err
		}
		d.cfg.Log.Error("event to deliver not read; trying again", "stack", j.stack, "event", j.event, "error", err)
		if !pause.For(d.ctx, time.Second) {
			return hook, e, false, err
		}
	}
}

// read determines what an attempt has to send, and where; ok is false if there is
// nothing to do, for example for a stack whose webhook is forgotten.
func (d *Dispatcher) read(ctx context.Context, j job) (hook store.Webhook, e stack.Event, ok bool, err error) {
	if hook, ok, err = d.cfg.Store.Webhook(ctx, j.stack); err != nil || !ok {
		return hook, e, false, err
	}
	if j.test != nil {
		return hook, *j.test, true, nil
	}
	e, ok, err = d.cfg.Store.Event(ctx, j.event)
	return hook, e, ok, err
}

// skip gives up a delivery that cannot be sent.
func (d *Dispatcher) skip(j job, err error) {
	if j.byHand() {
		j.reply(store.Delivery{}, cmp.Or(err, error(errNoWebhook)))
		return
	}
	d.endDelivery(d.ctx, j, false)
}

// requeue schedules the next attempt of a delivery after the wait that follows this
// one.
func (d *Dispatcher) requeue(ctx context.Context, j job) {
	due := time.Now().Add(d.cfg.Retries[j.attempt-1])
	j.attempt++
	d.cfg.Queue.Add(ctx, j.member(), due)
	wake(d.requeued)
}

// endDelivery ends a delivery, whatever its result. After the last one of a deleted
// stack it forgets the stack's webhook.
func (d *Dispatcher) endDelivery(ctx context.Context, j job, last bool) {
	if !d.ledger.endDelivery(j.stack, last) {
		return
	}
	if err := d.cfg.Store.ForgetWebhook(ctx, j.stack); err != nil {
		d.cfg.Log.Error("the webhook of a deleted stack not removed; the next start tries again", "stack", j.stack, "error", err)
	}
}
