package streams

import (
	"sync"
	"time"
)

// waiter makes goroutines wait for a change of what a lock guards, until its deadline at
// most. All its methods want the lock held.
type waiter struct {
	cond    sync.Cond // its L is the lock
	waiting int       // goroutines
	at      time.Time // the deadline; zero: none
	passed  bool      // the deadline is over
	timer   *time.Timer
	fires   time.Time // when timer does; zero: it does not run
}

// wait waits for wake, or for the deadline, and may return for neither.
func (w *waiter) wait() {
	w.arm()
	w.waiting++
	w.cond.Wait()
	w.waiting--
}

// wake ends every wait.
func (w *waiter) wake() {
	if w.waiting > 0 {
		w.cond.Broadcast()
	}
}

// setDeadline sets the deadline, for those who wait, too.
func (w *waiter) setDeadline(t time.Time) {
	w.at, w.passed = t, !t.IsZero() && !t.After(time.Now())
	switch {
	case w.waiting == 0:
	case w.passed:
		w.wake()
	default:
		w.arm()
	}
}

// arm makes the timer fire by the deadline. One that fires before it is left to do so:
// most deadlines are replaced long before they pass, and then cost nothing.
func (w *waiter) arm() {
	if w.at.IsZero() || w.passed || !w.fires.IsZero() && !w.fires.After(w.at) {
		return
	}
	w.fires = w.at
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Until(w.at), w.fire)
		return
	}
	w.timer.Reset(time.Until(w.at))
}

// fire is the timer's function.
func (w *waiter) fire() {
	w.cond.L.Lock()
	defer w.cond.L.Unlock()
	w.fires = time.Time{}
	if w.waiting == 0 || w.at.IsZero() {
		return
	}
	if w.passed = !w.at.After(time.Now()); w.passed {
		w.wake()
		return
	}
	w.arm()
}

// stop ends every wait, and the timer.
func (w *waiter) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.wake()
}
