package invariants

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Follow checks every event of an installation against those before it, and what has
// become of each stack against its row.
func Follow(events []Occurrence, rows []Row) error {
	stacks := map[string]*Chronicle{}
	for _, o := range events {
		if stacks[o.StackID] == nil {
			stacks[o.StackID] = &Chronicle{}
		}
		if err := stacks[o.StackID].Add(o); err != nil {
			return fmt.Errorf("%w; its events are %v", err, Kinds(events, o.StackID))
		}
	}
	for _, r := range rows {
		c := stacks[r.ID]
		if c == nil {
			return fmt.Errorf("stack %s has no history", r.ID)
		}
		if c.Status != r.Status || c.Claimed != r.Claimed {
			return fmt.Errorf("stack %s is %s and claimed: %t, but its events say %s and %t: %v",
				r.ID, r.Status, r.Claimed, c.Status, c.Claimed, Kinds(events, r.ID))
		}
	}
	return nil
}

// Kinds returns the types of one stack's events.
func Kinds(all []Occurrence, stackID string) []string {
	var found []string
	for _, o := range all {
		if o.StackID == stackID {
			found = append(found, string(o.Kind))
		}
	}
	return found
}

// expires returns when the stack expires according to the event, the zero time if it does
// not say.
func (o Occurrence) expires() time.Time {
	var data struct {
		At float64 `json:"expires_at"`
	}
	if json.Unmarshal([]byte(o.Data), &data) != nil || data.At == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.Round(data.At * 1e6)))
}

// Chronicle follows the events of one stack and refuses what cannot come next.
type Chronicle struct {
	Status  stack.Status // "" before the first event
	Claimed bool

	expires   time.Time // as far as events say
	deploying bool
	restoring bool
	noticed   bool
}

// Add takes the next event, or returns why it cannot come here.
func (c *Chronicle) Add(o Occurrence) error {
	if !c.allows(o.Kind) {
		return fmt.Errorf("event %d of %s, %s, cannot come here: %+v", o.ID, o.StackID, o.Kind, *c)
	}
	if at := o.expires(); !at.IsZero() {
		c.expires = at
	}
	switch o.Kind {
	case stack.EventCreated:
		c.Status, c.deploying = stack.Building, true
		c.Claimed = strings.Contains(o.Data, `"anonymous":false`)
	case stack.EventRedeploying:
		c.deploying = true
		if c.Status == stack.Failed {
			c.Status = stack.Building
		}
	case stack.EventLive, stack.EventRestored:
		c.Status, c.restoring = stack.Live, false
		c.deploying = c.deploying && o.Kind == stack.EventRestored
	case stack.EventDeployFailed:
		c.deploying = false
	case stack.EventFailed:
		// A redeploy may go on that was under way when the served generation failed.
		c.deploying = c.deploying && c.Status == stack.Live
		c.Status, c.restoring = stack.Failed, false
	case stack.EventExpiring, stack.EventExtended:
		c.noticed = o.Kind == stack.EventExpiring
	case stack.EventExpired:
		c.Status, c.deploying = stack.Expired, false
	case stack.EventClaimed:
		c.Claimed = true
		if c.Status == stack.Expired || !c.expires.IsZero() && !o.At.Before(c.expires) {
			c.Status, c.restoring, c.deploying = stack.Building, true, false
		}
	case stack.EventDeleted:
		c.Status = stack.Deleted
	}
	return nil
}

// allows reports whether an event may come next (docs/api.md, "States and
// transitions").
func (c *Chronicle) allows(kind stack.EventType) bool {
	live, building := c.Status == stack.Live, c.Status == stack.Building
	if c.Status == stack.Deleted || (c.Status == "") != (kind == stack.EventCreated) {
		return false
	}
	switch kind {
	case stack.EventCreated, stack.EventAgentRevoked:
		return true
	case stack.EventDeleted:
		return true
	case stack.EventRedeploying:
		return live && !c.deploying || c.Status == stack.Failed
	case stack.EventBuilding, stack.EventLive:
		return c.deploying
	case stack.EventReady:
		return c.deploying || c.restoring
	case stack.EventDeployFailed:
		return c.deploying && live
	case stack.EventFailed:
		return live || building || c.deploying
	case stack.EventCrashed, stack.EventRestarted:
		return live
	case stack.EventRestored:
		return live || c.restoring
	case stack.EventExpiring:
		return !c.Claimed && !c.noticed && c.Status != stack.Expired
	case stack.EventExtended, stack.EventExpired:
		return !c.Claimed && c.Status != stack.Expired
	case stack.EventClaimed:
		return !c.Claimed
	}
	return false
}
