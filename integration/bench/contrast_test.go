package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestContrast_JudgesAFigureWithALimitByTheRatiosOfTheRounds(t *testing.T) {
	cpu := figure{what: "CPU", unit: micros, most: mostSlower}
	requests := figure{what: "requests", unit: perSecond, more: true, most: mostSlower}
	for _, c := range []struct {
		name     string
		figure   figure
		old, now []float64
		verdict  string
	}{
		{"the median counts, not the mean", cpu, []float64{100, 100, 100}, []float64{103, 90, 300}, "ok"},
		{"a machine that becomes slower slows both", cpu, []float64{100, 200, 300}, []float64{101, 202, 303}, "ok"},
		{"more CPU", cpu, []float64{100, 100, 200}, []float64{104, 104, 208}, "worse by 4.0 %"},
		{"fewer requests", requests, []float64{1000, 1000}, []float64{960, 960}, "worse by 4.2 %"},
		{"a few fewer requests", requests, []float64{1000, 1000}, []float64{975, 975}, "ok"},
		{"more requests", requests, []float64{1000, 1000}, []float64{2000, 2000}, "ok"},
	} {
		row := contrast{figure: c.figure, values: [2][]float64{c.old, c.now}}
		if got := row.verdict(); got != c.verdict || row.good() != (got == "ok") {
			t.Errorf("%s: %q, want %q", c.name, got, c.verdict)
		}
	}
}

func TestContrast_JudgesOtherFiguresByTheSpreadOfTheOldRounds(t *testing.T) {
	crash := figure{what: "crash", unit: millis}
	webhooks := figure{what: "webhooks", unit: perSecond, more: true}
	for _, c := range []struct {
		name     string
		figure   figure
		old, now []float64
		verdict  string
	}{
		{"within", crash, []float64{10, 30, 20}, []float64{30, 30, 99}, "ok"},
		{"above", crash, []float64{10, 30, 20}, []float64{10, 31, 31}, "worse than every old round"},
		{"below is better", crash, []float64{10, 30}, []float64{1, 2}, "ok"},
		{"fewer", webhooks, []float64{10, 30}, []float64{9, 9}, "worse than every old round"},
		{"more", webhooks, []float64{10, 30}, []float64{50, 50}, "ok"},
	} {
		row := contrast{figure: c.figure, values: [2][]float64{c.old, c.now}}
		if got := row.verdict(); got != c.verdict || row.good() != (got == "ok") {
			t.Errorf("%s: %q, want %q", c.name, got, c.verdict)
		}
	}
}

func TestContrast_NamesTheCommitThatCannotDoIt(t *testing.T) {
	c := comparison{sides: [2]side{{name: "1111111"}, {name: "2222222"}}}
	rows := c.rowsOf([]figure{{what: "missing before", unit: millis}, {what: "missing now", unit: millis}})
	c.fail(rows[:1], 0, errors.New("start hooks: no such file:\na long log"))
	c.fail(rows[1:], 1, errors.New("status 404"))
	if got := rows[0].cells(); !slices.Equal(got, []string{"missing before", "-", "-", "-", "-", "the old one cannot: start hooks: no such file"}) {
		t.Errorf("%q", got)
	}
	if got := rows[1].verdict(); got != "the new one cannot: status 404" {
		t.Errorf("%q", got)
	}
	if err := c.judge(); err == nil || err.Error() != "1 of 2 rows are worse than at 1111111" {
		t.Errorf("the row that only the old one cannot do is not worse: %v", err)
	}
}

func TestContrast_ShowsTheSpreadOfTheOldRounds(t *testing.T) {
	row := &contrast{figure: figure{what: "crash", unit: millis}, values: [2][]float64{{10, 30, 20}, {20, 15, 10}}}
	var text strings.Builder
	printContrasts(&text, "1111111", "2222222+", []*contrast{row})
	for _, want := range []string{"old, 1111111", "new, 2222222+", "crash  20 ms         10 ms – 30 ms  15 ms          0.500  ok"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}

func TestContrast_OfNothingHasNoRatio(t *testing.T) {
	row := &contrast{figure: figure{what: "memory", unit: megabytes}, values: [2][]float64{{0, 0}, {0, 0}}}
	if got := row.cells(); got[4] != "-" || got[5] != "ok" {
		t.Errorf("%q", got)
	}
}
