package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	deliveriesGoal = 2000 // a second, to a receiver on the loopback
	delayGoal      = 250  // milliseconds, 99 of 100, while receivers hang
	pendingGoal    = 100  // megabytes for all that may be pending

	burst       = 6000 // deliveries of one round, less than may be pending of one stack
	hangingEach = 30   // events for each of the receivers that hang
	hangingMost = 50
	singles     = 200 // events one by one
	pending     = 100_000

	rateRow    = "webhook deliveries"
	delayRow   = "event to delivery, 50 receivers hang, p99"
	pendingRow = "memory of 100,000 pending deliveries"
)

// measureWebhooks measures the deliveries to a receiver in this process.
func (b *bench) measureWebhooks(ctx context.Context) error {
	r, err := startReceiver()
	if err != nil {
		return err
	}
	defer r.close()
	for _, measure := range []func(context.Context, *hooks, *receiver) error{b.measureRate, b.measureDelay, b.measurePending} {
		if err := b.withHooks(ctx, func(h *hooks) error { return measure(ctx, h, r) }); err != nil {
			return err
		}
	}
	return nil
}

// withHooks calls measure with deliveries that have just been started.
func (b *bench) withHooks(ctx context.Context, measure func(*hooks) error) error {
	h, err := b.startHooks(ctx)
	if err != nil {
		return err
	}
	defer h.target.process.stop()
	if err := measure(h); err != nil {
		return h.target.process.fault(err.Error())
	}
	return nil
}

// webhookTrials delivers events to a receiver, beside receivers that hang, and to
// these alone.
func (b *bench) webhookTrials(ctx context.Context, s *stand) error {
	r, err := startReceiver()
	if err != nil {
		return err
	}
	s.later(r.close)
	for _, t := range []struct {
		row     figure
		hanging bool
		measure func(*hooks, context.Context, *receiver, string) (float64, error)
	}{
		{figure{what: rateRow, unit: perSecond, more: true}, false, (*hooks).rate},
		{figure{what: delayRow, unit: tenths}, true, (*hooks).delay},
	} {
		h, err := b.startHooks(ctx)
		if err != nil {
			return err
		}
		s.later(h.target.process.stop)
		id, err := h.stack(ctx, r.url("/quick"))
		if err == nil && t.hanging {
			err = h.hang(ctx, r)
		}
		if err != nil {
			return h.target.process.fault(err.Error())
		}
		s.one(t.row, func(ctx context.Context) (float64, error) { return t.measure(h, ctx, r, id) })
	}
	s.one(figure{what: pendingRow, unit: megabytes}, func(ctx context.Context) (grown float64, err error) {
		err = b.withHooks(ctx, func(h *hooks) error {
			grown, err = h.fill(ctx, r)
			return err
		})
		return grown, err
	})
	return nil
}

// measureRate compares deliveries with bare POSTs of the same body.
func (b *bench) measureRate(ctx context.Context, h *hooks, r *receiver) error {
	id, err := h.stack(ctx, r.url("/quick"))
	if err != nil {
		return err
	}
	var berth, plain []float64
	for range b.rounds {
		own, err := h.rate(ctx, r, id)
		if err != nil {
			return err
		}
		berth = append(berth, own)
		text, err := h.order(ctx, "/plain", url.Values{"url": {r.url("/bare")}, "count": {strconv.Itoa(burst)}})
		if err != nil {
			return err
		}
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return err
		}
		plain = append(plain, rate)
	}
	b.table.atLeast(rateRow, perSecond, berth, "bare POSTs", plain, deliveriesGoal)
	return nil
}

// measureDelay compares the time from an event to its delivery before and while fifty
// receivers hang.
func (b *bench) measureDelay(ctx context.Context, h *hooks, r *receiver) error {
	id, err := h.stack(ctx, r.url("/quick"))
	if err != nil {
		return err
	}
	alone, err := h.delay(ctx, r, id)
	if err != nil {
		return err
	}
	if err := h.hang(ctx, r); err != nil {
		return err
	}
	beside, err := h.delay(ctx, r, id)
	if err != nil {
		return err
	}
	b.table.limit(delayRow, tenths, []float64{beside}, "none hangs", []float64{alone}, delayGoal)
	return nil
}

// measurePending measures how far the memory grows with as many pending deliveries as
// allowed, to receivers that hang.
func (b *bench) measurePending(ctx context.Context, h *hooks, r *receiver) error {
	grown, err := h.fill(ctx, r)
	if err != nil {
		return err
	}
	bodies := float64(pending*r.size.Load()) / (1 << 20)
	b.table.limit(pendingRow, megabytes, []float64{grown}, "their bodies", []float64{bodies}, pendingGoal)
	return nil
}

// tenths is the unit of times that may be short.
const tenths unit = "%.1f ms"

// atLeast adds a row whose goal is the lowest acceptable figure of Berth's own.
func (t *table) atLeast(what string, u unit, berth []float64, peer string, other []float64, least float64) {
	own := median(berth)
	t.rows = append(t.rows, row{
		what: what, berth: u.of(own), peer: peer + " " + u.of(median(other)), ratio: fmt.Sprintf("%.2f", pairedRatio(berth, other)),
		goal: "≥ " + u.of(least), verdict: verdict(own >= least),
	})
}

// hooks is a running command hooks.
type hooks struct{ target *target }

// startHooks starts the deliveries with a separate database.
func (b *bench) startHooks(ctx context.Context) (*hooks, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "hooks")
	if err != nil {
		return nil, err
	}
	t, err := b.startServer(ctx, "hooks", addr, nil, filepath.Join(b.bin, "hooks"), "-listen", addr, "-dir", dir)
	if err != nil {
		return nil, err
	}
	return &hooks{t}, nil
}

// order sends an order to the program and returns its answer.
func (h *hooks) order(ctx context.Context, path string, values url.Values) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.target.addr+path, strings.NewReader(values.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := direct.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, text)
	}
	return string(text), err
}

func (h *hooks) stack(ctx context.Context, webhook string) (id string, err error) {
	return h.order(ctx, "/stack", url.Values{"url": {webhook}})
}

func (h *hooks) events(ctx context.Context, id string, count int) error {
	_, err := h.order(ctx, "/events", url.Values{"id": {id}, "count": {strconv.Itoa(count)}})
	return err
}

// rate returns how many deliveries a second a burst of events has.
func (h *hooks) rate(ctx context.Context, r *receiver, id string) (float64, error) {
	r.expect(burst)
	start := time.Now()
	if err := h.events(ctx, id, burst); err != nil {
		return 0, err
	}
	err := r.await(ctx)
	return burst / time.Since(start).Seconds(), err
}

// hang records events for receivers that hang.
func (h *hooks) hang(ctx context.Context, r *receiver) error {
	return h.spread(ctx, r, hangingMost, hangingEach)
}

// fill records as many events as may be pending, and returns by how many megabytes the
// memory grows.
func (h *hooks) fill(ctx context.Context, r *receiver) (float64, error) {
	const stacks = 20
	before, err := h.target.process.memory("VmRSS")
	if err != nil {
		return 0, err
	}
	if err := h.spread(ctx, r, stacks, pending/stacks); err != nil {
		return 0, err
	}
	peak, err := h.target.process.memory("VmHWM")
	return float64(peak-before) / (1 << 20), err
}

// spread records events of new stacks, so many of each, whose receivers hang.
func (h *hooks) spread(ctx context.Context, r *receiver, stacks, each int) error {
	for n := range stacks {
		id, err := h.stack(ctx, r.url(fmt.Sprintf("/hang/%d", n)))
		if err != nil {
			return err
		}
		if err := h.events(ctx, id, each); err != nil {
			return err
		}
	}
	return nil
}

// delay returns the 99th of 100 times from the recording of an event to its arrival, in
// milliseconds.
func (h *hooks) delay(ctx context.Context, r *receiver, id string) (float64, error) {
	var took []float64
	for range singles {
		r.expect(1)
		if err := h.events(ctx, id, 1); err != nil {
			return 0, err
		}
		if err := r.await(ctx); err != nil {
			return 0, err
		}
		took = append(took, float64(r.delay.Load())/1e6)
	}
	slices.Sort(took)
	return took[len(took)*99/100], nil
}

// receiver receives deliveries: at /quick it counts them, at /bare it only answers, at
// /hang it never answers.
type receiver struct {
	server http.Server
	addr   string
	left   atomic.Int64
	delay  atomic.Int64 // of the last one that was counted, in nanoseconds
	size   atomic.Int64 // of the last body
	mu     sync.Mutex
	done   chan struct{}
}

func startReceiver() (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{addr: l.Addr().String()}
	r.server.Handler = r
	go r.server.Serve(l) //nolint:errcheck // ends with Close
	return r, nil
}

func (r *receiver) close() { r.server.Close() }

func (r *receiver) url(path string) string { return "http://" + r.addr + path }

// expect begins to count n deliveries; await returns when they have arrived.
func (r *receiver) expect(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = make(chan struct{})
	r.left.Store(n)
}

func (r *receiver) await(ctx context.Context) error {
	r.mu.Lock()
	done := r.done
	r.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("%d deliveries did not come", r.left.Load())
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.size.Store(int64(len(body)))
	switch {
	case strings.HasPrefix(req.URL.Path, "/hang"):
		<-req.Context().Done()
	case req.URL.Path == "/quick":
		r.count(body)
	}
}

func (r *receiver) count(body []byte) {
	if r.left.Load() == 1 { // one by one, or the last of a burst
		var event struct {
			CreatedAt float64 `json:"created_at"`
		}
		if json.Unmarshal(body, &event) == nil {
			r.delay.Store(time.Since(time.UnixMicro(int64(event.CreatedAt * 1e6))).Nanoseconds())
		}
	}
	if r.left.Add(-1) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		close(r.done)
	}
}
