package metrics_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/metrics"
)

func scrape(m *metrics.Metrics, asked metrics.Asked) (int, string) {
	w := httptest.NewRecorder()
	m.Handler(asked).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Code, w.Body.String()
}

func TestMetrics_ShowWhatTheyAreToldAndAsk(t *testing.T) {
	m := metrics.New()
	m.Request("/v0/stacks/{id}", "GET", 200, 7*time.Millisecond)
	m.Request("", "PROPFIND", 404, time.Millisecond)
	m.Arrival("service")
	m.Connection("handed_over")
	m.OverLimit("refused")
	m.Build("node", "failed", 3*time.Second)
	m.EngineCall("POST /containers/create", false, time.Second)
	m.Event("stack.live")
	m.Event("stack.live")
	m.Delivery("retried", 20*time.Millisecond)
	m.Mail("sent")
	status, text := scrape(m, metrics.Asked{
		Version:  "1.2.3",
		Builds:   func() (int, int) { return 4, 2 },
		Statuses: []string{"building", "live"},
		Stacks:   func(context.Context) (map[string]int, error) { return map[string]int{"live": 3}, nil },
	})
	if status != 200 {
		t.Fatalf("status %d: %s", status, text)
	}
	for _, line := range []string{
		`berth_http_requests_total{method="GET",route="/v0/stacks/{id}",status="200"} 1`,
		`berth_http_requests_total{method="other",route="none",status="404"} 1`,
		`berth_http_request_duration_seconds_count{route="none"} 1`,
		`berth_build_duration_seconds_sum{result="failed",runtime="node"} 3`,
		`berth_engine_call_duration_seconds_count{call="POST /containers/create",result="error"} 1`,
		`berth_events_total{type="stack.live"} 2`,
		`berth_delivery_duration_seconds_count{result="retried"} 1`,
		`berth_mails_total{result="sent"} 1`,
		`berth_arrivals_total{host="service"} 1`,
		`berth_connections_total{lane="handed_over"} 1`,
		`berth_connections_over_limit_total{outcome="refused"} 1`,
		`berth_build_info{version="1.2.3"} 1`,
		`berth_builds_running 4`,
		`berth_builds_waiting 2`,
		`berth_stacks{status="building"} 0`,
		`berth_stacks{status="live"} 3`,
		`go_goroutines `,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("there is no line %s", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestMetrics_SayThatTheDatabaseDoesNotAnswer(t *testing.T) {
	status, text := scrape(metrics.New(), metrics.Asked{
		Builds:   func() (int, int) { return 0, 0 },
		Statuses: []string{"live"},
		Stacks:   func(context.Context) (map[string]int, error) { return nil, errors.New("disk on fire") },
	})
	if status != 500 || !strings.Contains(text, "disk on fire") {
		t.Errorf("status %d: %s", status, text)
	}
}
