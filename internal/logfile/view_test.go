package logfile_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/logfile"
)

func view(t *testing.T, path string, v logfile.View) string {
	t.Helper()
	var b bytes.Buffer
	if err := logfile.Tail(&b, path, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// open opens a run log until the test ends.
func open(t *testing.T, path string, max int64) *logfile.File {
	t.Helper()
	f, _, err := logfile.Open(path, max)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTail_ShowsTimesGenerationsAndMarksOnRequest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	must(t, os.WriteFile(path, []byte("before times\n2026-01-02T03:04:05.000000600Z of an earlier version\n"), 0o600))
	f := open(t, path, 1<<20)
	must(t, f.Mark(at, 3, "== web started"), f.Line(at.Add(time.Second), 3, []byte("hello")),
		f.Mark(at, 4, "== web started"), f.Line(at.Add(time.Second), 4, []byte("2026-01-02T03:04:05.000000600Z+5 of mine")),
		f.Note(at.Add(2*time.Second), 3, "== web exited with code 1"), f.Mark(at, 4, "== web was stopped"))
	for n, want := range map[int]string{
		1: "== web exited with code 1\n",
		3: "hello\n2026-01-02T03:04:05.000000600Z+5 of mine\n== web exited with code 1\n",
		9: "before times\nof an earlier version\nhello\n2026-01-02T03:04:05.000000600Z+5 of mine\n== web exited with code 1\n",
	} {
		if got := view(t, path, logfile.View{Tail: n}); got != want {
			t.Errorf("the last %d lines are %q, want %q", n, got, want)
		}
	}
	const all = `- gen - before times
2026-01-02T03:04:05.000Z gen - of an earlier version
2026-01-02T03:04:05.000Z gen 3 == web started
2026-01-02T03:04:06.000Z gen 3 hello
2026-01-02T03:04:05.000Z gen 4 == web started
2026-01-02T03:04:06.000Z gen 4 2026-01-02T03:04:05.000000600Z+5 of mine
2026-01-02T03:04:07.000Z gen 3 == web exited with code 1
2026-01-02T03:04:05.000Z gen 4 == web was stopped
`
	if got := view(t, path, logfile.View{Tail: 9, Stamped: true}); got != all {
		t.Errorf("with stamps the log is\n%s", got)
	}
	if got := view(t, path, logfile.View{Tail: 2, Stamped: true}); strings.Count(got, "\n") != 2 || !strings.HasSuffix(all, got) {
		t.Errorf("its last two lines are\n%s", got)
	}
	f.Close()
	if _, last, err := logfile.Open(path, 1<<20); err != nil || !last.Equal(at.Add(time.Second)) {
		t.Errorf("the last line of a process was at %v, %v", last, err)
	}
}

// The output of a build is kept as it is, whatever it looks like.
func TestCreate_KeepsLinesThatLookLikeStamps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.build.log")
	f, err := logfile.Create(path, 1<<20, "")
	must(t, err)
	const text = "2026-01-02T03:04:05.000000600Z a\n2026-01-02T03:04:05.000000600Z!3 b\n2026-01-02T03:04:05.000000600Z+3 c\n#log 1 2 false\n"
	_, err = f.Write([]byte(text))
	must(t, err, f.Close())
	f = open(t, path, 1<<20) // as for the release command
	_, err = f.Write([]byte("d\n"))
	must(t, err)
	if got := view(t, path, logfile.View{Tail: 10}); got != text+"d\n" {
		t.Errorf("the log is %q", got)
	}
}

// after are the texts of all lines after a position.
func after(t *testing.T, path string, p logfile.Position) []string {
	t.Helper()
	l := follow(t, path, logfile.View{From: &p})
	var all []string
	for {
		news, err := l.Next()
		must(t, err)
		if len(news.Lines) == 0 {
			return all
		}
		all = append(all, news.Texts()...)
	}
}

func TestFollow_GoesOnAfterEveryLineWhateverHappenedSince(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	f := open(t, path, 1000)
	l := follow(t, path, logfile.View{Tail: 10})
	ends := map[int]logfile.Position{}
	for i := range 100 {
		must(t, f.Line(at, 3, fmt.Appendf(nil, "line %d", i)), f.Mark(at, 3, "== a mark"))
		if i%7 == 0 { // the server is restarted
			must(t, f.Close())
			f = open(t, path, 1000)
		}
		for n := 1; n > 0; {
			news, err := l.Next()
			must(t, err)
			for n = len(news.Lines); len(news.Lines) > 0; news.Lines = news.Lines[1:] {
				var number int
				_, err := fmt.Sscanf(news.Lines[0].Text, "line %d", &number)
				must(t, err)
				p, err := logfile.ParsePosition(news.Lines[0].End.String())
				must(t, err)
				ends[number] = p
			}
		}
	}
	if len(ends) != 100 {
		t.Fatalf("%d lines came", len(ends))
	}
	oldest := after(t, path, logfile.Position{}) // of what is still there
	if len(oldest) < 12 || len(oldest) > 50 || oldest[len(oldest)-1] != "line 99" {
		t.Fatalf("of the log are left %q", oldest)
	}
	for i, p := range ends {
		want := oldest
		if left := 99 - i; left < len(oldest) {
			want = oldest[len(oldest)-left:]
		}
		if got := after(t, path, p); !slices.Equal(got, want) {
			t.Errorf("after line %d come %q, want %q", i, got, want)
		}
	}
}

func TestFollow_AReaderThatWasOvertakenMissesOnlyWhatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	f := open(t, path, 440)
	write(t, f, 0, 1)
	l := follow(t, path, logfile.View{Tail: 10})
	next(t, l, false, "line 0")
	write(t, f, 1, 40) // several rotations
	var got []string
	for news, err := l.Next(); ; news, err = l.Next() {
		must(t, err)
		if got = append(got, news.Texts()...); news.Anew || len(news.Lines) == 0 && len(got) > 10 {
			break
		}
	}
	if left := after(t, path, logfile.Position{}); len(left) < 11 || !slices.Equal(got[len(got)-len(left):], left) {
		t.Errorf("it got %q, and %q is there", got, left)
	}
}

func TestFollow_GoesOnInALogOfAnEarlierVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	must(t, os.WriteFile(path, []byte("2026-01-02T03:04:05.000000600Z one\n2026-01-02T03:04:05.000000600Z two\n"), 0o600))
	l := follow(t, path, logfile.View{Tail: 1})
	news, err := l.Next()
	must(t, err)
	f := open(t, path, 150)
	write(t, f, 0, 4)
	if got := after(t, path, news.Lines[0].End); strings.Join(got, " ") != "line 0 line 1 line 2 line 3" {
		t.Errorf("after the line come %q", got)
	}
}

func TestFollow_FromAnEarlierBuildBeginsAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.build.log")
	build := func(text string) {
		f, err := logfile.Create(path, 100, "a part is missing\n")
		must(t, err)
		_, err = f.Write([]byte(text))
		must(t, err, f.Close())
	}
	build("first\n")
	news, err := follow(t, path, logfile.View{Tail: 10}).Next()
	must(t, err)
	build("second\n")
	next(t, follow(t, path, logfile.View{From: &news.Lines[0].End}), true, "second")
	next(t, follow(t, path, logfile.View{From: &logfile.Position{}}), false, "second")
	l := follow(t, path, logfile.View{From: &news.Lines[0].End})
	must(t, os.Remove(path))
	next(t, l, false)
	build("third\n")
	next(t, l, true, "third")
}

func TestFollow_AfterAPieceOfALineThatWasNeverCompleted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	f := open(t, path, 1<<20)
	write(t, f, 0, 1)
	_, err := f.Write([]byte(strings.Repeat("x", 300<<10)))
	must(t, err, f.Close())
	l := follow(t, path, logfile.View{From: &logfile.Position{}})
	news, err := l.Next()
	must(t, err)
	first := news.Lines[0].End
	news, err = l.Next()
	must(t, err)
	piece := news.Lines[0].End
	if got := after(t, path, piece); len(got) > 0 {
		t.Errorf("after the piece come %.50q", got)
	}
	f = open(t, path, 1<<20) // which removes the line
	write(t, f, 1, 2)
	if got := after(t, path, first); !slices.Equal(got, []string{"line 1"}) {
		t.Errorf("after the line before come %.50q", got)
	}
}

func TestParsePosition_RefusesWhatNoPositionIsWrittenAs(t *testing.T) {
	for _, text := range []string{"", ".", "1", "1.", ".1", "-1.1", "1.-1", "1.1.1", "zzzzzzzz.1", "1.zzzzzzzzzzzzz", "ä.1"} {
		if p, err := logfile.ParsePosition(text); err == nil {
			t.Errorf("%q is read as %v", text, p)
		}
	}
}
