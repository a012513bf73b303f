package logfile_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/logfile"
)

func read(t *testing.T, path string, q logfile.Query) logfile.Page {
	t.Helper()
	p, err := logfile.Read(path, q)
	must(t, err)
	return p
}

// texts are those of a page's lines.
func texts(p logfile.Page) []string { return logfile.News{Lines: p.Lines}.Texts() }

// numbers are the lines that write writes.
func numbers(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("line %d", i))
	}
	return all
}

// is checks what a page has.
func is(t *testing.T, p logfile.Page, older, newer bool, want []string) {
	t.Helper()
	if got := texts(p); !slices.Equal(got, want) || p.Older != older || p.Newer != newer || p.Lost {
		t.Errorf("the page has %.200q, older %v, newer %v, lost %v; want %.200q, %v, %v", got, p.Older, p.Newer, p.Lost, want, older, newer)
	}
}

// rotatedLog returns a log of which lines 10 to 24 are kept: ten in the copy, five in the
// current file.
func rotatedLog(t *testing.T) (string, *logfile.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "web.run.log")
	f := open(t, path, 445)
	write(t, f, 0, 25)
	if oldest := texts(read(t, path, logfile.Query{Lines: 99}))[0]; oldest != "line 10" {
		t.Fatalf("the oldest line is %q", oldest)
	}
	return path, f
}

func TestRead_GoesBackAndForthOverTheRotatedCopy(t *testing.T) {
	path, _ := rotatedLog(t)
	is(t, read(t, path, logfile.Query{Lines: 99}), false, false, numbers(10, 25))
	is(t, read(t, path, logfile.Query{Lines: 15}), false, false, numbers(10, 25))
	last := read(t, path, logfile.Query{Lines: 4})
	is(t, last, true, false, numbers(21, 25))
	before := read(t, path, logfile.Query{Lines: 4, Before: &last.From})
	is(t, before, true, true, numbers(17, 21))
	oldest := read(t, path, logfile.Query{Lines: 7, Before: &before.From})
	is(t, oldest, false, true, numbers(10, 17))
	is(t, read(t, path, logfile.Query{Lines: 4, Before: &oldest.From}), false, true, nil)
	is(t, read(t, path, logfile.Query{Lines: 4, After: &oldest.End}), true, true, numbers(17, 21))
	is(t, read(t, path, logfile.Query{Lines: 4, After: &before.End}), true, false, numbers(21, 25))
	is(t, read(t, path, logfile.Query{Lines: 4, After: &last.End}), true, false, nil)
	is(t, read(t, path, logfile.Query{Lines: 4, After: &logfile.Position{}}), false, true, numbers(10, 14))
}

func TestRead_KeepsItsPlaceWhileTheLogGrowsAndIsRotated(t *testing.T) {
	path, f := rotatedLog(t)
	last := read(t, path, logfile.Query{Lines: 3})
	write(t, f, 25, 32) // rotates, and lines 20 to 29 are the copy
	is(t, read(t, path, logfile.Query{Lines: 99}), false, false, numbers(20, 32))
	is(t, read(t, path, logfile.Query{Lines: 2, Before: &last.From}), false, true, numbers(20, 22))
	is(t, read(t, path, logfile.Query{Lines: 4, After: &last.End}), true, true, numbers(25, 29))
	write(t, f, 32, 50)
	if p := read(t, path, logfile.Query{Lines: 2, Before: &last.From}); !p.Lost || len(p.Lines) > 0 {
		t.Errorf("before a place that is gone come %q, lost: %v", texts(p), p.Lost)
	}
	gone := read(t, path, logfile.Query{Lines: 2, After: &last.End})
	if !gone.Lost || !slices.Equal(texts(gone), texts(read(t, path, logfile.Query{Lines: 2, After: &logfile.Position{}}))) {
		t.Errorf("after a place that is gone come %q, lost: %v", texts(gone), gone.Lost)
	}
}

func TestRead_FindsTheLinesThatMatchAndWhereToGoOn(t *testing.T) {
	path, _ := rotatedLog(t)
	odd := func(text string) bool { return strings.ContainsAny(text[len(text)-1:], "13579") }
	is(t, read(t, path, logfile.Query{Lines: 99, Match: odd}), false, false, []string{"line 11", "line 13", "line 15", "line 17", "line 19", "line 21", "line 23"})
	last := read(t, path, logfile.Query{Lines: 3, Match: odd})
	is(t, last, true, false, []string{"line 19", "line 21", "line 23"})
	before := read(t, path, logfile.Query{Lines: 3, Match: odd, Before: &last.From})
	is(t, before, true, true, []string{"line 13", "line 15", "line 17"})
	is(t, read(t, path, logfile.Query{Lines: 3, Match: odd, Before: &before.From}), false, true, []string{"line 11"})
	is(t, read(t, path, logfile.Query{Lines: 3, Match: odd, After: &before.End}), true, true, []string{"line 19", "line 21", "line 23"})
	is(t, read(t, path, logfile.Query{Lines: 3, Match: odd, After: &last.End}), true, false, nil)
	is(t, read(t, path, logfile.Query{Lines: 3, Match: func(string) bool { return false }}), false, false, nil)
}

func TestRead_HidesStampsAndMarksAndKeepsEmptyLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	is(t, read(t, path, logfile.Query{Lines: 9}), false, false, nil)
	f := open(t, path, 1<<20)
	must(t, f.Mark(at, 3, "== web started"), f.Line(at, 3, []byte("ä")), f.Line(at, 3, nil), f.Note(at, 3, "== of the host"), f.Mark(at, 3, "== web exited"))
	is(t, read(t, path, logfile.Query{Lines: 9}), false, false, []string{"ä", "", "== of the host"})
	is(t, read(t, path, logfile.Query{Lines: 9, After: &logfile.Position{}}), false, false, []string{"ä", "", "== of the host"})
}

// A Follower goes on where a page ends: nothing is missing, nothing comes twice.
func TestRead_LeavesALineThatIsNotCompleteToAFollower(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.build.log")
	f, err := logfile.Create(path, 1<<20, "")
	must(t, err)
	defer f.Close()
	_, err = f.Write([]byte("whole\nha"))
	must(t, err)
	is(t, read(t, path, logfile.Query{Lines: 9}), false, false, []string{"whole", "ha"})
	p := read(t, path, logfile.Query{Lines: 9, Whole: true})
	is(t, p, false, false, []string{"whole"})
	_, err = f.Write([]byte("lf\n"))
	must(t, err)
	next(t, follow(t, path, logfile.View{From: &p.End}), false, "half")
}

func TestRead_ALogBegunAnewHasNoPlaceOfTheOneBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.build.log")
	build := func(text string) logfile.Page {
		f, err := logfile.Create(path, 100, "")
		must(t, err)
		_, err = f.Write([]byte(text))
		must(t, err, f.Close())
		return read(t, path, logfile.Query{Lines: 9})
	}
	first := build("first\n")
	is(t, build("second, longer\n"), false, false, []string{"second, longer"})
	if p := read(t, path, logfile.Query{Lines: 9, Before: &first.End}); !p.Lost || len(p.Lines) > 0 {
		t.Errorf("before a place of the first build come %q, lost: %v", texts(p), p.Lost)
	}
	if p := read(t, path, logfile.Query{Lines: 9, After: &first.End}); !p.Lost || len(p.Lines) != 1 {
		t.Errorf("after a place of the first build come %q, lost: %v", texts(p), p.Lost)
	}
}

func TestRead_LeavesOutACopyOfAnotherLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	must(t, os.WriteFile(path+".1", []byte("another\n"), 0o600), os.WriteFile(path, []byte("mine\n"), 0o600))
	is(t, read(t, path, logfile.Query{Lines: 9}), false, false, []string{"mine"})
}

// Between the two steps of a rotation there is only the copy.
func TestRead_OfALogThatIsBeingRotated(t *testing.T) {
	path, _ := rotatedLog(t)
	must(t, os.Remove(path+".1"), os.Rename(path, path+".1"))
	is(t, read(t, path, logfile.Query{Lines: 9}), false, false, numbers(20, 25))
}

func TestRead_GivesALongLineInPiecesThatJoin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := strings.Repeat("é", 300<<10) // an even number of bytes in each piece
	must(t, os.WriteFile(path, []byte("first\n"+long+"\nlast\n"), 0o600))
	var back []string
	for p := read(t, path, logfile.Query{Lines: 1}); ; p = read(t, path, logfile.Query{Lines: 1, Before: &p.From}) {
		back = append(texts(p), back...)
		if !p.Older {
			break
		}
	}
	var forth []string
	for p := read(t, path, logfile.Query{Lines: 1, After: &logfile.Position{}}); ; p = read(t, path, logfile.Query{Lines: 1, After: &p.End}) {
		forth = append(forth, texts(p)...)
		if !p.Newer {
			break
		}
	}
	if len(back) != 5 || back[0] != "first" || strings.Join(back[1:4], "") != long || back[4] != "last" {
		t.Errorf("line by line, %d come back: %.20q", len(back), back)
	}
	if !slices.Equal(forth, back) {
		t.Errorf("line by line, %d come forth: %.20q", len(forth), forth)
	}
}

func TestRead_MatchesThePiecesOfALongLineAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	line := []byte(strings.Repeat("x", 600<<10))
	copy(line[100<<10:], "needle")   // within a piece, read from either end
	copy(line[256<<10-3:], "needle") // over the edge of two, read from the beginning
	must(t, os.WriteFile(path, append(line, '\n'), 0o600))
	needle := func(text string) bool { return strings.Contains(text, "needle") }
	p := read(t, path, logfile.Query{Lines: 9, Match: needle, After: &logfile.Position{}})
	if len(p.Lines) != 1 || strings.Count(p.Lines[0].Text, "needle") != 1 {
		t.Errorf("from the beginning, it finds %.20q", texts(p))
	}
	if p := read(t, path, logfile.Query{Lines: 9, Match: needle}); len(p.Lines) == 0 {
		t.Error("from the end, it finds nothing")
	}
}

// A page takes neither more text nor more time than it may, and the next ones have the rest.
func TestRead_OfALargeLogStopsAndGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	line := strings.Repeat("x", 1023) + "\n"
	must(t, os.WriteFile(path, []byte("needle\n"+strings.Repeat(line, 40<<10)), 0o600)) // 40 MB
	if p := read(t, path, logfile.Query{Lines: 10_000}); len(p.Lines) != 256 || !p.Older {
		t.Errorf("a page has %d lines", len(p.Lines))
	}
	if p := read(t, path, logfile.Query{Lines: 10_000, After: &logfile.Position{}}); len(p.Lines) != 258 || !p.Newer {
		t.Errorf("a page from the beginning has %d lines", len(p.Lines))
	}
	needle := func(text string) bool { return text == "needle" }
	p := read(t, path, logfile.Query{Lines: 10, Match: needle})
	is(t, p, true, false, nil)
	is(t, read(t, path, logfile.Query{Lines: 10, Match: needle, Before: &p.From}), false, true, []string{"needle"})
	none := func(string) bool { return false }
	p = read(t, path, logfile.Query{Lines: 10, Match: none, After: &logfile.Position{}})
	is(t, p, false, true, nil)
	is(t, read(t, path, logfile.Query{Lines: 10, Match: none, After: &p.End}), true, false, nil)
}

func TestRead_ALookAtTheEndTakesLittleMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	must(t, os.WriteFile(path, bytes.Repeat([]byte("a line of a log\n"), 1<<20), 0o600))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	is(t, read(t, path, logfile.Query{Lines: 2}), true, false, []string{"a line of a log", "a line of a log"})
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 4<<20 {
		t.Errorf("it takes %d bytes", bytes)
	}
}

func TestCopy_GivesAllThatIsKept(t *testing.T) {
	path, f := rotatedLog(t)
	all := func() string {
		var b bytes.Buffer
		must(t, logfile.Copy(&b, path))
		return b.String()
	}
	if got, want := all(), strings.Join(numbers(10, 25), "\n")+"\n"; got != want {
		t.Errorf("the copy is %q, want %q", got, want)
	}
	_, err := f.Write([]byte("not complete"))
	must(t, err)
	if got := all(); !strings.HasSuffix(got, "line 24\nnot complete\n") {
		t.Errorf("the copy is %q", got)
	}
	var b bytes.Buffer
	if err := logfile.Copy(&b, filepath.Join(t.TempDir(), "none")); err != nil || b.Len() > 0 {
		t.Errorf("of no log come %q, %v", b.String(), err)
	}
}

func BenchmarkRead_SearchesInVain(b *testing.B) {
	path := filepath.Join(b.TempDir(), "log")
	if err := os.WriteFile(path, bytes.Repeat([]byte("a line of a log as programs write them, with some text\n"), 180_000), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(55 * 180_000)
	for b.Loop() {
		if _, err := logfile.Read(path, logfile.Query{Lines: 200, Match: func(string) bool { return false }}); err != nil {
			b.Fatal(err)
		}
	}
}
