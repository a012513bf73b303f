package stack

import (
	"strconv"
	"time"

	"github.com/berth-host/berth/internal/plainjson"
)

// EventType is the type of an event (docs/api.md, "Event types").
type EventType string

// The event types.
const (
	EventCreated      EventType = "stack.created"
	EventRedeploying  EventType = "stack.redeploying"
	EventBuilding     EventType = "service.building"
	EventReady        EventType = "service.ready"
	EventLive         EventType = "stack.live"
	EventDeployFailed EventType = "stack.deploy_failed"
	EventFailed       EventType = "stack.failed"
	EventCrashed      EventType = "service.crashed"
	EventRestarted    EventType = "service.restarted"
	EventExtended     EventType = "stack.extended"
	EventExpiring     EventType = "stack.expiring"
	EventExpired      EventType = "stack.expired"
	EventClaimed      EventType = "stack.claimed"
	EventRestored     EventType = "stack.restored"
	EventAgentRevoked EventType = "stack.agent_revoked"
	EventDeleted      EventType = "stack.deleted"
)

// Event is a recorded change of a stack. The store sets ID and StackID when it inserts
// the event; ids increase over the whole server.
type Event struct {
	ID        int64
	StackID   string
	Type      EventType
	Data      map[string]any // nil is written as {}
	CreatedAt time.Time
}

// MarshalJSON returns the form of docs/api.md, "The event". The events endpoint and a
// webhook's body have the same bytes.
func (e Event) MarshalJSON() ([]byte, error) {
	data := e.Data
	if data == nil {
		data = map[string]any{}
	}
	return plainjson.Marshal(struct {
		ID        int64          `json:"id"`
		StackID   string         `json:"stack_id"`
		Type      EventType      `json:"type"`
		Data      map[string]any `json:"data"`
		CreatedAt Timestamp      `json:"created_at"`
	}{e.ID, e.StackID, e.Type, data, Timestamp(e.CreatedAt)})
}

// Timestamp is a time that is encoded in JSON as Unix seconds, a float; the zero time
// is null.
type Timestamp time.Time

// MarshalJSON returns the seconds with up to six decimals.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(time.Time(t).UnixMicro())/1e6, 'f', -1, 64), nil
}
