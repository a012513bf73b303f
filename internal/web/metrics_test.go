package web

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/usage"
)

// fakeMetrics has the same history for every stack.
type fakeMetrics struct {
	mu     sync.Mutex
	fill   func(h *usage.History)
	lately []uint64
	fault  error
	block  bool // Read waits for the end of its context
	asked  usage.Window
}

func (f *fakeMetrics) Read(ctx context.Context, _ string, named []string, w usage.Window) (usage.History, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = w
	if f.block {
		<-ctx.Done()
		return usage.History{}, ctx.Err()
	}
	h := usage.History{Step: w.Step.Length, Services: map[string][]usage.Moment{}, Sizes: map[string]usage.Size{}}
	from := time.Now().Truncate(w.Step.Length).Add(-w.Since)
	for at := from; at.Before(from.Add(w.Since)); at = at.Add(w.Step.Length) {
		h.Times = append(h.Times, at.Unix())
	}
	for _, name := range named {
		h.Services[name] = make([]usage.Moment, len(h.Times))
	}
	if f.fill != nil {
		f.fill(&h)
	}
	return h, f.fault
}

func (f *fakeMetrics) Lately(_ context.Context, ids []string) map[string][]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string][]uint64{}
	if f.lately != nil {
		all[ids[0]] = f.lately
	}
	return all
}

// busy is an hour with traffic in its last minutes.
func busy(h *usage.History) {
	h.Ceilings = usage.Ceilings{Cores: 0.5, Memory: 512e6}
	last := len(h.Times) - 1
	for _, name := range []string{"web", "api"} {
		for i := last - 8; i <= last; i++ {
			p := &usage.Point{At: h.Times[i], Traffic: proxy.Counts{Answers: [6]uint64{2: 30, 5: 15}, In: 1e6, Out: 5e6}}
			p.Traffic.First.Add(20 * time.Millisecond)
			if name == "api" {
				used := int64(200e6)
				p.CPU, p.Over, p.Memory = 3*time.Second, 15*time.Second, &used
			}
			h.Services[name][i].Point = p
		}
	}
	at := time.Unix(h.Times[last-4], 0)
	h.Sizes["api"] = usage.Size{Bytes: 3e6, At: at}
	h.Events = []usage.Event{
		{At: at, Type: stack.EventLive, Generation: 7},
		{At: at, Type: stack.EventCrashed, Service: "api"},
	}
}

func TestMetrics_AreDrawnForEachService(t *testing.T) {
	e := newEnv(t)
	e.metrics.fill = busy
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	body := b.get("/dashboard/stacks/" + id).body
	for _, want := range []string{
		`id="web-requests"`, `id="web-latency"`, `id="api-requests"`, `id="api-memory"`, `id="api-cpu"`,
		`<desc id="api-requests-desc">Now 3 req/s, at most 3 req/s.</desc>`,
		`<desc id="api-memory-desc">Now 200 MB, at most 200 MB.</desc>`,
		`<desc id="api-cpu-desc">Now 20%, at most 20%.</desc>`,
		"limit 512 MB", "limit 50%", `class="ceiling"`,
		"<title>Generation 7 is live, ", "<title>Crash of api, ", "1 × deploy", "1 × crash",
		"Data directory: 3 MB, added up", "Received 9 MB, sent 45 MB.",
	} {
		require.Contains(t, body, want)
	}
	require.NotContains(t, body, `id="web-memory"`, "a static site has no process")
	require.NotContains(t, body, "restored or moved")
	require.Equal(t, 15*time.Second, e.metrics.asked.Step.Length)
}

func TestMetrics_OfADatabaseAreWhatItUses(t *testing.T) {
	h := usage.History{Step: time.Minute, Times: []int64{0}, Services: map[string][]usage.Moment{"db": make([]usage.Moment, 1)}}
	d := drawing{h: &h, spec: &stack.Spec{Name: "db", Runtime: stack.Runtime{Name: "postgres", Version: "17"}}}
	var names []string
	for _, p := range d.service().Pictures {
		names = append(names, p.Name)
		require.Equal(t, "nothing measured", p.Facts)
	}
	require.Equal(t, []string{"Memory", "CPU of a core"}, names)
}

func TestMetrics_GoAsFarBackAsTheAddressSays(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	for _, s := range spans {
		r := b.get("/dashboard/stacks/" + id + "?range=" + s.Since)
		require.Equal(t, 200, r.status, s.Since)
		want, err := usage.ParseWindow(s.Since, s.Step)
		require.NoError(t, err)
		require.Equal(t, want, e.metrics.asked)
		require.Contains(t, r.body, `aria-current="true">`+s.Name)
	}
	require.Contains(t, b.get("/dashboard/stacks/"+id+"?range=7d").body, "a figure for each hour, once it is over")
	require.Contains(t, b.get("/dashboard/stacks/"+id+"?range=30d").body, "range=30d&amp;service=api", "the links to logs keep it")
	require.Equal(t, 404, b.get("/dashboard/stacks/"+id+"?range=2h").status)
}

func TestMetrics_SayWhereTheyBegin(t *testing.T) {
	e := newEnv(t)
	e.metrics.fill = func(h *usage.History) {
		h.Events = []usage.Event{{At: time.Unix(h.Times[3], 0), Type: stack.EventRestored}}
	}
	b := e.signedUp(ana)
	body := b.get("/dashboard/stacks/" + e.owned(b, "guestbook")).body
	require.Contains(t, body, "Before that it was stopped, or on another node")
	require.Contains(t, body, "1 × restored or moved")

	e.metrics.fill = func(h *usage.History) {
		busy(h)
		h.Events = []usage.Event{{At: time.Unix(h.Times[len(h.Times)-1], 0), Type: stack.EventRestored}}
	}
	body = b.get("/dashboard/stacks/" + e.owned(b, "shop")).body
	require.NotContains(t, body, "Before that it was stopped", "it has figures of before")
	require.Contains(t, body, "1 × restored or moved")
}

func TestMetrics_ThatCannotBeReadLeaveThePage(t *testing.T) {
	for name, harm := range map[string]func(*fakeMetrics){
		"broken": func(f *fakeMetrics) { f.fault = errors.New("the file is damaged") },
		"slow":   func(f *fakeMetrics) { f.block = true },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			b := e.signedUp(ana)
			id := e.owned(b, "guestbook")
			harm(e.metrics)
			r := b.get("/dashboard/stacks/" + id)
			require.Equal(t, 200, r.status)
			require.Contains(t, r.body, "The metrics cannot be read at the moment.")
			require.Contains(t, r.body, `id="logs"`)
			require.Contains(t, e.logged.String(), "metrics not shown")
		})
	}
}

func TestMetrics_OfTheLastHourAreInTheList(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	require.NotContains(t, b.get("/dashboard").body, "Requests of the last hour")
	e.metrics.lately = []uint64{0, 5, 12, 3}
	body := b.get("/dashboard").body
	require.Contains(t, body, `<desc id="`+id+`-lately-desc">At most 12 in a minute.</desc>`)
	require.Contains(t, body, "20 requests in the last hour")
}

func TestAmount_UsesTheLargestUnitOfWhichThereIsOne(t *testing.T) {
	for got, want := range map[string]string{
		inBytes(0): "0 B", inBytes(999): "999 B", inBytes(1500): "1.5 kB", inBytes(2e9): "2 GB", inBytes(5e15): "5000 TB", inBytes(999.6): "1000 B",
		inMilliseconds(0.25): "0.25 ms", inMilliseconds(1500): "1.5 s", perSecond(0.05): "0.05 req/s", inCores(0.005): "0.5%", perSecond(12345): "12345 req/s",
	} {
		require.Equal(t, want, got)
	}
}
