package web

import (
	"fmt"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// eventView is an event of a stack's history as the page shows it.
type eventView struct {
	At     time.Time
	Type   stack.EventType
	Text   string
	Detail string // an error, in full
	Tone   string // good, bad or ""
}

// showEvents converts events for the page.
func (w *pages) showEvents(events []stack.Event) []eventView {
	views := make([]eventView, len(events))
	for i, e := range events {
		views[i] = eventView{At: e.CreatedAt, Type: e.Type, Text: describe(e, w.cfg.CrashWindow), Tone: tones[e.Type]}
		views[i].Detail, _ = e.Data["error"].(string)
	}
	return views
}

var tones = map[stack.EventType]string{
	stack.EventLive:         "good",
	stack.EventRestored:     "good",
	stack.EventFailed:       "bad",
	stack.EventDeployFailed: "bad",
	stack.EventCrashed:      "bad",
}

// describe returns what an event means to its stack's owner. The window is the time
// over which crashes are counted.
func describe(e stack.Event, window time.Duration) string {
	service, _ := e.Data["service"].(string)
	switch e.Type {
	case stack.EventCreated:
		if e.Data["anonymous"] == true {
			return "Created by an agent without an account"
		}
		return "Created with an API key"
	case stack.EventRedeploying:
		return fmt.Sprintf("Deploying generation %v", e.Data["generation"])
	case stack.EventBuilding:
		return fmt.Sprintf("Building %s for generation %v", service, e.Data["generation"])
	case stack.EventReady:
		return service + " is ready"
	case stack.EventLive:
		return fmt.Sprintf("Generation %v is live", e.Data["generation"])
	case stack.EventDeployFailed:
		return fmt.Sprintf("Generation %v failed; generation %v keeps serving", e.Data["generation"], e.Data["serving_generation"])
	case stack.EventCrashed:
		return describeCrash(service, e.Data, window)
	case stack.EventRestarted:
		if e.Data["requested"] == true {
			return service + " was restarted on request"
		}
		return service + " was restarted after its crash"
	case stack.EventClaimed:
		return fmt.Sprintf("Claimed by %v", e.Data["by"])
	}
	if text := sayings[e.Type]; text != "" {
		return text
	}
	return string(e.Type)
}

// sayings are the texts of events whose data adds nothing.
var sayings = map[stack.EventType]string{
	stack.EventFailed:       "Failed",
	stack.EventExtended:     "Time extended",
	stack.EventExpiring:     "About to expire",
	stack.EventExpired:      "Expired; can still be claimed",
	stack.EventRestored:     "Restored without a rebuild",
	stack.EventAgentRevoked: "The agent's access was revoked",
	stack.EventDeleted:      "Deleted",
}

// describeCrash says how a process ended.
func describeCrash(service string, data map[string]any, window time.Duration) string {
	crashes := ""
	if n, ok := data["crashes"].(float64); ok && n > 1 {
		crashes = fmt.Sprintf(", %d times in %s", int(n), stack.FormatWindow(window))
	}
	if data["exit_code"] == nil {
		return service + " could not be restarted" + crashes
	}
	return fmt.Sprintf("%s crashed with exit code %v%s", service, data["exit_code"], crashes)
}
