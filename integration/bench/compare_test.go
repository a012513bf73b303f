package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// sectionOf returns a section whose trials have the values that next returns for a
// commit, and notes which commit is measured when.
func sectionOf(f figure, measured *[]string, next func(name string) (float64, error)) section {
	return section{name: "test", arrange: func(b *bench, _ context.Context, s *stand) error {
		s.one(f, func(context.Context) (float64, error) {
			*measured = append(*measured, b.dir)
			return next(b.dir)
		})
		return nil
	}}
}

func newComparison(rounds int) *comparison {
	return &comparison{rounds: rounds, sides: [2]side{{"old", &bench{dir: "old"}}, {"new", &bench{dir: "new"}}}}
}

func TestComparison_AlternatesAndChangesTheOrderEachRound(t *testing.T) {
	var measured []string
	s := sectionOf(figure{what: "row", unit: millis}, &measured, func(string) (float64, error) { return 1, nil })
	if err := newComparison(3).section(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if want := strings.Fields("old new new old old new"); !slices.Equal(measured, want) {
		t.Errorf("%v, want %v", measured, want)
	}
}

func TestComparison_HasMoreRoundsOfServersThatAreStartedAnew(t *testing.T) {
	var measured []string
	s := sectionOf(figure{what: "row", unit: micros, most: mostSlower}, &measured, func(string) (float64, error) { return 1, nil })
	arranged := 0
	arrange := s.arrange
	s.renewed, s.arrange = true, func(b *bench, ctx context.Context, to *stand) error {
		arranged++
		return arrange(b, ctx, to)
	}
	c := newComparison(2)
	if err := c.section(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if rounds := 2 * renewals; len(c.rows[0].values[0]) != rounds || len(c.rows[0].values[1]) != rounds || arranged != 2*rounds {
		t.Errorf("%d and %d values and %d arrangements, want %d, %[4]d and %[5]d", len(c.rows[0].values[0]), len(c.rows[0].values[1]), arranged, rounds, 2*rounds)
	}
}

func TestComparison_StopsATrialThatACommitCannotDo(t *testing.T) {
	var measured []string
	s := sectionOf(figure{what: "row", unit: millis}, &measured, func(name string) (float64, error) {
		if name == "new" {
			return 0, errors.New("status 500")
		}
		return 1, nil
	})
	c := newComparison(3)
	if err := c.section(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if len(measured) != 2 || c.rows[0].verdict() != "the new one cannot: status 500" {
		t.Errorf("%v: %s", measured, c.rows[0].verdict())
	}
}

func TestComparison_KnowsTheRowsOfWhatACommitCannotPrepare(t *testing.T) {
	var measured []string
	s := sectionOf(figure{what: "row", unit: millis}, &measured, func(string) (float64, error) { return 1, nil })
	arrange := s.arrange
	s.arrange = func(b *bench, ctx context.Context, to *stand) error {
		if b.dir == "old" {
			return errors.New("no such program")
		}
		return arrange(b, ctx, to)
	}
	c := newComparison(3)
	if err := c.section(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if len(measured) != 0 || c.rows[0].cells()[0] != "row" || c.rows[0].verdict() != "the old one cannot: no such program" || c.judge() != nil {
		t.Errorf("%v: %v", measured, c.rows[0].cells())
	}
	s.arrange = func(*bench, context.Context, *stand) error { return errors.New("no such program") }
	if err := newComparison(3).section(t.Context(), s); err == nil {
		t.Error("neither can do it, but it gave no error")
	}
}

func TestComparison_ClosesWhatItArrangedWhenItIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var closed []string
	s := section{name: "test", arrange: func(b *bench, _ context.Context, s *stand) error {
		s.later(func() { closed = append(closed, b.dir+" server") })
		s.later(func() { closed = append(closed, b.dir+" front") })
		s.one(figure{what: "row", unit: millis}, func(context.Context) (float64, error) {
			cancel()
			return 0, ctx.Err()
		})
		return nil
	}}
	c := newComparison(3)
	if err := c.section(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if want := []string{"old front", "old server", "new front", "new server"}; !slices.Equal(closed, want) {
		t.Errorf("closed %v, want %v", closed, want)
	}
	if c.rows[0].failed() {
		t.Error("the interrupted row counts as one that cannot be done")
	}
}
