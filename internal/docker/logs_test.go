package docker

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type logLine struct {
	at   time.Time
	text string
}

// follow returns the lines of a container that ends.
func (b *bench) follow(t *testing.T, id string, since time.Time) []logLine {
	t.Helper()
	var lines []logLine
	require.NoError(t, b.driver.Follow(t.Context(), id, since, func(at time.Time, line []byte) {
		lines = append(lines, logLine{at, string(line)})
	}))
	return lines
}

func TestFollow_PassesOnBothStreamsWithTimes(t *testing.T) {
	b := testBench(t)
	began := time.Now()
	id := b.run(t, b.spec("both", "4", "10ms"))
	var texts []string
	for _, l := range b.follow(t, id, time.Time{}) {
		texts = append(texts, l.text)
		assert.WithinRange(t, l.at, began, time.Now())
	}
	assert.ElementsMatch(t, []string{"0", "1", "2", "3"}, texts)
}

func TestFollow_JoinsLongLinesAndSplitsLongerOnes(t *testing.T) {
	b := testBench(t)
	args, want := []string{"long"}, []string{}
	for _, size := range []int{0, 1, 16<<10 - 1, 16 << 10, 16<<10 + 1, maxLine - 1, maxLine, maxLine + 1, 3*maxLine + 17} {
		args = append(args, strconv.Itoa(size))
		left := strings.Repeat("x", size)
		for len(left) > maxLine {
			want, left = append(want, left[:maxLine]), left[maxLine:]
		}
		want = append(want, left, "mark")
	}
	want = append(want, "no newline")
	lines := b.follow(t, b.run(t, b.spec(args...)), time.Time{})
	require.Len(t, lines, len(want))
	for i := range lines {
		assert.True(t, want[i] == lines[i].text, "line %d has %d bytes, want %d", i, len(lines[i].text), len(want[i]))
	}
}

func TestFollow_ABrokenStreamIsNotTheEndOfTheLog(t *testing.T) {
	b := testBench(t)
	id := b.run(t, b.spec("serve"))
	w := b.newWay(t)
	err := w.driver.Follow(t.Context(), id, time.Time{}, func(time.Time, []byte) { w.leave() })
	require.Error(t, err)
}

func TestJoiner_KeepsApartWhatLostItsEnd(t *testing.T) {
	var lines []logLine
	j := &joiner{emit: func(at time.Time, line []byte) { lines = append(lines, logLine{at: at, text: string(line)}) }}
	first, second := time.Unix(1, 0).UTC(), time.Unix(2, 0).UTC()
	for _, message := range []string{
		first.Format(time.RFC3339Nano) + " begun and cut",
		second.Format(time.RFC3339Nano) + " whole line\n",
		second.Format(time.RFC3339Nano) + " \n",
	} {
		_, err := j.Write([]byte(message))
		require.NoError(t, err)
	}
	assert.Equal(t, []logLine{
		{at: first, text: "begun and cut"}, {at: second, text: "whole line"}, {at: second, text: ""},
	}, lines)
}

func TestJoiner_RefusesAMessageWithoutTime(t *testing.T) {
	j := &joiner{emit: func(time.Time, []byte) {}}
	_, err := j.Write([]byte("no time here\n"))
	require.Error(t, err)
}

// FuzzJoiner cuts a line into arbitrary messages. The joiner must put it together again, in
// pieces of at most maxLine bytes.
func FuzzJoiner(f *testing.F) {
	f.Add([]byte("hello"), uint16(3))
	f.Add(bytes.Repeat([]byte("long "), 40_000), uint16(16<<10))
	f.Fuzz(func(t *testing.T, text []byte, size uint16) {
		text = bytes.ReplaceAll(text, []byte("\n"), nil)
		var out []byte
		pieces := 0
		j := &joiner{emit: func(_ time.Time, line []byte) {
			if len(line) > maxLine {
				t.Fatalf("a piece of %d bytes", len(line))
			}
			out, pieces = append(out, line...), pieces+1
		}}
		rest := append(bytes.Clone(text), '\n')
		for len(rest) > 0 {
			n := min(int(size)+1, len(rest))
			if _, err := j.Write(append([]byte("2026-01-02T03:04:05.000000006Z "), rest[:n]...)); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if !bytes.Equal(out, text) || pieces != max(1, (len(text)+maxLine-1)/maxLine) {
			t.Fatalf("%d bytes became %d in %d pieces", len(text), len(out), pieces)
		}
	})
}

// FuzzFollow feeds arbitrary bytes to the whole path from frames to lines, which may refuse
// them but must not panic.
func FuzzFollow(f *testing.F) {
	frame := func(text string) []byte {
		header := []byte{byte(stdcopy.Stdout), 0, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(header[4:], uint32(len(text)))
		return append(header, text...)
	}
	f.Add(frame("2026-01-02T03:04:05.000000006Z hello\n"))
	f.Add(frame("2026-01-02T03:04:05Z"))
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) >= 8 && binary.BigEndian.Uint32(stream[4:]) > 1<<20 {
			return // memory is allocated for the frame's size, which is trusted
		}
		j := &joiner{emit: func(time.Time, []byte) {}}
		_, _ = stdcopy.StdCopy(j, j, bytes.NewReader(stream))
		j.flush()
	})
}

func TestJoiner_PassesOnNothingTwice(t *testing.T) {
	var got []string
	j := &joiner{emit: func(_ time.Time, line []byte) { got = append(got, string(line)) }}
	messages := []string{
		"2026-01-02T03:04:05.000000001Z one\n",
		"2026-01-02T03:04:05.000000002Z two, ",
		"2026-01-02T03:04:05.000000002Z in pieces\n",
	}
	// The engine sends the whole file again once it has rotated it.
	for _, message := range append(messages, append(messages, "2026-01-02T03:04:05.000000003Z three\n")...) {
		_, err := j.Write([]byte(message))
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"one", "two, in pieces", "three"}, got)
}
