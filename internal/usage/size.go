package usage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

const (
	// slice is how long files are counted without a rest, and restShare how much longer the
	// rest is, so that all counting takes 0.3% of the time.
	slice     = 2 * time.Millisecond
	restShare = 333
	// sizeEvery is how long a size is good, at least, and lookEvery how often it is looked
	// which sizes are not any more.
	sizeEvery = time.Minute
	lookEvery = 5 * time.Second
)

// Size is how large a data directory was.
type Size struct {
	Bytes int64
	At    time.Time // when it was added up
}

// sizer adds up the sizes of data directories. All are in work at once, and take turns.
type sizer struct {
	ctx       context.Context
	processes func() []Process
	engine    engine.Measures
	log       *slog.Logger
	turn      chan struct{} // has a value while somebody counts or rests

	mu    sync.Mutex
	sizes map[series]*sizeOf
}

// sizeOf is the size of one service's data.
type sizeOf struct {
	size    Size      // the last one; zero if there is none yet
	fresh   bool      // take has not returned it
	working bool      // it is being added up
	due     time.Time // when it is next
}

func newSizer(ctx context.Context, cfg Config) *sizer {
	return &sizer{ctx: ctx, processes: cfg.Processes, engine: cfg.Engine, log: cfg.Log, turn: make(chan struct{}, 1), sizes: map[series]*sizeOf{}}
}

// run adds up sizes until the context ends.
func (s *sizer) run() {
	var walks sync.WaitGroup
	defer walks.Wait()
	for {
		for _, due := range s.due() {
			walks.Go(func() { s.count(due) })
		}
		if !pause.For(s.ctx, lookEvery) {
			return
		}
	}
}

// due returns the services whose size is to be added up now, and forgets those without a
// process.
func (s *sizer) due() (due []engine.Key) {
	there := map[series]*sizeOf{}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, process := range s.processes() {
		key := process.series()
		if there[key] != nil {
			continue // two processes have the same data
		}
		of := s.sizes[key]
		if of == nil {
			of = &sizeOf{}
		}
		there[key] = of
		if !of.working && !now.Before(of.due) {
			of.working = true
			due = append(due, process.Key)
		}
	}
	s.sizes = there
	return due
}

// count adds up the size of the data of a key.
func (s *sizer) count(key engine.Key) {
	w := &walk{sizer: s}
	bytes, err := int64(0), s.ctx.Err()
	if w.begin() {
		bytes, err = s.engine.VolumeSize(key.Data(), w.step)
	}
	w.rest()
	if err != nil && s.ctx.Err() == nil && !errors.Is(err, engine.ErrNotFound) {
		s.log.Info("size of data not known", "stack", key.Stack, "service", key.Service, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.sizes[series{key.Stack, key.Service}]
	if of == nil {
		return // it was forgotten meanwhile
	}
	now := time.Now()
	of.working, of.due = false, now.Add(sizeEvery)
	if err == nil {
		of.size, of.fresh = Size{bytes, now}, true
	}
}

// take returns a size that was added up since the last call, or nil.
func (s *sizer) take(key series) *int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.sizes[key]
	if of == nil || !of.fresh {
		return nil
	}
	of.fresh = false
	bytes := of.size.Bytes
	return &bytes
}

// last returns the last size.
func (s *sizer) last(key series) (Size, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.sizes[key]
	if of == nil || of.size.At.IsZero() {
		return Size{}, false
	}
	return of.size, true
}

// walk is one addition under way.
type walk struct {
	sizer *sizer
	began time.Time // of its slice
	has   bool      // it has the turn
}

// begin waits for the turn, and returns false if the context ends before it comes.
func (w *walk) begin() bool {
	select {
	case w.sizer.turn <- struct{}{}:
		w.began, w.has = time.Now(), true
		return true
	case <-w.sizer.ctx.Done():
		return false
	}
}

// step lets others have a turn after a slice.
func (w *walk) step() error {
	if time.Since(w.began) < slice {
		return nil
	}
	if w.rest(); !w.begin() {
		return w.sizer.ctx.Err()
	}
	return nil
}

// rest rests for the slice, while nobody else counts, and gives up the turn, if the walk has
// it.
func (w *walk) rest() {
	if !w.has {
		return
	}
	w.has = false
	pause.For(w.sizer.ctx, restShare*time.Since(w.began))
	<-w.sizer.turn
}
