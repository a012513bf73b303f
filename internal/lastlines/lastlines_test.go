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
		{3, 100, "a\n\nb", "a\n\nb"},
		{3, 100, "a\n\n\n\nb", "b"},
		{3, 100, "a\n\nb\n\n\n\n\n\n\n\n\n\n\n\n  c", "  c"},
		{3, 100, "a\n \n\n\n\n\n\n\n\n\n\n\n\n\r\n", "a"},
		{3, 5, "a" + strings.Repeat(" ", 50), "a"},
		{3, 5, "a" + strings.Repeat(" ", 50) + "b", "    b"},
		{3, 100, "\n", ""},
		{3, 5, "aaaa\nbb\ncc\n", "bb\ncc"},
		{3, 6, "aaaa\nbb\ncc\n", "bb\ncc"},
		{3, 4, "aaaa\nbbbbbbbb\n", "bbbb"},
		{3, 4, "aaaaaaaa", "aaaa"},
		{3, 3, "éé", "é"},
		{3, 100, "a\xffb\n", "a\uFFFDb"},
	} {
		whole, pieces := lastlines.OfLog(tt.lines, tt.bytes), lastlines.OfLog(tt.lines, tt.bytes)
		fmt.Fprint(whole, tt.written)
		for i := range len(tt.written) {
			fmt.Fprint(pieces, tt.written[i:i+1])
		}
		if whole.String() != tt.want {
			t.Errorf("%d lines and %d bytes of %q are %q", tt.lines, tt.bytes, tt.written, whole)
		}
		if pieces.String() != tt.want {
			t.Errorf("%d lines and %d bytes of %q, byte by byte, are %q", tt.lines, tt.bytes, tt.written, pieces)
		}
	}
}

func TestBuffer_KeepsTheEndOfWhatNeverEnds(t *testing.T) {
	b := lastlines.OfLog(40, 1000)
	for i := range 10_000 {
		fmt.Fprintf(b, "line %d\n", i)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 40 || lines[0] != "line 9960" || lines[39] != "line 9999" {
		t.Errorf("%d lines, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
	for range 10_000 {
		fmt.Fprint(b, "has_no_end")
	}
	if text := b.String(); len(text) != 1000 || !strings.HasSuffix(text, "has_no_end") {
		t.Errorf("%d bytes of a line without an end: %q", len(text), text)
	}
}

func TestPhrase_FollowsAnError(t *testing.T) {
	output, log := lastlines.OfOutput(10), lastlines.OfLog(2, 100)
	if output.Phrase() != "; it wrote nothing" || log.Phrase() != "; it wrote nothing to its log" {
		t.Errorf("of nothing: %q, %q", output.Phrase(), log.Phrase())
	}
	for i := range 100 {
		fmt.Fprintf(output, "old %d\n", i)
		fmt.Fprintf(log, "old %d\n", i)
	}
	fmt.Fprint(output, "no table\n\n")
	fmt.Fprint(log, "no table\n\n")
	if output.Phrase() != "; the end of its output:\nno table" || log.Phrase() != "; the end of its log:\nold 99\nno table" {
		t.Errorf("of much: %q, %q", output.Phrase(), log.Phrase())
	}
	for _, b := range []*lastlines.Buffer{output, lastlines.OfOutput(10)} {
		want := strings.TrimSuffix("build failed"+b.Phrase(), "; the end of its output:\nno table")
		if got := lastlines.Headline("build failed" + b.Phrase()); got != want {
			t.Errorf("the headline is %q, want %q", got, want)
		}
	}
}

func TestTail_IsTheLastWholeLines(t *testing.T) {
	for text, want := range map[string]string{
		"":                "",
		"a\nb\n":          "a\nb\n",
		"aaaa\nbb\ncc\n":  "bb\ncc\n",
		"bbbb\nccccccc":   "ccccc",
		"ééééé":           "éé",
		"aaaaaaa\nccccc":  "ccccc",
		"aaaaaa\n\nccc\n": "\nccc\n",
	} {
		if got := lastlines.Tail(text, 5); got != want {
			t.Errorf("the tail of %q is %q, want %q", text, got, want)
		}
	}
}

func TestShorten_KeepsTheFirstLineAndTheEnd(t *testing.T) {
	const middle = "\n[the middle is left out]\n"
	for _, tt := range []struct {
		text  string
		chars int
		want  string
	}{
		{"short", 5, "short"},
		{"first\n" + strings.Repeat("ö", 100), 106, "first\n" + strings.Repeat("ö", 100)},
		{"first\n" + strings.Repeat("ö", 100), 60, "first" + middle + strings.Repeat("ö", 29)},
		{strings.Repeat("f", 101) + strings.Repeat("g", 50), 60, strings.Repeat("f", 30) + middle + "gggg"},
		{strings.Repeat("x", 100) + strings.Repeat("y", 100), 100, strings.Repeat("x", 50) + middle + strings.Repeat("y", 24)},
	} {
		if got := lastlines.Shorten(tt.text, tt.chars); got != tt.want {
			t.Errorf("%q in %d characters becomes %q, want %q", tt.text, tt.chars, got, tt.want)
		}
	}
}

func TestShorten_KeepsNoPartOfAnEscape(t *testing.T) {
	for _, escape := range []string{`\x1b[31m`, `\x1b[2K`, `\x1b[?25l`, `\x1b`} {
		for at := range 400 {
			text := strings.Repeat("f", at) + escape + strings.Repeat("o", 400-at)
			got := strings.ReplaceAll(lastlines.Shorten(text, 100), escape, "")
			if strings.Trim(strings.Replace(got, "[the middle is left out]", "", 1), "fo\n") != "" {
				t.Errorf("%d characters before %s the text becomes %q", at, escape, got)
			}
		}
	}
}
