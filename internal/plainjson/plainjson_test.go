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
