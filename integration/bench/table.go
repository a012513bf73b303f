package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table holds the results of a run.
type table struct{ rows []row }

// row is one comparison as shown.
type row struct{ what, berth, peer, ratio, goal, verdict string }

// unit is the format of a figure.
type unit string

const (
	perSecond unit = "%.0f/s"
	nanos     unit = "%.0f ns"
	micros    unit = "%.1f µs"
	millis    unit = "%.0f ms"
	kilobytes unit = "%.1f KB"
	megabytes unit = "%.1f MB"
	percent   unit = "%.2f %%"
)

// nothing is the figure below which a peer is not comparable.
const nothing = 0.5

func (u unit) of(value float64) string { return fmt.Sprintf(string(u), value) }

// signed formats a difference.
func (u unit) signed(value float64) string {
	return fmt.Sprintf(strings.Replace(string(u), "%", "%+", 1), value)
}

// compare adds a row for something measured alternately: berth[i] and other[i] belong
// together. The ratio is the median of the pairs' ratios. A goal above 0 is the highest
// acceptable ratio.
func (t *table) compare(what string, u unit, berth []float64, peer string, other []float64, goal float64) {
	r := row{what: what, berth: u.of(median(berth)), peer: peer + " " + u.of(median(other)), goal: "-", verdict: "-"}
	ratio := pairedRatio(berth, other)
	r.ratio = fmt.Sprintf("%.2f", ratio)
	if goal > 0 {
		r.goal, r.verdict = fmt.Sprintf("≤ %.2f", goal), verdict(ratio <= goal)
	}
	t.rows = append(t.rows, r)
}

// share adds a row for something measured alternately of which more is better: the ratio must
// be at least the goal, unless that is 0.
func (t *table) share(what string, u unit, berth []float64, peer string, other []float64, least float64) {
	ratio := pairedRatio(berth, other)
	r := row{what, u.of(median(berth)), peer + " " + u.of(median(other)), fmt.Sprintf("%.2f", ratio), "-", "-"}
	if least > 0 {
		r.goal, r.verdict = fmt.Sprintf("≥ %.2f", least), verdict(ratio >= least)
	}
	t.rows = append(t.rows, r)
}

// limit adds a row whose goal applies to Berth's own figure. It omits the ratio to a
// peer whose figure is next to nothing.
func (t *table) limit(what string, u unit, berth []float64, peer string, other []float64, most float64) {
	own := median(berth)
	r := row{what: what, berth: u.of(own), peer: peer + " " + u.of(median(other)), ratio: "-"}
	if median(other) >= nothing {
		r.ratio = fmt.Sprintf("%.2f", pairedRatio(berth, other))
	}
	r.goal, r.verdict = "≤ "+u.of(most), verdict(own <= most)
	t.rows = append(t.rows, r)
}

// over adds a row for something measured alternately whose goal is how much longer than
// the peer it may take. The difference is the median of the pairs' differences.
func (t *table) over(what string, u unit, berth []float64, peer string, other []float64, most float64) {
	differences := make([]float64, len(berth))
	for i := range berth {
		differences[i] = berth[i] - other[i]
	}
	more := median(differences)
	t.rows = append(t.rows, row{
		what, u.of(median(berth)), peer + " " + u.of(median(other)), u.signed(more), "≤ " + u.signed(most), verdict(more <= most),
	})
}

// worst adds a row without a peer: the highest of the figures must be within the goal.
func (t *table) worst(what string, u unit, berth []float64, most float64) {
	highest := slices.Max(berth)
	if len(berth) > 1 {
		what += fmt.Sprintf(", worst of %d", len(berth))
	}
	t.rows = append(t.rows, row{what, u.of(highest), "-", "-", "≤ " + u.of(most), verdict(highest <= most)})
}

// inMillis returns a duration as a figure of the table.
func inMillis(d time.Duration) float64 { return d.Seconds() * 1000 }

func verdict(good bool) string {
	if good {
		return "ok"
	}
	return "missed"
}

// pairedRatio returns the median of the ratios; it ignores pairs without a divisor.
func pairedRatio(berth, other []float64) float64 {
	var ratios []float64
	for i := range berth {
		if other[i] > 0 {
			ratios = append(ratios, berth[i]/other[i])
		}
	}
	return median(ratios)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

var columns = row{"what", "Berth", "peer", "ratio", "goal", ""}

func (r row) cells() []string {
	return []string{r.what, r.berth, r.peer, r.ratio, r.goal, r.verdict}
}

// print writes the table for a terminal.
func (t *table) print(w io.Writer, machine string) {
	fmt.Fprintf(w, "%s\n\n", machine)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range append([]row{columns}, t.rows...) {
		fmt.Fprintln(tw, strings.Join(r.cells(), "\t"))
	}
	tw.Flush()
}

// markdown returns the table in Markdown.
func (t *table) markdown() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(columns.cells())
	b.WriteString("|---|---:|---:|---:|---:|---|\n")
	for _, r := range t.rows {
		line(r.cells())
	}
	return b.String()
}
