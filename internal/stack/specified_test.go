package stack_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/berth-host/berth/internal/stack"
)

// specifiedID is the stack of the specification's example of a public URL.
const specifiedID = "stk_3f2a9c1b7d4e"

// TestEvents_AreLetterForLetterAsSpecified holds docs/api.md, "Event types", against
// the last event that each trigger records.
func TestEvents_AreLetterForLetterAsSpecified(t *testing.T) {
	const bothURLs = `{"api":"http://api-3f2a9c1b7d4e.localhost:8080","web":"http://web-3f2a9c1b7d4e.localhost:8080"}`
	for _, tt := range []struct{ state, trigger, kind, data string }{
		{"live", "deploy", "stack.redeploying", `{"attempt":2,"generation":2}`},
		{"building", "deployed", "stack.live", `{"attempt":1,"expires_at":1767326645.0006,"generation":1,"urls":` + bothURLs + `}`},
		{"restoring", "restored", "stack.restored", `{"urls":` + bothURLs + `}`},
		{"live, redeploying", "deploy failed", "stack.deploy_failed", `{"attempt":2,"error":"no","generation":2,"serving_generation":1}`},
		{"live, redeploying", "rollback failed", "stack.failed", `{"error":"no"}`},
		{"building", "deploy failed", "stack.failed", `{"error":"no"}`},
		{"restoring", "restore failed", "stack.failed", `{"error":"no"}`},
		{"live", "crash", "service.crashed", `{"crashes":1,"exit_code":3,"service":"api"}`},
		{"live", "sixth crash", "stack.failed", `{"error":"api crashed 6 times in 10 min (last exit code 3); check its logs and redeploy"}`},
		{"live", "restart failed", "service.crashed", `{"crashes":1,"exit_code":null,"service":"api"}`},
		{"live", "restarted", "service.restarted", `{"service":"api"}`},
		{"live", "restarted for owner", "service.restarted", `{"requested":true,"service":"api"}`},
		{"live", "extend", "stack.extended", `{"expires_at":1767326645.0006}`},
		{"live", "notice", "stack.expiring", `{"expires_at":1767326645.0006,"message":"Ask your human to claim this stack, or extend the TTL."}`},
		{"live", "expire", "stack.expired", `{"claim_url":"http://localhost:8080/claim","retained_until":1767931445.0006}`},
		{"live", "claim", "stack.claimed", `{"by":"ana@example.com"}`},
		{"live, claimed", "owner revokes", "stack.agent_revoked", `{}`},
		{"live", "delete", "stack.deleted", `{}`},
		{"expired", "retained", "stack.deleted", `{}`},
		{"live", "created", "stack.created", `{"anonymous":true}`},
		{"live, claimed", "created", "stack.created", `{"anonymous":false}`},
		{"building", "service building", "service.building", `{"attempt":1,"generation":1,"service":"web"}`},
		{"building", "ready", "service.ready", `{"service":"web","url":"http://web-3f2a9c1b7d4e.localhost:8080"}`},
	} {
		s := states[tt.state](t)
		s.ID = specifiedID
		all := append(recorded, triggers...)
		i := slices.IndexFunc(all, func(tr trigger) bool { return tr.name == tt.trigger })
		events := must(t)(all[i].apply(s))
		event := events[len(events)-1]
		event.CreatedAt = now
		got, err := json.Marshal(event)
		want := `{"id":0,"stack_id":"","type":"` + tt.kind + `","data":` + tt.data + `,"created_at":1767323045.0006}`
		if err != nil || string(got) != want {
			t.Errorf("%s, %s:\n%s, %v, want\n%s", tt.state, tt.trigger, got, err, want)
		}
	}
}

// recorded holds the events for which the lifecycle's grid has no column.
var recorded = []trigger{
	{"created", func(s *stack.Stack) ([]stack.Event, error) { return []stack.Event{s.Created()}, nil }},
	{"service building", func(*stack.Stack) ([]stack.Event, error) {
		return []stack.Event{stack.ServiceBuilding("web", 1, 1)}, nil
	}},
	{"ready", func(s *stack.Stack) ([]stack.Event, error) {
		return []stack.Event{s.Ready("web", urls.Service(s, "web"))}, nil
	}},
	{"restart failed", func(s *stack.Stack) ([]stack.Event, error) {
		events, _, err := s.Crash("api", nil, true, limits, now)
		return events, err
	}},
}
