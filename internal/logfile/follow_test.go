package logfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/logfile"
)

// next reads once and checks what came.
func next(t *testing.T, l *logfile.Follower, anew bool, want ...string) {
	t.Helper()
	news, err := l.Next()
	if err != nil {
		t.Fatal(err)
	}
	if lines := news.Texts(); !slices.Equal(lines, want) || news.Anew != anew {
		t.Errorf("Next = %q, %v, want %q, %v", lines, news.Anew, want, anew)
	}
}

func follow(t *testing.T, path string, v logfile.View) *logfile.Follower {
	l := logfile.Follow(path, v)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func write(t *testing.T, f *logfile.File, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := f.Line(at, 3, fmt.Appendf(nil, "line %d", i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFollow_BeginsWithTheLastLinesAndGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	l := follow(t, path, logfile.View{Tail: 2})
	next(t, l, false)
	f, _, err := logfile.Open(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write(t, f, 0, 4)
	next(t, l, false, "line 2", "line 3")
	next(t, l, false)
	write(t, f, 4, 6)
	next(t, l, false, "line 4", "line 5")
}

func TestFollow_KeepsALineUntilItIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.build.log")
	f, err := logfile.Create(path, 1<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := follow(t, path, logfile.View{Tail: 10})
	for _, text := range []string{"whole\nha", "lf"} {
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	next(t, l, false, "whole")
	next(t, l, false)
	if _, err := f.Write([]byte(" and half\n\n")); err != nil {
		t.Fatal(err)
	}
	next(t, l, false, "half and half", "")
}

// A stream looks at its log several times a second, mostly in vain.
func TestFollow_ALookInVainReadsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	for name, text := range map[string]string{"whole lines": "one\ntwo\n", "the beginning of a line": "one\ntwo" + strings.Repeat("o", 100_000)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l := follow(t, path, logfile.View{Tail: 1})
		if _, err := l.Next(); err != nil {
			t.Fatal(err)
		}
		const looks = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range looks {
			next(t, l, false)
		}
		runtime.ReadMemStats(&after)
		if bytes := (after.TotalAlloc - before.TotalAlloc) / looks; bytes > 20_000 {
			t.Errorf("after %s, a look takes %d bytes of memory", name, bytes)
		}
	}
}

func TestFollow_GoesOnOverARotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	f, _, err := logfile.Open(path, 440) // ten lines
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write(t, f, 0, 1)
	l := follow(t, path, logfile.View{Tail: 10})
	next(t, l, false, "line 0")
	write(t, f, 1, 12)
	var all []string
	for range 3 {
		news, err := l.Next()
		if err != nil || news.Anew {
			t.Fatal(news.Anew, err)
		}
		all = append(all, news.Texts()...)
	}
	if got, want := strings.Join(all, " "), "line 1 line 2 line 3 line 4 line 5 line 6 line 7 line 8 line 9 line 10 line 11"; got != want {
		t.Errorf("over the rotation came %q, want %q", got, want)
	}
}

func TestFollow_TellsThatALogWasBegunAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.build.log")
	build := func(text string) {
		f, err := logfile.Create(path, 1<<20, "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	build("first build\n")
	l := follow(t, path, logfile.View{Tail: 10})
	next(t, l, false, "first build")
	build("a second build that is longer\n")
	next(t, l, true, "a second build that is longer")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	next(t, l, false)
}

func TestFollow_GivesALongLineInPieces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := follow(t, path, logfile.View{Tail: 1})
	next(t, l, false, "first")
	long := strings.Repeat("x", 600<<10)
	if err := os.WriteFile(path, []byte("first\n"+long+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got string
	for range 3 {
		news, err := l.Next()
		if err != nil {
			t.Fatal(err)
		}
		got += strings.Join(news.Texts(), "")
	}
	if got != long {
		t.Errorf("%d of %d bytes came", len(got), len(long))
	}
}
