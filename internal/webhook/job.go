package webhook

import (
	"fmt"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// job is a waiting attempt.
type job struct {
	stack   string
	event   int64
	attempt int            // from 1; 0 for one sent by hand
	test    *stack.Event   // to send in place of a recorded one
	replies chan<- replied // of one sent by hand; never blocks
}

// replied is the reply to a delivery sent by hand.
type replied struct {
	delivery store.Delivery
	err      error
}

func (j job) byHand() bool { return j.replies != nil }

func (j job) reply(delivery store.Delivery, err error) { j.replies <- replied{delivery, err} }

// member returns the job as the retry queue holds it.
func (j job) member() string { return fmt.Sprintf("%s %d %d", j.stack, j.event, j.attempt) }

// parseJob parses what member returns.
func parseJob(member string) (j job, ok bool) {
	n, err := fmt.Sscanf(member, "%s %d %d", &j.stack, &j.event, &j.attempt)
	return j, n == 3 && err == nil && j.attempt > 1
}
