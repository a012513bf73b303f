package plainjson_test

import (
	"testing"

	"github.com/berth-host/berth/internal/plainjson"
)

func TestMarshal_LeavesOutTheEscapesOfHTML(t *testing.T) {
	v := map[string]string{"detail": "a && <b>\n"}
	text, err := plainjson.Marshal(v)
	if want := `{"detail":"a && <b>\n"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	line, err := plainjson.MarshalLine(v)
	if want := string(text) + "\n"; err != nil || string(line) != want {
		t.Errorf("a line is %q, %v, want %q", line, err, want)
	}
	if text, err := plainjson.Marshal(func() {}); err == nil || text != nil {
		t.Errorf("of a function there is %q, %v", text, err)
	}
}

func TestFault_FindsWhatDecodingWouldReplace(t *testing.T) {
	for text, want := range map[string]string{
		`"é \ufffd \ud83d\ude00 \\ud800 \"`: "",
		"\"caf\xe9\"":                       "is not in UTF-8",
		`"a\ud800b"`:                        `has half of a surrogate pair, \ud800, which is not a character`,
		`"\udc00\ud800"`:                    `has half of a surrogate pair, \udc00, which is not a character`,
		`"\ud83d\ude00\ud83d\u0041"`:        `has half of a surrogate pair, \ud83d, which is not a character`,
		`"\ud8`:                             "", // not JSON either
		`\`:                                 "",
	} {
		if got := plainjson.Fault([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
