package usage

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

const shop = "stk_0123456789ab"

// world is what a Recorder measures in a test.
type world struct {
	path string

	mu        sync.Mutex
	counts    proxy.Counts // of the service web, until they are taken
	processes []Process
	cpu       time.Duration // that the container has used
	memory    int64
	fault     error // of the engine
	asked     int   // how often the engine was asked for a container
	data      int64
	began     time.Time // when it can be added up first
	unsized   bool      // it was not added up
	silent    bool      // no service has a route
	gone      bool      // the stack was deleted
	events    []stack.Event
}

func process(service, container string) Process {
	return Process{engine.Key{Stack: shop, Service: service, Generation: 1}, container}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		path: filepath.Join(t.TempDir(), "metrics.db"), memory: 1 << 20, data: 5000, began: time.Now().Add(20 * time.Second),
		processes: []Process{process("web", "c1")},
	}
}

func (w *world) open() *Recorder {
	r := New(Config{
		Path: w.path, Traffic: w.take, Measure: w.Measure, Size: w.size, Log: slog.New(slog.DiscardHandler),
		Processes: func() []Process {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.processes
		},
		Events: func(_ context.Context, _ string, since time.Time, types ...stack.EventType) (found []stack.Event, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, e := range w.events {
				if !e.CreatedAt.Before(since) && slices.Contains(types, e.Type) {
					found = append(found, e)
				}
			}
			return found, nil
		},
		Gone: func(context.Context, string) (bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.gone, nil
		},
		Ceilings: Ceilings{Cores: 0.5, Memory: 1 << 30},
	})
	r.Start()
	synctest.Wait() // it has measured what was used before
	return r
}

func (w *world) take() map[string]map[string]*proxy.Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.counts
	w.counts = proxy.Counts{}
	if w.silent {
		return nil
	}
	return map[string]map[string]*proxy.Counts{shop: {"web": &c}}
}

// serve counts requests that were answered with 200.
func (w *world) serve(n uint64, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Answers[2] += n
	for range n {
		w.counts.First.Add(took)
	}
}

// end ends what runs, and may delete the stack.
func (w *world) end(deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processes, w.silent, w.gone = nil, true, deleted
}

// change changes the world while nobody looks at it.
func (w *world) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// use makes the container use processors for a time.
func (w *world) use(cpu time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cpu += cpu
}

func (w *world) Measure(context.Context, string) (func() (engine.Usage, error), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	return func() (engine.Usage, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return engine.Usage{CPU: w.cpu, Memory: w.memory}, w.fault
	}, w.fault
}

// size is that of the data, which is added up once a minute, 20 s after the world was made at
// first.
func (w *world) size(string, string) (Size, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since := time.Since(w.began)
	return Size{w.data, w.began.Add(since.Truncate(time.Minute))}, !w.unsized && since >= 0
}

// inBubble runs a test on a clock of its own, from a whole hour on.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
		test(t)
	})
}

// pass lets time go by, and what is done in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func read(t *testing.T, r *Recorder, since, step string) History {
	t.Helper()
	w, err := ParseWindow(since, step)
	require.NoError(t, err)
	h, err := r.Read(t.Context(), shop, []string{"web"}, w)
	require.NoError(t, err)
	require.Len(t, h.Services["web"], len(h.Times))
	return h
}

// requests are the numbers of requests of each step; -1 where nothing was measured.
func requests(h History) (all []int) {
	for _, p := range h.Services["web"] {
		if p.Point == nil {
			all = append(all, -1)
			continue
		}
		all = append(all, int(p.Point.Requests()))
	}
	return all
}

func TestRecorder_RecordsEachStep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.open()
		defer r.Close()
		for i := range 4 {
			w.serve(uint64(i), 20*time.Millisecond)
			w.use(3 * time.Second)
			pass(15 * time.Second)
		}
		h := read(t, r, "2m", "")
		require.Equal(t, []int{-1, -1, -1, -1, 0, 1, 2, 3}, requests(h))
		require.Equal(t, time.Now().Unix()-15, h.Times[7])
		last := h.Services["web"][7].Point
		require.Equal(t, 3*time.Second, last.CPU)
		require.Equal(t, 15*time.Second, last.Over)
		require.EqualValues(t, 1<<20, *last.Memory)
		median, _ := last.Traffic.First.Quantile(0.5)
		require.InEpsilon(t, 20*time.Millisecond, median, 0.07)
		require.Equal(t, 1, w.asked, "the engine is asked for a container once")
	})
}

func TestRecorder_LosesNoStepWhenItStops(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.open()
		w.serve(5, time.Millisecond)
		w.use(time.Second)
		pass(7 * time.Second)
		r.Close()
		r = w.open()
		defer r.Close()
		w.serve(6, time.Millisecond)
		w.use(time.Second)
		pass(8 * time.Second)
		h := read(t, r, "15s", "")
		require.Equal(t, []int{11}, requests(h))
		require.Equal(t, 2*time.Second, h.Services["web"][0].Point.CPU)
		require.Equal(t, 15*time.Second, h.Services["web"][0].Point.Over)
		require.EqualValues(t, 11, r.Lately([]string{shop})[shop][Minutes-1])
	})
}

func TestRecorder_MergesAndDropsSteps(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.open()
		defer func() { r.Close() }()
		for range 8 * 60 { // minutes
			w.serve(3, 5*time.Millisecond)
			w.change(func() { w.memory += 1000 })
			pass(time.Minute)
		}
		pass(time.Second)
		require.NotContains(t, requests(read(t, r, "6h", "")), -1)
		five := read(t, r, "8h", "")
		require.Equal(t, 5*time.Minute, five.Step)
		for _, n := range requests(five) {
			require.Equal(t, 15, n)
		}
		hours := read(t, r, "8h", "1h")
		require.Equal(t, []int{180, 180, 180, 180, 180, 180, 180, 180}, requests(hours))
		first := hours.Services["web"][0].Point
		require.EqualValues(t, 1<<20+60*1000, *first.Memory)
		require.EqualValues(t, 180, first.Traffic.First.Total())
		require.Equal(t, 1440, rows(t, r, Finest), "what is older than 6 hours goes once an hour")

		r.Close()
		pass(29 * 24 * time.Hour)
		r = w.open()
		pass(15 * time.Second)
		require.Equal(t, []int{9, 0, 1}, []int{rows(t, r, steps[2]), rows(t, r, steps[1]), rows(t, r, Finest)})
		pass(24 * time.Hour)
		require.Equal(t, 24+1, rows(t, r, steps[2]))
	})
}

func TestRecorder_DropsAStackSoonAfterItsDeletion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.open()
		defer r.Close()
		pass(11 * time.Minute)
		require.Equal(t, []int{44, 2}, []int{rows(t, r, Finest), rows(t, r, steps[1])})
		w.end(true)
		pass(15 * time.Second)
		require.Zero(t, rows(t, r, Finest)+rows(t, r, steps[1]))
	})
}

func TestRecorder_KeepsAStackThatIsElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.open()
		pass(5 * time.Minute)
		w.end(false)
		pass(2 * time.Hour)
		require.Equal(t, 20, rows(t, r, Finest))
		r.Close()
		w.end(true)
		r = w.open()
		defer r.Close()
		pass(15 * time.Second)
		require.Zero(t, rows(t, r, Finest), "it was deleted while no server ran")
	})
}

// rows is how many points of a step there are.
func rows(t *testing.T, r *Recorder, step Step) (n int) {
	t.Helper()
	require.NoError(t, r.file.db.QueryRow("SELECT count(*) FROM points WHERE step = ?", step.seconds()).Scan(&n))
	return n
}

func TestRecorder_MergesWhatWasLeftWhileNoServerRan(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.open()
		w.serve(7, time.Millisecond)
		pass(4 * time.Minute)
		r.Close()
		pass(70 * time.Minute)
		r = w.open()
		defer r.Close()
		pass(time.Minute)
		require.Equal(t, 7, requests(read(t, r, "2h", "5m"))[9])
		require.Equal(t, []int{7}, requests(read(t, r, "1h", "1h")))
	})
}

func TestRecorder_CountsAContainerThatStartsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.cpu = time.Hour
		r := w.open()
		defer r.Close()
		w.mu.Lock()
		w.cpu = 2 * time.Second
		w.mu.Unlock()
		pass(15 * time.Second)
		require.Equal(t, 2*time.Second, read(t, r, "15s", "").Services["web"][0].Point.CPU)
	})
}

func TestRecorder_SaysNothingOfWhatItCannotSee(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(func() { w.fault = fmt.Errorf("look: %w", engine.ErrHidden) })
		r := w.open()
		defer r.Close()
		w.serve(1, time.Millisecond)
		pass(5 * time.Minute)
		h := read(t, r, "5m", "")
		require.Equal(t, 1, requests(h)[0])
		for _, p := range h.Services["web"] {
			require.Zero(t, p.Point.Over)
			require.Nil(t, p.Point.Memory)
		}
		require.Equal(t, 1, w.asked, "the engine is left alone")
	})
}

func TestRead_HasDeploysCrashesAndRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(func() { w.processes = nil })
		r := w.open()
		defer r.Close()
		event := func(kind stack.EventType, service string) {
			w.change(func() {
				w.events = append(w.events, stack.Event{Type: kind, CreatedAt: time.Now(), Data: map[string]any{"service": service, "generation": 3.0}})
			})
		}
		event(stack.EventCrashed, "web") // before the window
		pass(30 * time.Second)
		event(stack.EventLive, "")
		event(stack.EventCrashed, "web")
		event(stack.EventCrashed, "gone")
		event(stack.EventExtended, "web")
		pass(15 * time.Second)
		event(stack.EventCrashed, "web")
		event(stack.EventRestarted, "web")
		event(stack.EventRestored, "")
		pass(15 * time.Second)
		event(stack.EventCrashed, "web") // after it
		h := read(t, r, "30s", "")
		began, next := time.Now().Add(-30*time.Second), time.Now().Add(-15*time.Second)
		require.Equal(t, []Event{
			{began, stack.EventLive, "", 3},
			{began, stack.EventCrashed, "web", 0},
			{began, stack.EventCrashed, "gone", 0},
			{next, stack.EventCrashed, "web", 0},
			{next, stack.EventRestarted, "web", 0},
			{next, stack.EventRestored, "", 0},
		}, h.Events)
		require.Equal(t, Ceilings{0.5, 1 << 30}, h.Ceilings)
		web := h.Services["web"]
		require.Equal(t, []int{1, 0, 1, 1}, []int{web[0].Crashes, web[0].Restarts, web[1].Crashes, web[1].Restarts})
		require.NotContains(t, h.Services, "gone")
	})
}

func TestRecorder_ShowsASizeInTheStepInWhichItWasAddedUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.open()
		defer r.Close()
		pass(50 * time.Second)
		var sizes []int
		for i, p := range read(t, r, "1m", "").Services["web"] {
			if p.Point != nil && p.Point.Data != nil {
				sizes = append(sizes, i)
			}
		}
		require.Equal(t, []int{2}, sizes)
		size := read(t, r, "1m", "").Sizes["web"]
		require.Equal(t, Size{5000, w.began}, size)
	})
}

func TestRecorder_KeepsASizeOverAStop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.open()
		pass(31 * time.Second)
		counted := time.Now()
		r.Close()
		pass(7 * time.Hour)
		w.change(func() { w.unsized = true })
		r = w.open()
		defer r.Close()
		pass(15 * time.Second)
		size := read(t, r, "1m", "").Sizes["web"]
		require.EqualValues(t, 5000, size.Bytes)
		require.WithinRange(t, size.At, counted.Add(-time.Hour), counted)
	})
}

func TestRecorder_GoesOnWithoutItsDatabase(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, removeDB(path))
		},
		"damaged": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, removeDB(path))
			require.NoError(t, os.WriteFile(path, make([]byte, 9000), 0o600))
		},
		"of another version": func(t *testing.T, path string) {
			t.Helper()
			db, err := openDB(path)
			require.NoError(t, err)
			_, err = db.Exec("PRAGMA user_version = 99")
			require.NoError(t, err)
			require.NoError(t, db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t)
				r := w.open()
				w.serve(1, time.Millisecond)
				pass(15 * time.Second)
				if name == "removed" { // while it is open
					harm(t, w.path)
				} else {
					r.Close()
					harm(t, w.path)
					r = w.open()
				}
				defer func() { r.Close() }()
				w.serve(2, time.Millisecond)
				pass(15 * time.Second)
				require.Equal(t, []int{-1, 2}, requests(read(t, r, "30s", "")))
			})
		})
	}
}

func TestRecorder_TriesAgainToOpenItsDatabase(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t)
		require.NoError(t, os.Mkdir(w.path, 0o700))
		r := w.open()
		defer r.Close()
		pass(15 * time.Second)
		_, err := r.Read(t.Context(), shop, nil, Window{time.Hour, Finest})
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, os.Remove(w.path))
		w.serve(3, time.Millisecond)
		pass(15 * time.Second)
		require.Equal(t, []int{3}, requests(read(t, r, "15s", "")))
	})
}

func TestParseWindow_RefusesWhatIsNotKept(t *testing.T) {
	for _, tt := range []struct {
		since, step string
		want        Window
		fault       string
	}{
		{"", "", Window{time.Hour, Finest}, ""},
		{"6h", "auto", Window{6 * time.Hour, Finest}, ""},
		{"6h1s", "", Window{6*time.Hour + time.Second, steps[1]}, ""},
		{"7d", "auto", Window{7 * 24 * time.Hour, steps[1]}, ""},
		{"30d", "", Window{30 * 24 * time.Hour, steps[2]}, ""},
		{"2h", "5m", Window{2 * time.Hour, steps[1]}, ""},
		{"2h", "300s", Window{2 * time.Hour, steps[1]}, ""},
		{"1h", "1h", Window{time.Hour, steps[2]}, ""},
		{"5m", "1h", Window{}, "since must be one step at least, 1h"},
		{"31d", "", Window{}, "since must lie between 15s and 30 days, like 1h"},
		{"14s", "", Window{}, "since must lie between 15s and 30 days, like 1h"},
		{"60", "", Window{}, `since: duration "60" has a number without a unit; write it as in 1h, 6h or 7d`},
		{"-1h", "", Window{}, `since: duration "-1h" is not a number and a unit; write it as in 1h, 6h or 7d`},
		{"1d", "15s", Window{}, "steps of 15s are kept for 6h; ask for a since up to that, or leave step out"},
		{"1h", "30s", Window{}, `step must be one of auto, 15s, 5m, 1h, not "30s"`},
		{"1h", "15", Window{}, `step must be one of auto, 15s, 5m, 1h, not "15"`},
	} {
		got, err := ParseWindow(tt.since, tt.step)
		if tt.fault != "" {
			require.EqualError(t, err, tt.fault)
			require.Equal(t, stack.Unprocessable, stack.KindOf(err))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tt.want, got, "%s %s", tt.since, tt.step)
	}
}
