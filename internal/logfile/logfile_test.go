package logfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/logfile"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)

func tail(t *testing.T, path string, n int) string {
	t.Helper()
	var b bytes.Buffer
	if err := logfile.Tail(&b, path, logfile.View{Tail: n}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTail_GivesTheLastLinesWithoutTheirTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.run.log")
	l, last, err := logfile.Open(path, 1<<20)
	if err != nil || !last.IsZero() {
		t.Fatalf("Open = %v, %v", last, err)
	}
	defer l.Close()
	for i := range 5 {
		if err := l.Line(at.Add(time.Duration(i)), 3, fmt.Appendf(nil, "line %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int]string{
		0:   "",
		1:   "line 4\n",
		2:   "line 3\nline 4\n",
		5:   "line 0\nline 1\nline 2\nline 3\nline 4\n",
		100: "line 0\nline 1\nline 2\nline 3\nline 4\n",
	} {
		if got := tail(t, path, n); got != want {
			t.Errorf("Tail(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestTail_OfNoFileIsEmpty(t *testing.T) {
	if got := tail(t, filepath.Join(t.TempDir(), "none"), 10); got != "" {
		t.Errorf("Tail = %q", got)
	}
}

func TestTail_ReadsLinesLongerThanAChunk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := strings.Repeat("x", 200<<10)
	if err := os.WriteFile(path, []byte("first\n"+long+"\nlast\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tail(t, path, 2); got != long+"\nlast\n" {
		t.Errorf("Tail gave %d bytes, want %d", len(got), len(long)+6)
	}
}

// The memory for reading a log depends neither on the number nor on the length of its
// lines.
func TestTail_HoldsLittleInMemory(t *testing.T) {
	for name, content := range map[string]string{
		"one line of 5 MB":    strings.Repeat("x", 5_000_000),
		"5 million lines":     strings.Repeat("\n", 5_000_000),
		"an empty line":       "\n",
		"a line without end":  "first\nsecond",
		"times and no text":   strings.Repeat(at.Format("2006-01-02T15:04:05.000000000Z")+" \n", 100_000),
		"times in all places": strings.Repeat(at.Format("2006-01-02T15:04:05.000000000Z"), 100_000),
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		counted := &counter{}
		for _, n := range []int{1, 1000, 1_000_000} {
			if err := logfile.Tail(counted, path, logfile.View{Tail: n}); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if held := after.TotalAlloc - before.TotalAlloc; held > 4<<20 || counted.n == 0 {
			t.Errorf("%s: %d bytes read, %d allocated", name, counted.n, held)
		}
	}
}

type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

func TestTail_KeepsEmptyAndUnfinishedLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for content, want := range map[string]string{
		"\n": "\n", "a\n\n": "a\n\n", "a": "a\n", "a\nb": "a\nb\n", "\n\na\r\n": "\n\na\r\n", "": "",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := tail(t, path, 10); got != want {
			t.Errorf("Tail of %q = %q, want %q", content, got, want)
		}
	}
}

func TestOpen_GoesOnAfterTheLastWholeLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _, err := logfile.Open(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Line(at, 3, []byte("whole")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("2026-01-02T03:04:06.0000")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, last, err := logfile.Open(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !last.Equal(at) {
		t.Errorf("last line at %v, want %v", last, at)
	}
	if err := l.Line(at.Add(time.Second), 3, []byte("next")); err != nil {
		t.Fatal(err)
	}
	if got := tail(t, path, 10); got != "whole\nnext\n" {
		t.Errorf("log = %q", got)
	}
}

func TestWrite_RotatesToOneOlderCopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := logfile.Create(path, 100, "header\n")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 30 {
		if _, err := fmt.Fprintf(l, "line number %02d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{path, path + ".1"} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 100 {
			t.Errorf("%s has %d bytes, more than its bound of 100", p, info.Size())
		}
	}
	if got := tail(t, path, 100); !strings.HasPrefix(got, "header\n") || !strings.HasSuffix(got, "line number 29\n") {
		t.Errorf("current file = %q", got)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Errorf("%d files, want the log and one rotated copy (%v)", len(entries), err)
	}
}

func TestWrite_GoesOnOnceItCanRotateAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.log")
	l, err := logfile.Create(path, 20, "a new file\n")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Write([]byte("what was before\n")); err != nil {
		t.Fatal(err)
	}
	withoutDescriptors(t, func() {
		for range 2 {
			if _, err := l.Write([]byte("lost\n")); !errors.Is(err, syscall.EMFILE) {
				t.Errorf("Write without a descriptor for the new file: %v", err)
			}
		}
	})
	if _, err := l.Write([]byte("what came after\n")); err != nil {
		t.Fatal(err)
	}
	if got := tail(t, path, 10); got != "a new file\nwhat came after\n" {
		t.Errorf("the log is %q", got)
	}
	if got := tail(t, path+".1", 10); got != "what was before\n" {
		t.Errorf("the rotated copy is %q", got)
	}
}

// withoutDescriptors calls do while this process cannot open files.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}

func TestOpen_TakesTheTimeFromTheRotatedCopyWhenTheFileIsNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _, err := logfile.Open(path, 60)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Line(at, 3, []byte("a line that is rotated away")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l, last, err := logfile.Open(path, 60)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !last.Equal(at) {
		t.Errorf("last line at %v, want %v", last, at)
	}
}

func TestContinue_AddsToALogThatCreateBegan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.build.log")
	for _, text := range []string{"first\n", "second\n", "a third line that is too much\n"} {
		l, err := logfile.Continue(path, 60, "the rest\n")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := tail(t, path, 10); got != "the rest\na third line that is too much\n" {
		t.Errorf("Tail = %q", got)
	}
	if got := tail(t, path+".1", 10); got != "first\nsecond\n" {
		t.Errorf("Tail = %q", got)
	}
}
