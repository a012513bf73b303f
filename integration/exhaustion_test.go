package integration

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A neighbour's latency is compared in windows, calm ones and such during which
// a stack uses something up in turn, by the medians of their 99th percentiles.
// What else the machine does makes a busy window look worse, never better: the
// first good round counts.
const (
	window  = 700 * time.Millisecond
	windows = 3
	rounds  = 3
	// A baseline below this is taken for it: there the slices of the kernel's
	// scheduler are measured, and not what a neighbour takes away.
	leastBaseline = 10 * time.Millisecond
	// A machine that idles less than this in the calm windows has other work, with
	// which all containers together share the processor as one, and which makes
	// the baseline look worse too: a round there is judged by the least baseline
	// alone.
	leastIdle = 0.5
)

// exhaustion is what the hog uses up, how much of it in a window at least, and
// what keeps it from more.
type exhaustion struct {
	what  string
	least int
	end   string
}

var exhaustions = []exhaustion{
	{"processes", 200, "EAGAIN"},
	{"memory", 1, "killed"},
	{"descriptors", 1000, "EMFILE"},
	{"inotify", 100, "EMFILE"},
	{"disk", 16, "time"},
	{"log", 1, "time"},
}

// TestIsolation_ExhaustionLeavesTheNeighbourAlone sets the ceilings that a public
// installation is told to set.
func TestIsolation_ExhaustionLeavesTheNeighbourAlone(t *testing.T) {
	h := start(t, asShipped, with("BERTH_SERVICE_PIDS", "256"), with("BERTH_SERVICE_MEMORY", "512MiB"), with("BERTH_SERVICE_CPUS", "0.5"))
	neighbour := h.live(t, program(t), manifest(programManifest))
	hog := h.live(t, probe(t), manifest(`services: [{name: web, runtime: node, install: "", build: chmod +x probe, start: ./probe serve}]`))
	for _, e := range exhaustions {
		t.Run(e.what, func(t *testing.T) { h.outlast(t, neighbour, hog, e) })
	}
	require.Equal(t, "live", h.show(t, neighbour, "").Status)
	require.Equal(t, "live", h.show(t, hog, "").Status)
	require.NotContains(t, types(h.events(t, neighbour)), "service.crashed web")
}

// outlast asserts that the neighbour goes on serving while the hog uses something
// up, and that its latency does not double.
func (h *Host) outlast(t *testing.T, neighbour, hog *Stack, e exhaustion) {
	t.Helper()
	for n := 1; ; n++ {
		r := h.compare(t, neighbour, hog, e.what)
		t.Logf("round %d: %s", n, r)
		calm := r.idle >= leastIdle
		switch {
		case r.hasUsed(e) && (r.busy < 2*leastBaseline || calm && r.busy < 2*r.calm):
			return
		case n < rounds:
		case calm:
			t.Fatalf("the neighbour's p99 doubles, or the hog did not get %d until %s: %s", e.least, e.end, r)
		default:
			t.Skipf("not judged, the machine has too much other work: %s", r)
		}
	}
}

// round is what windows of both kinds gave.
type round struct {
	calm, busy time.Duration // medians of the neighbour's p99
	idle       float64       // share of the machine that idled in the calm ones
	used       []used        // by the hog, in each busy one
}

// used is how much the hog got, and what kept it from more.
type used struct {
	got int
	end string
}

func (r round) String() string {
	return fmt.Sprintf("the neighbour's p99 is %s calm and %s busy, the machine idles %.0f %% when calm, the hog got %v", r.calm, r.busy, 100*r.idle, r.used)
}

// hasUsed tells whether the hog used up in every window what it should have.
func (r round) hasUsed(e exhaustion) bool {
	return !slices.ContainsFunc(r.used, func(u used) bool { return u.got < e.least || e.end != u.end })
}

// compare measures windows of both kinds in turn.
func (h *Host) compare(t *testing.T, neighbour, hog *Stack, what string) round {
	t.Helper()
	var r round
	var calms, busies []time.Duration
	for range windows {
		idled, spent := cpuTimes(t)
		calms = append(calms, h.p99(t, neighbour))
		idledThen, spentThen := cpuTimes(t)
		r.idle += (idledThen - idled) / (spentThen - spent) / windows

		end := h.exhaust(t, hog, what)
		busies = append(busies, h.p99(t, neighbour))
		r.used = append(r.used, end())
	}
	r.calm, r.busy = median(calms), median(busies)
	return r
}

// exhaust has the hog use something up for a window, and returns once it has
// begun; end waits until it is over.
func (h *Host) exhaust(t *testing.T, hog *Stack, what string) (end func() used) {
	t.Helper()
	res, err := h.client.Do(h.request(t, http.MethodGet, hog.url("web", "/exhaust?for="+window.String()+"&what="+what), nil))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	return func() (u used) {
		defer res.Body.Close()
		_, err := fmt.Fscan(res.Body, &u.got, &u.end)
		require.NoError(t, err, "%s ended the hog itself", what)
		return u
	}
}

// p99 is the 99th percentile of a service's latencies over a window.
func (h *Host) p99(t *testing.T, st *Stack) time.Duration {
	t.Helper()
	var all []time.Duration
	for until := time.Now().Add(window); time.Now().Before(until); time.Sleep(time.Millisecond) {
		begun := time.Now()
		require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/")).status)
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// cpuTimes is how long the processors of this machine have idled, and how long
// they have been there, in ticks.
func cpuTimes(t *testing.T) (idle, all float64) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	require.NoError(t, err)
	var ticks [8]float64 // user, nice, system, idle, waiting for a disk, interrupts of two kinds, stolen
	_, err = fmt.Sscanf(string(text), "cpu %g %g %g %g %g %g %g %g",
		&ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7])
	require.NoError(t, err)
	for _, n := range ticks {
		all += n
	}
	return ticks[3] + ticks[4], all
}
