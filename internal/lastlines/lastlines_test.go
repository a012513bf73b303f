package lastlines_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/lastlines"
)

func TestBuffer_KeepsTheLastWholeLinesWithinItsLimits(t *testing.T) {
	for _, tt := range []struct {
		lines, bytes int
		written      string
		want         string
	}{
		{3, 100, "", ""},
		{3, 100, "a", "a"},
		{3, 100, "a\nb\n", "a\nb"},
		{3, 100, "a\nb\nc\nd\n", "b\nc\nd"},
		{3, 100, "a\nb\nc\nd", "b\nc\nd"},
		{3, 100, "a\n\n\n\n", "\n\n"},
		{3, 100, "\n", ""},
		{3, 5, "aaaa\nbb\ncc\n", "bb\ncc"},
		{3, 6, "aaaa\nbb\ncc\n", "bb\ncc"},
		{3, 4, "aaaa\nbbbbbbbb\n", "bbbb"},
		{3, 4, "aaaaaaaa", "aaaa"},
		{3, 100, "a\xffb\n", "a\uFFFDb"},
	} {
		whole, pieces := lastlines.New(tt.lines, tt.bytes), lastlines.New(tt.lines, tt.bytes)
		fmt.Fprint(whole, tt.written)
		for i := range len(tt.written) {
			fmt.Fprint(pieces, tt.written[i:i+1])
		}
		if whole.String() != tt.want || whole.Empty() != (tt.written == "") {
			t.Errorf("%d lines and %d bytes of %q are %q", tt.lines, tt.bytes, tt.written, whole)
		}
		if pieces.String() != tt.want {
			t.Errorf("%d lines and %d bytes of %q, byte by byte, are %q", tt.lines, tt.bytes, tt.written, pieces)
		}
	}
}

func TestBuffer_KeepsTheEndOfWhatNeverEnds(t *testing.T) {
	b := lastlines.New(40, 1000)
	for i := range 10_000 {
		fmt.Fprintf(b, "line %d\n", i)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 40 || lines[0] != "line 9960" || lines[39] != "line 9999" {
		t.Errorf("%d lines, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
	for range 10_000 {
		fmt.Fprint(b, "no end ")
	}
	if text := b.String(); len(text) != 1000 || !strings.HasSuffix(text, "no end ") {
		t.Errorf("%d bytes of a line without an end: %q", len(text), text)
	}
}
