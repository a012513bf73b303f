package server

import (
	"log/slog"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/webhook"
)

// queue is a queue that is never used.
type queue struct{ webhook.Queue }

// A missing field is a missing limit: without Pool, webhooks reach stacks.
func TestWebhookConfig_LeavesNoFieldOut(t *testing.T) {
	s := &Server{store: new(store.Store), left: &state{Retries: map[string]time.Time{"a": {}}}, log: slog.New(slog.DiscardHandler), cfg: Config{
		WebhookTimeout: time.Second,
		WebhookRetries: []time.Duration{time.Second},
		WebhookAllow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		NetworkPool:    netip.MustParsePrefix("44.0.0.0/16"),
	}}
	cfg := reflect.ValueOf(s.webhookConfig(queue{}))
	for i := range cfg.NumField() {
		name := cfg.Type().Field(i).Name
		if cfg.Field(i).IsZero() && name != "Node" { // it has no id on one machine
			assert.Fail(t, "nothing is given", name)
		}
	}
}
