package stack

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/safetext"
)

const day = 24 * time.Hour

// ParseDuration parses a duration in the form of manifests and requests: one or more
// whole numbers, each with a unit of s, m, h or d, as in 90m, 1h30m or 2d. For anything
// else it returns an Unprocessable *Error with example lifetimes of a stack.
func ParseDuration(s string) (time.Duration, error) {
	return ParseDurationLike(s, "30m, 90m or 1h30m")
}

// ParseDurationLike is like ParseDuration, with other examples in its errors, for a
// field that is not a lifetime.
func ParseDurationLike(s, examples string) (time.Duration, error) {
	if s == "" {
		return 0, badDuration(s, "is empty", examples)
	}
	var total time.Duration
	for rest := s; rest != ""; {
		n, unit, tail, fault := durationPart(rest)
		if fault != "" {
			return 0, badDuration(s, fault, examples)
		}
		if n > int64(math.MaxInt64-total)/int64(unit) {
			return 0, badDuration(s, "is too long", examples)
		}
		total += time.Duration(n) * unit
		rest = tail
	}
	return total, nil
}

// durationPart parses one number and its unit at the start of s. A number too large for
// a duration becomes the largest one.
func durationPart(s string) (n int64, unit time.Duration, rest, fault string) {
	rest = strings.TrimLeft(s, "0123456789")
	digits := s[:len(s)-len(rest)]
	switch {
	case digits == "":
		return 0, 0, "", "is not a number and a unit"
	case rest == "":
		return 0, 0, "", "has a number without a unit"
	case units[rest[0]] == 0:
		return 0, 0, "", "has a unit other than s, m, h and d"
	}
	n, _ = strconv.ParseInt(digits, 10, 64) // out of range, it is the largest number
	return n, units[rest[0]], rest[1:], ""
}

var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': day}

func badDuration(s, fault, examples string) error {
	return NewError(Unprocessable, fmt.Sprintf("duration %s %s; write it as in %s", safetext.Quote(s), fault, examples))
}

// FormatDuration formats a duration as requests write it: 1h30m.
func FormatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// FormatDays is like FormatDuration, but writes two days or more, if they are whole, as
// 7 days.
func FormatDays(d time.Duration) string {
	if d < 2*day || d%day != 0 {
		return FormatDuration(d)
	}
	return fmt.Sprintf("%d days", d/day)
}

// FormatWindow formats the time over which crashes are counted: 10 min.
func FormatWindow(d time.Duration) string {
	if d >= time.Minute && d%time.Minute == 0 {
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return d.String()
}

// RoughDuration formats the two largest significant units of a duration: 2d3h, 1h30m,
// 45s. It omits seconds from ten minutes on, and hours from a year on.
func RoughDuration(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d <= 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return twoUnits(d, time.Minute, "m", time.Second, "s", 10*time.Minute)
	case d < day:
		return twoUnits(d, time.Hour, "h", time.Minute, "m", day)
	default:
		return twoUnits(d, day, "d", time.Hour, "h", 365*day)
	}
}

// twoUnits omits the smaller unit from coarse on.
func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string, coarse time.Duration) string {
	text := fmt.Sprintf("%d%s", d/large, largeName)
	if rest := d % large / small; rest > 0 && d < coarse {
		text += fmt.Sprintf("%d%s", rest, smallName)
	}
	return text
}

// DurationInWords formats a duration as people say it: 42 minutes.
func DurationInWords(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "less than a minute"
	case d < 2*time.Minute:
		return "1 minute"
	case d < 2*time.Hour:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/day)
}
