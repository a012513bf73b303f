package manifest

import (
	"fmt"
	"math"
	"time"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

const day = 24 * time.Hour

// ParseDuration reads a lifetime as manifests and requests write it: a whole
// number and a unit of s, m, h or d, one or more times, as in 90m, 1h30m or
// 2d. Anything else is an Unprocessable *stack.Error that shows a right one.
func ParseDuration(s string) (time.Duration, error) {
	return parseDuration(s, "30m, 90m or 1h30m")
}

// parseDuration is ParseDuration with examples that fit the field.
func parseDuration(s, examples string) (time.Duration, error) {
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

// durationPart reads one number and its unit from the start of s. A number
// that no duration can hold is cut to the greatest.
func durationPart(s string) (n int64, unit time.Duration, rest, fault string) {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		digit := int64(s[i] - '0')
		if n > (math.MaxInt64-digit)/10 {
			n = math.MaxInt64
		} else {
			n = n*10 + digit
		}
		i++
	}
	if i == 0 {
		return 0, 0, "", "is not a number and a unit"
	}
	if i == len(s) {
		return 0, 0, "", "has a number without a unit"
	}
	switch s[i] {
	case 's':
		unit = time.Second
	case 'm':
		unit = time.Minute
	case 'h':
		unit = time.Hour
	case 'd':
		unit = day
	default:
		return 0, 0, "", "has something other than the units s, m, h and d"
	}
	return n, unit, s[i+1:], ""
}

func badDuration(s, fault, examples string) error {
	return stack.NewError(stack.Unprocessable, fmt.Sprintf("duration %s %s; write it as in %s", safetext.Quote(s), fault, examples))
}
