package web

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/chart"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/usage"
)

// Metrics reads what the services of stacks served and used; package usage implements it.
type Metrics interface {
	Read(ctx context.Context, id string, named []string, w usage.Window) (usage.History, error)
	// Lately has no stack of which nothing is known in time.
	Lately(ctx context.Context, ids []string) map[string][]uint64
}

// metricsLimit is how long a page waits for its metrics before it is shown without them.
const metricsLimit = 2 * time.Second

// span is a time that the pictures show.
type span struct{ Since, Step, Name, Each string }

var spans = []span{
	{"1h", "15s", "1 hour", "15 seconds"},
	{"6h", "5m", "6 hours", "5 minutes"},
	{"7d", "1h", "7 days", "hour"},
	{"30d", "1h", "30 days", "hour"},
}

// chooseSpan returns the span that a request asks for, the first if it names none.
func chooseSpan(c *fiber.Ctx) (span, error) {
	since := c.Query("range", spans[0].Since)
	i := slices.IndexFunc(spans, func(s span) bool { return s.Since == since })
	if i < 0 {
		return span{}, fiber.ErrNotFound
	}
	return spans[i], nil
}

// metricsView is what a stack's page shows of its metrics.
type metricsView struct {
	Span     span
	Services []serviceMetrics
	Marks    []markView // what the marks of all pictures are
	Since    time.Time  // before it the stack was stopped or on another node; zero if it was measured
	Missing  bool       // they cannot be read at the moment
}

type serviceMetrics struct {
	Name     string
	Pictures []pictureView
	Traffic  string // how much was received and sent; "" for a database
	Data     string // size of the data directory; "" if it is not known
	DataAt   time.Time
}

// pictureView is a picture with its names, and the ends of its upward axis.
type pictureView struct {
	Name      string
	Keys      []keyView
	Facts     string
	Top, Half string
	SVG       string
}

// keyView explains a series or a mark.
type keyView struct{ Class, Name string }

// markView is a kind of mark, and how often it is there.
type markView struct {
	Key   keyView
	Count int
}

// showMetrics reads the metrics of a stack. A page is shown without them if they cannot be
// read.
func (w *pages) showMetrics(st *stack.Stack, s span) metricsView {
	ctx, cancel := context.WithTimeout(w.server.Context(), metricsLimit)
	defer cancel()
	window, err := usage.ParseWindow(s.Since, s.Step)
	var h usage.History
	if err == nil {
		h, err = w.cfg.Metrics.Read(ctx, st.ID, st.ServiceNames(), window)
	}
	if err != nil {
		w.cfg.Log.Warn("metrics not shown", "stack", st.ID, "error", err)
		return metricsView{Span: s, Missing: true}
	}
	v := metricsView{Span: s, Marks: countMarks(h.Events), Since: begins(&h)}
	for i := range st.Generation.Services {
		d := drawing{h: &h, spec: &st.Generation.Services[i].Spec}
		v.Services = append(v.Services, d.service())
	}
	return v
}

// begins returns when the stack was restored or moved here, if nothing was measured before
// that; zero otherwise.
func begins(h *usage.History) (at time.Time) {
	for _, e := range h.Events {
		if e.Type == stack.EventRestored {
			at = e.At
		}
	}
	for _, moments := range h.Services {
		for i, m := range moments {
			if m.Point != nil && h.Times[i] < at.Unix() {
				return time.Time{}
			}
		}
	}
	return at
}

// The marks of events, in the order in which they are explained.
var markKeys = []struct {
	of  stack.EventType
	key keyView
}{
	{stack.EventLive, keyView{"deploy", "deploy"}},
	{stack.EventCrashed, keyView{"crash", "crash"}},
	{stack.EventRestarted, keyView{"restart", "restart"}},
	{stack.EventRestored, keyView{"restored", "restored or moved"}},
}

func countMarks(events []usage.Event) (marks []markView) {
	for _, m := range markKeys {
		n := 0
		for _, e := range events {
			if e.Type == m.of {
				n++
			}
		}
		if n > 0 {
			marks = append(marks, markView{m.key, n})
		}
	}
	return marks
}

// drawing draws the pictures of a service.
type drawing struct {
	h    *usage.History
	spec *stack.Spec
}

// service returns the pictures of what a service of its kind has: a database answers no
// requests of HTTP, and a static site has no process.
func (d *drawing) service() serviceMetrics {
	m := serviceMetrics{Name: d.spec.Name}
	if d.spec.Database() == nil {
		m.Pictures = append(m.Pictures, d.requests(), d.latency())
		m.Traffic = d.bytes()
	}
	if !d.spec.IsStatic() {
		m.Pictures = append(m.Pictures, d.memory(), d.cpu())
	}
	if size, known := d.h.Sizes[d.spec.Name]; known {
		m.Data, m.DataAt = inBytes(float64(size.Bytes)), size.At
	}
	return m
}

// series returns a value for each step: what of returns for its point, and nothing where
// there is none.
func (d *drawing) series(class string, of func(*usage.Point) (float64, bool)) chart.Series {
	s := chart.Series{Class: class}
	for _, m := range d.h.Services[d.spec.Name] {
		v := chart.None
		if m.Point != nil {
			if measured, ok := of(m.Point); ok {
				v = measured
			}
		}
		s.Values = append(s.Values, v)
	}
	return s
}

// The classes of answers, as bars from the lowest up.
var answerKeys = []struct {
	class int
	key   keyView
}{
	{2, keyView{"s2", "2xx"}},
	{3, keyView{"s3", "3xx"}},
	{4, keyView{"s4", "4xx"}},
	{5, keyView{"s5", "5xx"}},
	{1, keyView{"s1", "upgraded"}},
	{0, keyView{"s0", "client left"}},
}

func (d *drawing) requests() pictureView {
	p, v := d.picture("requests"), pictureView{Name: "Requests"}
	for _, a := range answerKeys {
		s := d.series(a.key.Class, func(p *usage.Point) (float64, bool) {
			return float64(p.Traffic.Answers[a.class]) / d.h.Step.Seconds(), true
		})
		if a.class >= 2 || highest(s) > 0 {
			p.Bars, v.Keys = append(p.Bars, s), append(v.Keys, a.key)
		}
	}
	all := d.series("", func(p *usage.Point) (float64, bool) { return float64(p.Requests()) / d.h.Step.Seconds(), true })
	return v.with(p, all, perSecond)
}

func (d *drawing) latency() pictureView {
	p, v := d.picture("latency"), pictureView{Name: "Time to first byte"}
	for _, q := range []struct {
		share float64
		key   keyView
	}{{0.5, keyView{"p50", "p50"}}, {0.95, keyView{"p95", "p95"}}, {0.99, keyView{"p99", "p99"}}} {
		p.Lines = append(p.Lines, d.series(q.key.Class, func(p *usage.Point) (float64, bool) {
			took, ok := p.Traffic.First.Quantile(q.share)
			return took.Seconds() * 1000, ok
		}))
		v.Keys = append(v.Keys, q.key)
	}
	v = v.with(p, p.Lines[1], inMilliseconds)
	v.Facts = "p95 " + v.Facts
	return v
}

func (d *drawing) memory() pictureView {
	p, v := d.picture("memory"), pictureView{Name: "Memory", Keys: []keyView{{"used", "used"}}}
	p.Ceiling = float64(d.h.Ceilings.Memory)
	p.Lines = []chart.Series{d.series("used", func(p *usage.Point) (float64, bool) {
		if p.Memory == nil {
			return 0, false
		}
		return float64(*p.Memory), true
	})}
	return v.with(p, p.Lines[0], inBytes)
}

func (d *drawing) cpu() pictureView {
	p, v := d.picture("cpu"), pictureView{Name: "CPU of a core", Keys: []keyView{{"used", "used"}}}
	p.Ceiling = d.h.Ceilings.Cores
	p.Lines = []chart.Series{d.series("used", (*usage.Point).Cores)}
	return v.with(p, p.Lines[0], inCores)
}

// picture returns an empty picture with the marks of the service and of the stack.
func (d *drawing) picture(name string) *chart.Picture {
	p := &chart.Picture{ID: d.spec.Name + "-" + name, Steps: len(d.h.Times)}
	for _, e := range d.h.Events {
		if e.Service != "" && e.Service != d.spec.Name {
			continue
		}
		for _, m := range markKeys {
			if m.of == e.Type {
				at := e.At.Sub(time.Unix(d.h.Times[0], 0)).Seconds() / d.h.Step.Seconds()
				p.Marks = append(p.Marks, chart.Mark{Class: m.key.Class, At: at, Title: markTitle(e, m.key.Name)})
			}
		}
	}
	return p
}

func markTitle(e usage.Event, name string) string {
	switch {
	case e.Type == stack.EventLive:
		name = fmt.Sprintf("generation %d is live", e.Generation)
	case e.Service != "":
		name += " of " + e.Service
	}
	return sentence(name + ", " + clock(e.At))
}

// with completes the view of a picture. The series is the one that words tell of.
func (v pictureView) with(p *chart.Picture, told chart.Series, unit func(float64) string) pictureView {
	if p.Ceiling > 0 {
		v.Keys = append(v.Keys, keyView{"ceiling", "limit " + unit(p.Ceiling)})
	}
	v.Facts = "nothing measured"
	if most := highest(told); !math.IsNaN(most) {
		v.Facts = fmt.Sprintf("now %s, at most %s", cmp.Or(latest(told, unit), "not measured"), unit(most))
	}
	p.Title, p.Desc = v.Name, sentence(v.Facts)
	v.Top, v.Half, v.SVG = unit(p.Top()), unit(p.Top()/2), p.SVG()
	return v
}

// highest returns the highest value of a series, chart.None if it has none.
func highest(s chart.Series) float64 {
	most := chart.None
	for _, v := range s.Values {
		if !math.IsNaN(v) && !(most >= v) {
			most = v
		}
	}
	return most
}

// latest returns the value of the last step, "" if it has none.
func latest(s chart.Series, unit func(float64) string) string {
	if len(s.Values) == 0 || math.IsNaN(s.Values[len(s.Values)-1]) {
		return ""
	}
	return unit(s.Values[len(s.Values)-1])
}

// bytes says how much was received and sent.
func (d *drawing) bytes() string {
	var in, out uint64
	for _, m := range d.h.Services[d.spec.Name] {
		if m.Point != nil {
			in += m.Point.Traffic.In
			out += m.Point.Traffic.Out
		}
	}
	return fmt.Sprintf("Received %s, sent %s", inBytes(float64(in)), inBytes(float64(out)))
}

func perSecond(v float64) string      { return figure(v) + " req/s" }
func inMilliseconds(v float64) string { return amount(v, 1000, "ms", "s") }
func inCores(v float64) string        { return figure(v*100) + "%" }
func inBytes(v float64) string        { return amount(v, 1000, "B", "kB", "MB", "GB", "TB") }

// amount formats a number in the largest unit of which there is one.
func amount(v, factor float64, units ...string) string {
	for len(units) > 1 && v >= factor {
		v, units = v/factor, units[1:]
	}
	return figure(v) + " " + units[0]
}

// figure formats a number with three digits, or more where it has more before its point.
func figure(v float64) string {
	if v >= 999.5 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// latelyView is what the list shows of the last hour of a stack; without a picture if nothing
// was measured.
type latelyView struct{ Total, SVG string }

// showLately draws how many requests a stack had in each of the last minutes.
func showLately(id string, minutes []uint64) latelyView {
	if len(minutes) == 0 {
		return latelyView{}
	}
	s, total := chart.Series{Class: "used"}, 0
	for _, n := range minutes {
		s.Values = append(s.Values, float64(n))
		total += int(n)
	}
	p := chart.Picture{
		ID: id + "-lately", Title: "Requests of the last hour", Desc: fmt.Sprintf("At most %.0f in a minute.", highest(s)),
		Steps: len(minutes), Lines: []chart.Series{s},
	}
	return latelyView{count(total, "request") + " in the last hour", p.SVG()}
}
