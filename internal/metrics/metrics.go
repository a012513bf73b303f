// Package metrics counts what the server does, for Prometheus. The packages that do the
// work do not import it: they call functions that they were given, or are asked when
// somebody reads the metrics. No label contains a stack's id, a name chosen by a
// stranger, or anything else without a limit.
package metrics

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts what one server does.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	builds   *prometheus.HistogramVec
	engine   *prometheus.HistogramVec
	events   *prometheus.CounterVec

	deliveries *prometheus.HistogramVec
	arrivals   *prometheus.CounterVec
	connected  *prometheus.CounterVec
	overLimit  *prometheus.CounterVec
	leases     prometheus.Counter
	mails      *prometheus.CounterVec
}

// Bounds of the histograms' buckets, in seconds.
var (
	requestBuckets = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 120}
	buildBuckets   = []float64{.1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200}
	engineBuckets  = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60}
)

// New returns metrics that are all zero.
func New() *Metrics {
	return &Metrics{
		requests: counter("berth_http_requests_total",
			"Requests of the API that were answered, by route, method and status.", "route", "method", "status"),
		duration: histogram("berth_http_request_duration_seconds", requestBuckets,
			"Time to answer an API request, including the wait of wait=true.", "route"),
		builds: histogram("berth_build_duration_seconds", buildBuckets,
			"Duration of service builds that ended, from when each got its slot, by runtime and result (ok, failed, stopped).", "runtime", "result"),
		engine: histogram("berth_engine_call_duration_seconds", engineBuckets,
			"Duration of calls to the Docker engine, by call and result (ok, error); a call that streams lasts until its end.", "call", "result"),
		events: counter("berth_events_total",
			"Recorded events of stacks, by type: deploys, failures, crashes, claims and expiries.", "type"),
		deliveries: histogram("berth_delivery_duration_seconds", engineBuckets,
			"Attempts to deliver an event to a webhook, by result (ok, failed, retried).", "result"),
		mails: counter("berth_mails_total", "Tries to send a mail, by result (sent, failed, retried).", "result"),
		arrivals: counter("berth_arrivals_total",
			"Requests at the public address, by where their host leads: service, base (the API and the pages) or none.", "host"),
		connected: counter("berth_connections_total",
			"Connections at the public address, by the lane in which they begin: fast (plain requests for services) or standard; handed_over counts those that changed to it.", "lane"),
		overLimit: counter("berth_connections_over_limit_total",
			"Connections of client networks that had the most they may have: idle_closed counts idle ones closed to make room for a new one, refused new ones while none was idle.", "outcome"),
		leases: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_lease_failures_total", Help: "Renewals of this node's lease that failed.",
		}),
	}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name string, buckets []float64, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Asked is what is asked each time that the metrics are read.
type Asked struct {
	Version  string                                        // of the program
	Builds   func() (running, waiting int)                 // builds that run, and that wait for a slot
	Statuses []string                                      // of stacks; each is shown, even without a stack
	Stacks   func(context.Context) (map[string]int, error) // number of stacks by status
	Nodes    func() map[string]int                         // number of nodes by state; nil on one machine
}

// Handler serves the metrics, together with what it asks for.
func (m *Metrics) Handler(asked Asked) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.arrivals, m.connected, m.overLimit, m.requests, m.duration, m.builds, m.engine, m.events, m.deliveries, m.mails,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("berth_builds_running", "Builds that are running.",
			func() int { running, _ := asked.Builds(); return running }),
		gauge("berth_builds_waiting", "Builds that are waiting for a slot.",
			func() int { _, waiting := asked.Builds(); return waiting }),
		buildInfo(asked.Version), stacks(asked))
	if asked.Nodes != nil {
		registry.MustRegister(m.leases, nodes(asked.Nodes))
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})
}

func gauge(name, help string, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
		func() float64 { return float64(value()) })
}

// buildInfo returns a gauge whose label is the version of the program.
func buildInfo(version string) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_build_info", Help: "1, with the version of the program that runs."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	return info
}

// usual are the methods with their own label.
var usual = []string{"GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS"}

// Arrival counts a request at the public address.
func (m *Metrics) Arrival(host string) { m.arrivals.WithLabelValues(host).Inc() }

// OverLimit counts a connection of a client network that had as many as it may, by what
// became of it.
func (m *Metrics) OverLimit(outcome string) { m.overLimit.WithLabelValues(outcome).Inc() }

// Connection counts a connection at the public address by its lane.
func (m *Metrics) Connection(lane string) { m.connected.WithLabelValues(lane).Inc() }

// Request counts an answered request of the API. The route is "" for a path without
// one.
func (m *Metrics) Request(route, method string, status int, took time.Duration) {
	route = cmp.Or(route, "none")
	if !slices.Contains(usual, method) {
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}

// Build counts a finished build; the result is ok, failed or stopped.
func (m *Metrics) Build(runtime, result string, took time.Duration) {
	m.builds.WithLabelValues(runtime, result).Observe(took.Seconds())
}

// EngineCall counts a finished call of the Docker engine, such as "POST
// /containers/create".
func (m *Metrics) EngineCall(call string, ok bool, took time.Duration) {
	result := "ok"
	if !ok {
		result = "error"
	}
	m.engine.WithLabelValues(call, result).Observe(took.Seconds())
}

// Delivery counts an attempt to deliver an event to a webhook; the result is ok,
// failed, or retried if it is tried again.
func (m *Metrics) Delivery(result string, took time.Duration) {
	m.deliveries.WithLabelValues(result).Observe(took.Seconds())
}

// Mail counts a try to send a mail; the result is sent, failed, or retried if it is tried
// again.
func (m *Metrics) Mail(result string) { m.mails.WithLabelValues(result).Inc() }

// LeaseFailure counts a renewal of this node's lease that failed.
func (m *Metrics) LeaseFailure() { m.leases.Inc() }

// Event counts an event of the given type.
func (m *Metrics) Event(kind string) { m.events.WithLabelValues(kind).Inc() }

// stacks collects the number of stacks of each status.
type stacks Asked

var stacksDesc = prometheus.NewDesc("berth_stacks", "Stacks of each status; deleted ones are not counted.", []string{"status"}, nil)

// askTimeout limits how long reading the metrics waits for the database.
const askTimeout = 5 * time.Second

// Describe implements prometheus.Collector.
func (s stacks) Describe(out chan<- *prometheus.Desc) { out <- stacksDesc }

// Collect implements prometheus.Collector.
func (s stacks) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	counts, err := s.Stacks(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(stacksDesc, err)
		return
	}
	for _, status := range s.Statuses {
		out <- prometheus.MustNewConstMetric(stacksDesc, prometheus.GaugeValue, float64(counts[status]), status)
	}
}

// nodes collects the number of nodes in each state.
type nodes func() map[string]int

var nodesDesc = prometheus.NewDesc("berth_nodes", "Nodes in each state: ready, away or lost.", []string{"state"}, nil)

// Describe implements prometheus.Collector.
func (n nodes) Describe(out chan<- *prometheus.Desc) { out <- nodesDesc }

// Collect implements prometheus.Collector.
func (n nodes) Collect(out chan<- prometheus.Metric) {
	for state, count := range n() {
		out <- prometheus.MustNewConstMetric(nodesDesc, prometheus.GaugeValue, float64(count), state)
	}
}
