package webhook

import (
	"testing"
	"time"

	stripe "github.com/stripe/stripe-go/v82/webhook"
)

func TestSign_IsTheHMACOfTimeDotAndBody(t *testing.T) {
	// printf '1700000000.{"id":1}' | openssl dgst -sha256 -hmac whsec_test
	want := "t=1700000000,v1=2f441ba4b3b2d50d28a9ab9d9fd8880376ecd1eb5d0435401553f5d8d0a5dcf8"
	if got := sign("whsec_test", time.Unix(1_700_000_000, 999), []byte(`{"id":1}`)); got != want {
		t.Errorf("sign = %s, want %s", got, want)
	}
}

func TestSign_IsAcceptedByAnIndependentImplementation(t *testing.T) {
	body := []byte("{\"id\":1,\"text\":\"ü <&>\u2028\"}")
	header := sign(secret, time.Now(), body)
	if err := stripe.ValidatePayload(body, header, secret); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another secret": stripe.ValidatePayload(body, header, secret[len("whsec_"):]),
		"another body":   stripe.ValidatePayload(append(body, ' '), header, secret),
		"an old time":    stripe.ValidatePayload(body, sign(secret, time.Now().Add(-301*time.Second), body), secret),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
