package usage

import (
	"fmt"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Step is a length of steps, and how long their points are kept.
type Step struct {
	Length, Kept time.Duration
}

func (s Step) seconds() int64 { return int64(s.Length / time.Second) }

// The steps. Each is made of points of the one before.
var (
	Finest = Step{15 * time.Second, 6 * time.Hour}
	steps  = []Step{Finest, {5 * time.Minute, 7 * 24 * time.Hour}, {time.Hour, 30 * 24 * time.Hour}}
)

// Window is a time until now, in steps.
type Window struct {
	Since time.Duration
	Step  Step
}

// Fitting returns the window of a time in the finest steps that are kept for so long.
func Fitting(since time.Duration) (Window, error) {
	last := steps[len(steps)-1]
	if since < Finest.Length || since > last.Kept {
		return Window{}, unprocessable("since must lie between %s and %s, like 1h", stack.FormatDuration(Finest.Length), stack.FormatDays(last.Kept))
	}
	for _, step := range steps {
		if since <= step.Kept {
			return Window{since, step}, nil
		}
	}
	return Window{since, last}, nil
}

// Auto is the text of a step that fits the window.
const Auto = "auto"

// ParseWindow reads a window from the texts of a time, such as 1h, and of a step: auto, or one
// of the lengths. An empty text stands for one hour, or for auto.
func ParseWindow(since, step string) (Window, error) {
	length := time.Hour
	if since != "" {
		var err error
		if length, err = stack.ParseDurationLike(since, "1h, 6h or 7d"); err != nil {
			return Window{}, unprocessable("since: %s", err)
		}
	}
	w, err := Fitting(length)
	if err != nil || step == "" || step == Auto {
		return w, err
	}
	return w.withStep(step)
}

// withStep returns the window in the steps that a text names.
func (w Window) withStep(text string) (Window, error) {
	length, err := stack.ParseDuration(text)
	names := []string{Auto}
	for _, step := range steps {
		names = append(names, stack.FormatDuration(step.Length))
		switch {
		case err != nil || length != step.Length:
		case w.Since > step.Kept:
			return w, unprocessable("steps of %s are kept for %s; ask for a since up to that, or leave step out", stack.FormatDuration(length), stack.FormatDays(step.Kept))
		case w.Since < length:
			return w, unprocessable("since must be one step at least, %s", stack.FormatDuration(length))
		default:
			return Window{w.Since, step}, nil
		}
	}
	return w, unprocessable("step must be one of %s, not %.40q", strings.Join(names, ", "), text)
}

func unprocessable(format string, args ...any) error {
	return stack.NewError(stack.Unprocessable, fmt.Sprintf(format, args...))
}
