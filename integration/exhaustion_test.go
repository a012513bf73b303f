package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A neighbour's latency is compared in windows, calm ones and such during which
// a stack uses something up in turn, by the medians of their 99th percentiles.
// Noise of the machine makes a round look worse, never better: the first good one
// counts.
const (
	window  = 700 * time.Millisecond
	windows = 3
	rounds  = 4
	// A baseline below this is taken for it: there the slices of the kernel's
	// scheduler are measured, and not what a neighbour takes away.
	leastBaseline = 10 * time.Millisecond
	// A machine that idles less than this in the calm windows has other work,
	// with which all containers together share the processor as one: a round
	// there is printed and not judged, and is tried once more.
	leastIdle = 0.5
)

// TestIsolation_ExhaustionLeavesTheNeighbourAlone sets the ceilings that a public
// installation is told to set.
func TestIsolation_ExhaustionLeavesTheNeighbourAlone(t *testing.T) {
	h := start(t, asShipped, with("BERTH_SERVICE_PIDS", "256"), with("BERTH_SERVICE_MEMORY", "512MiB"), with("BERTH_SERVICE_CPUS", "0.5"))
	neighbour := h.live(t, program(t), manifest(programManifest))
	hog := h.live(t, probe(t), manifest(`services: [{name: web, runtime: node, install: "", build: chmod +x probe, start: ./probe serve}]`))
	for _, what := range []string{"processes", "memory", "descriptors", "inotify", "disk", "log"} {
		h.outlast(t, neighbour, hog, what)
	}
	require.Equal(t, "live", h.show(t, neighbour, "").Status)
	require.Equal(t, "live", h.show(t, hog, "").Status)
	require.NotContains(t, types(h.events(t, neighbour)), "service.crashed web")
}

// outlast asserts that the neighbour goes on serving while the hog uses something
// up, and that its latency does not double.
func (h *Host) outlast(t *testing.T, neighbour, hog *Stack, what string) {
	t.Helper()
	unjudged := 0
	for round := 1; unjudged < 2; round++ {
		calm, busy, idle := h.compare(t, neighbour, hog, what)
		t.Logf("%s: round %d: the neighbour's p99 is %s calm and %s busy, the machine idles %.0f %% when calm", what, round, calm, busy, 100*idle)
		most := 2 * max(calm, leastBaseline)
		switch {
		case busy < most:
			return
		case idle < leastIdle:
			unjudged++
		case round >= rounds:
			assert.Less(t, busy, most, "%s", what)
			return
		}
	}
	t.Logf("%s: not judged, the machine has too much other work", what)
}

// compare measures windows of both kinds in turn. It returns the medians of the
// neighbour's p99, and how much of the machine idled in the calm ones.
func (h *Host) compare(t *testing.T, neighbour, hog *Stack, what string) (calm, busy time.Duration, idle float64) {
	t.Helper()
	var calms, busies []time.Duration
	for range windows {
		idled, spent := cpuTimes(t)
		calms = append(calms, h.p99(t, neighbour))
		idledThen, spentThen := cpuTimes(t)
		idle += (idledThen - idled) / (spentThen - spent) / windows

		end := h.exhaust(t, hog, what)
		busies = append(busies, h.p99(t, neighbour))
		end()
	}
	return median(calms), median(busies), idle
}

// exhaust has the hog use something up for a window, and returns once it has
// begun; end waits until it is over.
func (h *Host) exhaust(t *testing.T, hog *Stack, what string) (end func()) {
	t.Helper()
	res, err := h.client.Do(h.request(t, http.MethodGet, hog.url("web", "/exhaust?for="+window.String()+"&what="+what), nil))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	return func() {
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		require.NoError(t, err, "%s ended the hog itself", what)
		require.NotEmpty(t, got)
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
