package main

import (
	"slices"
	"strings"
	"testing"
)

func TestTable_RatioIsTheMedianOfPairs(t *testing.T) {
	var tb table
	tb.compare("CPU", micros, []float64{10, 40, 30}, "nginx", []float64{20, 40, 10}, 1)
	want := row{"CPU", "30.0 µs", "nginx 20.0 µs", "1.00", "≤ 1.00", "ok"}
	if tb.rows[0] != want {
		t.Errorf("row is %q, want %q", tb.rows[0], want)
	}
}

func TestTable_MissedGoalIsShownWithItsFigure(t *testing.T) {
	var tb table
	tb.compare("deploy", millis, []float64{130, 120}, "by hand", []float64{100, 100}, 1.15)
	if r := tb.rows[0]; r.ratio != "1.25" || r.verdict != "missed" {
		t.Errorf("ratio %s is %s, want 1.25 missed", r.ratio, r.verdict)
	}
}

func TestTable_PeerWithoutAFigureHasNoRatio(t *testing.T) {
	var tb table
	tb.limit("memory", megabytes, []float64{2}, "nginx", []float64{0}, 8)
	want := row{"memory", "2.0 MB", "nginx 0.0 MB", "-", "≤ 8.0 MB", "ok"}
	if tb.rows[0] != want {
		t.Errorf("row is %q, want %q", tb.rows[0], want)
	}
	if !strings.Contains(tb.markdown(), "| memory | 2.0 MB | nginx 0.0 MB | - | ≤ 8.0 MB | ok |") {
		t.Errorf("the page lacks the row:\n%s", tb.markdown())
	}
}

func TestTable_DifferenceIsTheMedianOfPairs(t *testing.T) {
	var tb table
	tb.over("edit", millis, []float64{900, 1000, 1100}, "build", []float64{400, 100, 500}, 600)
	tb.over("edit", millis, []float64{900}, "build", []float64{1000}, 600)
	tb.over("edit", millis, []float64{900}, "build", []float64{299}, 600)
	want := []row{
		{"edit", "1000 ms", "build 400 ms", "+600 ms", "≤ +600 ms", "ok"},
		{"edit", "900 ms", "build 1000 ms", "-100 ms", "≤ +600 ms", "ok"},
		{"edit", "900 ms", "build 299 ms", "+601 ms", "≤ +600 ms", "missed"},
	}
	if !slices.Equal(tb.rows, want) {
		t.Errorf("rows are %q, want %q", tb.rows, want)
	}
}

func TestTable_OneFigureAboveTheGoalMissesIt(t *testing.T) {
	var tb table
	tb.worst("switch", millis, []float64{20, 260, 30}, 250)
	tb.worst("idle", percent, []float64{1.5}, 2)
	want := []row{
		{"switch, worst of 3", "260 ms", "-", "-", "≤ 250 ms", "missed"},
		{"idle", "1.50 %", "-", "-", "≤ 2.00 %", "ok"},
	}
	if !slices.Equal(tb.rows, want) {
		t.Errorf("rows are %q, want %q", tb.rows, want)
	}
}
