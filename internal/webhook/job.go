package webhook

import (
	"fmt"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// job is one attempt that waits.
type job struct {
	stack   string
	event   int64
	attempt int            // from 1; 0 for one that was sent by hand
	test    *stack.Event   // to send in place of a recorded one
	replies chan<- replied // of one that was sent by hand; never blocks
}

// replied is what whoever sent a delivery by hand is told.
type replied struct {
	delivery store.Delivery
	err      error
}

func (j job) byHand() bool { return j.replies != nil }

func (j job) reply(delivery store.Delivery, err error) { j.replies <- replied{delivery, err} }

// member is the job as the retry queue holds it.
func (j job) member() string { return fmt.Sprintf("%s %d %d", j.stack, j.event, j.attempt) }

// parseJob reads what member wrote.
func parseJob(member string) (j job, ok bool) {
	n, err := fmt.Sscanf(member, "%s %d %d", &j.stack, &j.event, &j.attempt)
	return j, n == 3 && err == nil && j.attempt > 1
}
