package runtimes

import (
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	tool := Definition{Versions: []string{"22", "24"}, Default: "22"}
	for asked, want := range map[string]string{
		"22": "22", "24": "24", "v24": "24", "24.x": "24", "24.1.0": "24", "v22.11.0": "22", "=24": "24",
		"*": "22", "x": "22", ">=18": "22", ">= 18.0.0": "22", ">18": "22", ">22": "24", ">=22.5": "22", ">22.5": "22",
		"^24": "24", "^24.1": "24", "~24.1": "24", "^22 || ^24": "22", "20 || >=23": "24", "18 - 22": "22", "18.0 - 24.2": "22",
		">=18 <24": "22", ">=23, <25": "24", "!=22": "22", "24.0.0-rc.1": "24", "<=24": "22",
	} {
		if got, from := tool.choose(asked, "file"); got != want || from != "file" {
			t.Errorf("%q: %q from %q, want %q", asked, got, from, want)
		}
	}
}

func TestChoose_TakesTheNearestOfWhatIsNotOffered(t *testing.T) {
	tool := Definition{Versions: []string{"22", "24"}, Default: "22"}
	for asked, want := range map[string]string{
		"20.x": "22", "18": "22", "^20": "22", "23": "24", "23.x || 21.x": "22", "26": "24", ">=25": "24", "<20": "22",
	} {
		got, from := tool.choose(asked, "file")
		if got != want || !strings.HasPrefix(from, "file asks for "+asked) || !strings.HasSuffix(from, want+" is the nearest") {
			t.Errorf("%q: %q from %q, want %q", asked, got, from, want)
		}
	}
}

func TestChoose_LeavesWhatIsNoVersion(t *testing.T) {
	for _, asked := range []string{"", " ", "lts/*", "pypy3.9", "||", ">", "22 banana", "<2 >3", "1234567890", strings.Repeat("1 ", 200)} {
		if got, from := node.choose(asked, "file"); got != "" || from != "" {
			t.Errorf("%q: %q from %q", asked, got, from)
		}
	}
}

func TestChoose_ReadsPythonsRanges(t *testing.T) {
	tool := Definition{Versions: []string{"3.12", "3.13"}, Default: "3.13"}
	for asked, want := range map[string]string{
		">=3.9": "3.13", "~=3.12": "3.13", "~=3.12.1": "3.12", "==3.12.*": "3.12", "^3.11": "3.13", ">=3.11,<3.13": "3.12", "3": "3.13", "3.12.4": "3.12",
	} {
		if got, _ := tool.choose(asked, "file"); got != want {
			t.Errorf("%q: %q, want %q", asked, got, want)
		}
	}
}
