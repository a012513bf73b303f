package webhook

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/store"
)

// Deliveries are recorded together, to need few transactions beside the changes of
// stacks.
const (
	gatherHistory = 100 * time.Millisecond
	together      = 500    // in one transaction, which is over in milliseconds
	maxHistory    = 10_000 // not recorded yet; older ones are dropped
)

// history records the results of deliveries for the owners of the stacks.
type history struct {
	store Store
	log   *slog.Logger
	woken chan struct{}

	mu  sync.Mutex
	new []store.Delivery
}

func newHistory(s Store, log *slog.Logger) *history {
	return &history{store: s, log: log, woken: make(chan struct{}, 1)}
}

func (h *history) addDelivery(delivery store.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.new) >= maxHistory {
		h.new = slices.Clone(h.new[maxHistory/2:])
	}
	h.new = append(h.new, delivery)
	wake(h.woken)
}

// wake wakes the loop that receives from a channel with room for one.
func wake(woken chan<- struct{}) {
	select {
	case woken <- struct{}{}:
	default: // one that is not received yet stands for this one too
	}
}

// gather calls flush some time after a wake, for everything until then, until ctx ends.
func gather(ctx context.Context, woken <-chan struct{}, wait time.Duration, flush func(context.Context)) {
	for {
		select {
		case <-woken:
		case <-ctx.Done():
			return
		}
		if !pause.For(ctx, wait) {
			return
		}
		flush(context.WithoutCancel(ctx))
	}
}

func (h *history) flush(ctx context.Context) {
	h.mu.Lock()
	deliveries := h.new
	h.new = nil
	h.mu.Unlock()
	for some := range slices.Chunk(deliveries, together) {
		if err := h.store.AddDeliveries(ctx, some); err != nil {
			h.log.Error("webhook deliveries not recorded", "count", len(some), "error", err)
		}
	}
}
