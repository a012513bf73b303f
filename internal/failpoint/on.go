//go:build failpoint

package failpoint

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// variable is the environment variable that says what happens.
const variable = "BERTH_FAILPOINTS"

// action is what happens at a point.
type action struct {
	kill    int  // counts down the passes: at 0 the process is killed; negative for never
	stop    bool // it is stopped instead
	percent int  // chance of an error
}

var (
	mu      sync.Mutex
	actions = parse(os.Getenv(variable))
)

// Here is a point at which the process may be killed.
func Here(point string) {
	if err := Error(point); err != nil {
		panic(fmt.Sprintf("%s: %s cannot give an error", variable, point))
	}
}

// Error is a point at which the process may be killed or meet an error.
func Error(point string) error {
	mu.Lock()
	defer mu.Unlock()
	a := actions[point]
	if a == nil {
		return nil
	}
	if a.kill--; a.kill == 0 {
		if a.stop {
			stop(point)
			return nil
		}
		fmt.Fprintln(os.Stderr, "killed at the failpoint", point)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing more is done while the signal is on its way
	}
	if rand.IntN(100) < a.percent {
		return fmt.Errorf("failpoint %s: input/output error", point)
	}
	return nil
}

// stop stops the process until somebody lets it go on.
func stop(point string) {
	fmt.Fprintln(os.Stderr, "stopped at the failpoint", point)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	time.Sleep(10 * time.Millisecond) // the signal may be on its way
}

// parse parses the variable. A mistake in it stops the process: a test that triggers
// nothing by accident would prove nothing.
func parse(text string) map[string]*action {
	all := map[string]*action{}
	for item := range strings.SplitSeq(text, ",") {
		if item == "" {
			continue
		}
		a := &action{kill: 1}
		point, number := item, &a.kill
		if name, ok := strings.CutSuffix(item, "!"); ok {
			all[name] = &action{kill: 1, stop: true}
			continue
		}
		if i := strings.IndexAny(item, "@%"); i >= 0 {
			if item[i] == '%' {
				a.kill, number = -1, &a.percent
			}
			var err error
			if *number, err = strconv.Atoi(item[i+1:]); err != nil {
				panic(fmt.Sprintf("%s: %q: %v", variable, item, err))
			}
			point = item[:i]
		}
		all[point] = a
	}
	return all
}
