package api

import (
	"math"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/usage"
)

// seriesView is what was measured of a service. All lists have a value for each time, null
// where nothing was measured.
type seriesView struct {
	Times       []int64    `json:"times"` // Unix seconds
	Requests    []*uint64  `json:"requests"`
	Status2xx   []*uint64  `json:"status_2xx"`
	Status3xx   []*uint64  `json:"status_3xx"`
	Status4xx   []*uint64  `json:"status_4xx"`
	Status5xx   []*uint64  `json:"status_5xx"`
	BytesIn     []*uint64  `json:"bytes_in"`
	BytesOut    []*uint64  `json:"bytes_out"`
	Restarts    []*int     `json:"restarts"`
	Crashes     []*int     `json:"crashes"`
	P50         []*float64 `json:"p50_ms"`
	P95         []*float64 `json:"p95_ms"`
	P99         []*float64 `json:"p99_ms"`
	CPUCores    []*float64 `json:"cpu_cores"`
	MemoryBytes []*int64   `json:"memory_bytes"`
	DataBytes   []*int64   `json:"data_bytes"`
}

// metrics answers GET /v0/stacks/{id}/metrics.
func (a *API) metrics(c *fiber.Ctx, s *stack.Stack, _ string) error {
	w, err := usage.ParseWindow(c.Query("since"), c.Query("step"))
	if err != nil {
		return err
	}
	h, err := a.cfg.Metrics.Read(a.server.Context(), s.ID, s.ServiceNames(), w)
	if err != nil {
		return err
	}
	services := map[string]seriesView{}
	for name, moments := range h.Services {
		services[name] = newSeriesView(h.Times, moments)
	}
	return c.JSON(fiber.Map{"step": int(h.Step / time.Second), "services": services})
}

func newSeriesView(times []int64, moments []usage.Moment) seriesView {
	v := seriesView{Times: times}
	for _, m := range moments {
		v.addTraffic(m.Point)
		v.addUse(m.Point)
		v.Restarts = append(v.Restarts, counted(m, m.Restarts))
		v.Crashes = append(v.Crashes, counted(m, m.Crashes))
	}
	return v
}

// counted returns how often something happened in a step; nil if it did not as far as is
// known.
func counted(m usage.Moment, n int) *int {
	if m.Point == nil && n == 0 {
		return nil
	}
	return &n
}

func (v *seriesView) addTraffic(p *usage.Point) {
	requests, in, out := (*uint64)(nil), (*uint64)(nil), (*uint64)(nil)
	var statuses [4]*uint64
	var quantiles [3]*float64
	if p != nil {
		n := p.Requests()
		requests, in, out = &n, &p.Traffic.In, &p.Traffic.Out
		for i := range statuses {
			statuses[i] = &p.Traffic.Answers[i+2]
		}
		for i, q := range []float64{0.5, 0.95, 0.99} {
			quantiles[i] = millis(p.Traffic.First.Quantile(q))
		}
	}
	v.Requests, v.BytesIn, v.BytesOut = append(v.Requests, requests), append(v.BytesIn, in), append(v.BytesOut, out)
	v.Status2xx, v.Status3xx = append(v.Status2xx, statuses[0]), append(v.Status3xx, statuses[1])
	v.Status4xx, v.Status5xx = append(v.Status4xx, statuses[2]), append(v.Status5xx, statuses[3])
	v.P50, v.P95, v.P99 = append(v.P50, quantiles[0]), append(v.P95, quantiles[1]), append(v.P99, quantiles[2])
}

func (v *seriesView) addUse(p *usage.Point) {
	var cores *float64
	var memory, data *int64
	if p != nil {
		memory, data = p.Memory, p.Data
		if share, ok := p.Cores(); ok {
			rounded := round(share)
			cores = &rounded
		}
	}
	v.CPUCores, v.MemoryBytes, v.DataBytes = append(v.CPUCores, cores), append(v.MemoryBytes, memory), append(v.DataBytes, data)
}

// millis returns a duration in milliseconds, nil for none.
func millis(d time.Duration, ok bool) *float64 {
	if !ok {
		return nil
	}
	ms := round(d.Seconds() * 1000)
	return &ms
}

// round rounds to four decimals.
func round(n float64) float64 { return math.Round(n*1e4) / 1e4 }
