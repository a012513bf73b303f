package safetext_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/berth-host/berth/internal/safetext"
)

func TestString_WritesControlCharactersOut(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"plain text,\n\ttwo lines\n":  "plain text,\n\ttwo lines\n",
		"äöü € 🚢 \u00a0 \\x1b":        "äöü € 🚢 \u00a0 \\x1b",
		"\x1b[2J\x1b]0;title\a":       `\x1b[2J\x1b]0;title\x07`,
		"\x1b[31mred\x1b[0m":          `\x1b[31mred\x1b[0m`,
		"10%\r20%\r100%\r\n":          `10%\r20%\r100%` + "\n",
		"dos\r\nlines\r\n\r\n":        "dos\nlines\n\n",
		"two\r\r\n":                   `two\r` + "\n",
		"last\r":                      `last\r`,
		"\x00\b\v\f\x7f":              `\x00\x08\x0b\x0c\x7f`,
		"\u009b31m \u0080 \u009f":     `\u009b31m \u0080 \u009f`,
		"\x9b31m \x80 \xff \xa0 \xc2": "\\x9b31m \\x80 \xff \xa0 \xc2",
		"cut \xe2\x82":                "cut \xe2\\x82",
		"\xf0\x9f\x9a\xa2":            "🚢",
	} {
		if got := safetext.String(in); got != want {
			t.Errorf("String(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestWriter_ReportsWhatItsWriterDoes(t *testing.T) {
	failed := errors.New("gone")
	w := safetext.NewWriter(failing{failed})
	if _, err := w.Write([]byte("x")); !errors.Is(err, failed) {
		t.Errorf("Write: %v", err)
	}
	if err := w.Close(); !errors.Is(err, failed) {
		t.Errorf("Close: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// FuzzPlain checks that no control character passes, that text without any is
// not changed, and that it does not matter in which pieces a text comes.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{"", "a\r\nb\rc", "\x1b[0m", "\u009b\x9b", "🚢\xf0\x9f", "\xc2", "\r"} {
		f.Add(s, uint8(1))
		f.Add(s, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		whole := safetext.String(text)
		var b strings.Builder
		w := safetext.NewWriter(&b)
		for rest := text; rest != ""; {
			n := min(len(rest), int(size)+1)
			if wrote, err := w.Write([]byte(rest[:n])); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if b.String() != whole {
			t.Fatalf("%q is %q at once and %q in pieces", text, whole, b.String())
		}
		changed := false
		for i, r := range text {
			_, n := utf8.DecodeRuneInString(text[i:])
			changed = changed || isControl(r) || n == 1 && text[i] >= 0x80 && text[i] < 0xa0
		}
		if !changed && whole != text {
			t.Fatalf("%q became %q", text, whole)
		}
		if i := strings.IndexFunc(whole, isControl); i >= 0 {
			t.Fatalf("%q became %q", text, whole)
		}
	})
}

func isControl(r rune) bool {
	return r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0)
}

func TestQuote_CutsTheMiddleOfALongName(t *testing.T) {
	for in, want := range map[string]string{
		"a\x1b[2J\"b":                 `"a\x1b[2J\"b"`,
		strings.Repeat("a", 120):      `"` + strings.Repeat("a", 120) + `"`,
		strings.Repeat("ä", 70):       `"` + strings.Repeat("ä", 40) + `"…"` + strings.Repeat("ä", 20) + `"`,
		"x" + strings.Repeat("ä", 70): `"x` + strings.Repeat("ä", 39) + `"…"` + strings.Repeat("ä", 20) + `"`,
	} {
		if got := safetext.Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}
