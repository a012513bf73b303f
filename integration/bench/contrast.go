package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// mostSlower is how many times as slow as before the proxy and static sites may be.
const mostSlower = 1.03

// contrast is a row of a comparison.
type contrast struct {
	figure figure
	values [2][]float64 // of the old commit and the new one; a value of each belongs to one round
	faults [2]error     // why a commit cannot do it
}

// failed reports whether one of the commits cannot do it.
func (c *contrast) failed() bool { return c.faults[0] != nil || c.faults[1] != nil }

// ratio returns the median of the rounds' ratios, the new value divided by the old one.
func (c *contrast) ratio() float64 { return pairedRatio(c.values[1], c.values[0]) }

// worse returns how many times as bad as the old value the new one is.
func (c *contrast) worse() float64 {
	if c.figure.more {
		return 1 / c.ratio()
	}
	return c.ratio()
}

// good reports whether the new commit is as good as it has to be. A row that only the
// old commit cannot do is good.
func (c *contrast) good() bool {
	switch {
	case c.failed():
		return c.faults[1] == nil
	case c.figure.most > 0:
		return c.worse() <= c.figure.most
	case c.figure.more:
		return median(c.values[1]) >= slices.Min(c.values[0])
	}
	return median(c.values[1]) <= slices.Max(c.values[0])
}

// verdict says whether the row is good, or which commit cannot do it.
func (c *contrast) verdict() string {
	switch {
	case c.faults[1] != nil:
		return "the new one cannot: " + firstLine(c.faults[1])
	case c.faults[0] != nil:
		return "the old one cannot: " + firstLine(c.faults[0])
	case c.good():
		return "ok"
	case c.figure.most > 0:
		return fmt.Sprintf("worse by %.1f %%", 100*(c.worse()-1))
	}
	return "worse than every old round"
}

// firstLine returns the beginning of an error for a line of a table.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Sprintf("%.80s", strings.TrimSuffix(line, ":"))
}

// cells returns the row as shown.
func (c *contrast) cells() []string {
	cells := []string{c.figure.what, "-", "-", "-", "-", c.verdict()}
	if old := c.values[0]; len(old) > 0 {
		cells[1] = c.figure.unit.of(median(old))
		cells[2] = c.figure.unit.of(slices.Min(old)) + " – " + c.figure.unit.of(slices.Max(old))
	}
	if len(c.values[1]) > 0 {
		cells[3] = c.figure.unit.of(median(c.values[1]))
	}
	if ratio := c.ratio(); !math.IsNaN(ratio) {
		cells[4] = fmt.Sprintf("%.3f", ratio)
	}
	return cells
}

// printContrasts writes the rows for a terminal.
func printContrasts(w io.Writer, old, now string, rows []*contrast) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	columns := []string{"what", "old, " + old, "its rounds", "new, " + now, "ratio", ""}
	fmt.Fprintln(tw, strings.Join(columns, "\t"))
	for _, c := range rows {
		fmt.Fprintln(tw, strings.Join(c.cells(), "\t"))
	}
	tw.Flush()
}
