package stack

import (
	"strings"
	"testing"
	"time"
)

func TestCheckCommand_NeedsAProcessThatServes(t *testing.T) {
	static := Spec{Name: "site", Runtime: Runtime{Name: Static}}
	for _, tt := range []struct {
		status  Status
		service string
		kind    Kind
		says    string
	}{
		{Live, "web", 0, ""},
		{Live, "site", Conflict, "static"},
		{Live, "api", NotFound, "it has web, site"},
		{Building, "web", Conflict, "?wait=true"},
		{Failed, "web", Conflict, "failed"},
		{Expired, "web", Conflict, "claim it"},
		{Expired, "api", NotFound, "it has web, site"},
	} {
		s := New("shop", []Spec{{Name: "web"}, static}, Now())
		s.Status = tt.status
		err := s.CheckCommand(tt.service, Now())
		if KindOf(err) != tt.kind || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s of a stack that is %s: %v", tt.service, tt.status, err)
		}
	}
	late := New("shop", []Spec{{Name: "web"}}, Now())
	late.Status, late.ExpiresAt = Live, Now().Add(-time.Second)
	if err := late.CheckCommand("web", Now()); KindOf(err) != Conflict {
		t.Errorf("once the time of the stack has run out: %v", err)
	}
}

func TestNewCommand_RefusesWhatNoShellRuns(t *testing.T) {
	for line, ok := range map[string]bool{
		"ls -l": true, "": false, " \n": false, "a\x00b": false,
		strings.Repeat("x", CommandChars): true, strings.Repeat("x", CommandChars+1): false,
	} {
		c, err := NewCommand("stk_0123456789ab", "web", "", line)
		if ok && (err != nil || c.Line != line || c.ID == "") || !ok && KindOf(err) != Unprocessable {
			t.Errorf("%.10q: %+v, %v", line, c, err)
		}
	}
}

func TestParseCommandTimeout_IsBounded(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": time.Minute, "1s": time.Second, "10m": 10 * time.Minute, "600s": 10 * time.Minute, "1m30s": 90 * time.Second,
		"0s": 0, "601s": 0, "1h": 0, "60": 0, "-1s": 0, "1.5s": 0,
	} {
		got, err := ParseCommandTimeout(text)
		if got != want || (want == 0) != (KindOf(err) == Unprocessable) {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
}
