package stack_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30m":            30 * time.Minute,
		"1h":             time.Hour,
		"90m":            90 * time.Minute,
		"1h30m":          90 * time.Minute,
		"2d":             48 * time.Hour,
		"1d2h3m4s":       26*time.Hour + 3*time.Minute + 4*time.Second,
		"30m1h":          90 * time.Minute, // in any order
		"1h1h":           2 * time.Hour,
		"0s":             0,
		"007s":           7 * time.Second,
		"106751d":        106751 * 24 * time.Hour, // the longest in days
		"9223372036s":    9223372036 * time.Second,
		"0000000000001s": time.Second,
	} {
		got, err := stack.ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseDuration_RefusesTheRestWithAnExample(t *testing.T) {
	for _, text := range []string{
		"", " ", "90", "0", "-1h", "+1h", "1.5h", "1h ", " 1h", "1 h", "1h30", "h", "1ms", "1us", "1ns", "1w", "1y",
		"1H", "1hour", "PT1H", "1h-30m", "1h,30m", "١h", "1h\x00", "1e3s", "0x1s", "106752d", "9223372037s",
		"106751d1d", "99999999999999999999s", "9223372036854775807d", strings.Repeat("9", 5000) + "s",
	} {
		got, err := stack.ParseDuration(text)
		var fault *stack.Error
		if !errors.As(err, &fault) || fault.Kind != stack.Unprocessable || got != 0 {
			t.Errorf("ParseDuration(%q) = %v, %v", text, got, err)
		} else if !strings.Contains(fault.Detail, "1h30m") || len(fault.Detail) > 300 {
			t.Errorf("ParseDuration(%q) says %q", text, fault.Detail)
		}
	}
}

// FuzzDuration checks that what is accepted is never negative, and means the
// same to the standard library where it knows the units.
func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"1h30m", "2d", "90", "-1s", "9223372036s", "1d1d1d", "1.5h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := stack.ParseDuration(text)
		if got < 0 || err != nil && got != 0 {
			t.Fatalf("ParseDuration(%q) = %v, %v", text, got, err)
		}
		if err != nil || strings.Contains(text, "d") {
			return
		}
		if std, err := time.ParseDuration(text); err != nil || std != got {
			t.Fatalf("ParseDuration(%q) = %v; the standard library says %v, %v", text, got, std, err)
		}
	})
}

func TestParseDuration_TheExamplesFitTheField(t *testing.T) {
	_, err := stack.ParseDuration("1 hour")
	if err == nil || !strings.Contains(err.Error(), "as in 30m, 90m or 1h30m") {
		t.Errorf("the error is %v", err)
	}
	_, err = stack.ParseDurationLike("90", "10s")
	if err == nil || !strings.HasSuffix(err.Error(), "as in 10s") {
		t.Errorf("the error is %v", err)
	}
}

func TestDurationInWords_IsWhatPeopleSay(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                               "less than a minute",
		59 * time.Second:                "less than a minute",
		time.Minute:                     "1 minute",
		42*time.Minute + 59*time.Second: "42 minutes",
		119 * time.Minute:               "119 minutes",
		2 * time.Hour:                   "2 hours",
		47 * time.Hour:                  "47 hours",
		48 * time.Hour:                  "2 days",
		7 * 24 * time.Hour:              "7 days",
	} {
		if got := stack.DurationInWords(d); got != want {
			t.Errorf("DurationInWords(%s) = %s, want %s", d, got, want)
		}
	}
}

func TestRoughDuration_SaysTheTwoLargestUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", time.Minute: "1m", 61 * time.Second: "1m1s",
		59*time.Minute + 59*time.Second: "59m", time.Hour: "1h", 90 * time.Minute: "1h30m", 49 * time.Hour: "2d1h", 7 * 24 * time.Hour: "7d",
	} {
		if got := stack.RoughDuration(d); got != want {
			t.Errorf("RoughDuration(%s) = %s, want %s", d, got, want)
		}
	}
}

func TestFormatDuration_WritesAsRequestsDo(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"15m": 15 * time.Minute, "24h": 24 * time.Hour, "1h30m": 90 * time.Minute, "10m": 10 * time.Minute, "0s": 0,
		"20h": 20 * time.Hour, "1m1s": 61 * time.Second, "30s": 30 * time.Second, "1h0m5s": time.Hour + 5*time.Second,
	} {
		if got := stack.FormatDuration(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}
